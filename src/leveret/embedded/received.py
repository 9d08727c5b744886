"""Values that the library returns: popped messages, and counts."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class Received(NamedTuple):
    """A message that was popped. Ack, nack or extend it before its deadline."""

    queue: str
    id: int  # unique in its queue, never used twice
    body: bytes
    attempts: int  # number of pops, this one included
    priority: int
    receipt: int  # of this pop; the next pop of the same message has another
    headers: Mapping[str, str]


class Stats(NamedTuple):
    """A queue at one moment: pushed = ready + in_flight + scheduled + acked + dead."""

    pushed: int
    ready: int
    in_flight: int
    scheduled: int
    acked: int
    dead: int  # failed too often: moved to the dead-letter queue, or dropped


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """Return headers as bytes. The engine does not decode them."""
    return json.dumps(dict(headers)).encode()


def decode_headers(header: bytes) -> dict[str, str]:
    headers: dict[str, str] = json.loads(header) if header else {}
    return headers
