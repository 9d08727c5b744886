"""Whether a bus consumes, as the broker sees it.

Over AMQP the question is a passive declare on the consumer's own channel. A broker that drops a
consumer says so on that channel, and channels keep order: an answer that comes while no cancel has
come, with a count of consumers above zero, says that ours is among them. With the address of the
management API the broker is asked for its list of consumers as well, and our tag must be in it.
"""

import asyncio
import json
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, Final

ANSWER_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True)
class Health:
    """Whether the broker lists the consumer, and since when; else the reason why not."""

    is_consuming: bool
    since_s: float | None = None  # in seconds since 1970
    reason: str = ""


async def listing_fault(management_url: str, vhost: str, consumer_tag: str) -> str:
    """Why the management API does not list the consumer; nothing where it does."""
    try:
        tags = await asyncio.to_thread(_consumer_tags, management_url, vhost)
    except (OSError, ValueError) as fault:
        return f"the management API does not answer: {fault}"
    return "" if consumer_tag in tags else "the broker does not list the consumer"


def _consumer_tags(management_url: str, vhost: str) -> set[str]:
    address = urllib.parse.urlsplit(management_url)
    if address.scheme not in ("http", "https"):
        raise ValueError(f"{management_url} is no address of an HTTP API")
    passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
    base = f"{address.scheme}://{address.hostname}:{address.port or 15672}"
    user, password = address.username or "guest", address.password or "guest"
    passwords.add_password(None, base, user, password, is_authenticated=True)
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords))
    path = f"{base}/api/consumers/{urllib.parse.quote(vhost, safe='')}"
    with opener.open(path, timeout=ANSWER_S) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read(ANSWER_BYTES_MAX))
    return {str(each.get("consumer_tag")) for each in found}


def vhost_of(url: str) -> str:
    """The vhost that an AMQP address names."""
    path = urllib.parse.urlsplit(url).path
    return urllib.parse.unquote(path[1:]) or "/"
