"""Whether a bus consumes, as the broker sees it.

Over AMQP the bus sends a passive declare on the consumer's own channel. A broker that cancels a
consumer says so on that channel, and a channel keeps order. So if the answer arrives before any
cancel, and its consumer count is above zero, our consumer is among them. With the address of the
management API the bus also looks for our consumer tag in the broker's list of consumers.
"""

import asyncio
import json
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, Final

ANSWER_TIMEOUT_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True)
class Health:
    """Whether the broker lists the consumer: since when, or why not."""

    is_consuming: bool
    since_s: float | None = None  # Unix time of the present session
    reason: str = ""


async def why_not_listed(management_url: str, vhost: str, consumer_tag: str) -> str:
    """Return why the management API does not list the consumer, or an empty text if it does."""
    try:
        tags = await asyncio.to_thread(_consumer_tags, management_url, vhost)
    except (OSError, ValueError) as fault:
        return f"the management API does not answer: {fault}"
    return "" if consumer_tag in tags else "the broker does not list the consumer"


def _consumer_tags(management_url: str, vhost: str) -> set[str]:
    address = urllib.parse.urlsplit(management_url)
    if address.scheme not in ("http", "https"):
        raise ValueError(f"{management_url} is not an http:// or https:// address")
    passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
    base = f"{address.scheme}://{address.hostname}:{address.port or 15672}"
    user, password = address.username or "guest", address.password or "guest"
    passwords.add_password(None, base, user, password, is_authenticated=True)
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords))
    path = f"{base}/api/consumers/{urllib.parse.quote(vhost, safe='')}"
    with opener.open(path, timeout=ANSWER_TIMEOUT_S) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read(ANSWER_BYTES_MAX))
    return {str(each.get("consumer_tag")) for each in found}


def vhost_of(url: str) -> str:
    """Return the vhost in an AMQP address."""
    path = urllib.parse.urlsplit(url).path
    return urllib.parse.unquote(path[1:]) or "/"
