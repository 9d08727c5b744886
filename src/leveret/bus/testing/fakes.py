"""Parts of the fake bus: clock, message, executor, routing and death headers of a broker."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Final

from leveret.bus import headers as bus_headers
from leveret.bus.topology import ExchangeType
from leveret.clock import Clock

START_S: Final = 1_700_000_000.0


class FakeClock(Clock):
    """A clock that only a hub moves."""

    moves = False

    def __init__(self, start_s: float = START_S) -> None:
        super().__init__()
        self.at_ms = round(start_s * 1000)

    def now_ms(self) -> int:
        return self.at_ms


@dataclass(frozen=True)
class FakeMessage:
    """A message of a fake bus."""

    body: bytes
    message_id: str
    type: str
    routing_key: str
    exchange: str
    headers: bus_headers.Headers
    timestamp_s: int
    is_redelivered: bool = False
    correlation_id: str = ""


class InlineExecutor(Executor):
    """Runs plain handlers in the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        found: Future[Any] = Future()
        try:
            found.set_result(fn(*args, **kwargs))
        except BaseException as fault:
            found.set_exception(fault)
        return found


def headers_after_retry(
    headers: bus_headers.Headers, queue: str, retry_queue: str
) -> bus_headers.Headers:
    """Return the headers after a reject and the wait in the retry queue, as a broker sets them."""
    deaths = [dict(death) for death in headers.get(bus_headers.DEATHS, [])]
    for place, reason in ((queue, bus_headers.REJECTED), (retry_queue, "expired")):
        known = [each for each in deaths if (each["queue"], each["reason"]) == (place, reason)]
        entry: dict[str, Any] = {"queue": place, "reason": reason, "count": 0}
        entry = known[0] if known else entry
        entry["count"] += 1
        deaths = [entry, *(each for each in deaths if each is not entry)]
    return {**headers, bus_headers.DEATHS: deaths}


def is_routed(kind: ExchangeType, pattern: str, key: str) -> bool:
    """Return True if a binding with this pattern matches the routing key."""
    if kind is ExchangeType.FANOUT:
        return True
    if kind is ExchangeType.DIRECT:
        return pattern == key
    return _words_match(pattern.split("."), key.split("."))


def _words_match(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_words_match(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and _words_match(pattern[1:], words[1:])
