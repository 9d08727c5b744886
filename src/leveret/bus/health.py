"""Ask the broker whether a bus consumes.

Over AMQP the question is a passive declare on the consumer's own channel. A broker that drops our
consumer sends a cancel on that channel first, because channels keep order. So the bus consumes if
the answer comes without a cancel before it, and counts at least one consumer. If the address of the
management API is given, our tag must also be in its list of consumers.
"""

import asyncio
import json
import urllib.parse
from dataclasses import dataclass, replace
from typing import Any, Final

from leveret.http_client.address import parse_address
from leveret.http_client.connections import ask_once
from leveret.http_client.errors import CallError
from leveret.http_client.requests import RequestEncoder

MANAGEMENT_PORT: Final = 15672
ANSWER_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True)
class Health:
    """The health of a bus: True if the broker lists its consumer, else the reason.

    A bus without handlers is healthy while it is connected.
    """

    is_consuming: bool
    since_s: float | None = None  # Unix time of the present session
    reason: str = ""
    hung_handlers: tuple[str, ...] = ()  # handlers that run longer than they may
    is_publishing: bool = False  # the connection for publishing is open
    is_healthy: bool = False  # it does all that it has to do


async def why_not_listed(management_url: str, vhost: str, consumer_tag: str) -> str:
    """Return why the management API does not list the consumer, or an empty text if it does."""
    try:
        tags = await asyncio.to_thread(_consumer_tags, management_url, vhost)
    except (CallError, ValueError) as fault:
        return f"the management API does not answer: {fault}"
    return "" if consumer_tag in tags else "the broker does not list the consumer"


def _consumer_tags(management_url: str, vhost: str) -> set[str]:
    address = parse_address(management_url, default_port=MANAGEMENT_PORT)
    address = replace(
        address, user=address.user or "guest", password=address.password or "guest", prefix=""
    )
    path = f"/api/consumers/{urllib.parse.quote(vhost, safe='')}"
    request = RequestEncoder(address).encode("GET", path)
    answer = ask_once(address, request, ANSWER_S, ANSWER_BYTES_MAX)
    if answer.status >= 300:
        raise ValueError(f"HTTP status {answer.status} {answer.reason}")
    found: list[dict[str, Any]] = json.loads(answer.body)
    return {str(each.get("consumer_tag")) for each in found}


def vhost_of(url: str) -> str:
    """Return the vhost in an AMQP address."""
    path = urllib.parse.urlsplit(url).path
    return urllib.parse.unquote(path[1:]) or "/"
