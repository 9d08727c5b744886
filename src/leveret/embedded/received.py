"""What the library hands out: messages that were popped, and counts."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class Received(NamedTuple):
    """A message that was popped. Whoever holds it acks, nacks or extends it before its deadline."""

    queue: str
    id: int  # position in its queue, never used twice
    body: bytes
    attempts: int  # how often it has been popped, this time included
    priority: int
    receipt: int  # of this pop alone: the next one of the same message has another
    headers: Mapping[str, str]


class Stats(NamedTuple):
    """A queue at one moment: pushed = ready + in_flight + scheduled + acked + dead."""

    pushed: int
    ready: int
    in_flight: int
    scheduled: int
    acked: int
    dead: int  # failed too often: went to the dead-letter queue, or was dropped for want of one


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Headers as the queue machine keeps them: bytes that it does not look into."""
    return json.dumps(dict(headers)).encode()


def decode_headers(header: bytes) -> dict[str, str]:
    headers: dict[str, str] = json.loads(header) if header else {}
    return headers
