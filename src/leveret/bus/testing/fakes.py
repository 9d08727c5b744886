"""What the double for tests is made of: messages, time, routing and dying, as a broker has them."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Final

from leveret.bus import headers as names
from leveret.bus.topology import ExchangeType
from leveret.clock import Clock

START_S: Final = 1_700_000_000.0


class FakeClock(Clock):
    """Stands still until a hub moves it."""

    moves = False

    def __init__(self, start_s: float = START_S) -> None:
        super().__init__()
        self.at_ms = round(start_s * 1000)

    def now_ms(self) -> int:
        return self.at_ms


@dataclass(frozen=True)
class Message:
    """A message of a fake bus."""

    body: bytes
    message_id: str
    type: str
    routing_key: str
    exchange: str
    headers: names.Headers
    timestamp_s: int
    is_redelivered: bool = False
    correlation_id: str = ""


class Inline(Executor):
    """Runs plain handlers where they are called."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        found: Future[Any] = Future()
        try:
            found.set_result(fn(*args, **kwargs))
        except BaseException as fault:
            found.set_exception(fault)
        return found


def died(headers: names.Headers, queue: str, retry_queue: str) -> names.Headers:
    """A reject of the queue and the end of the wait after it, as a broker writes them."""
    deaths = [dict(death) for death in headers.get(names.DEATHS, [])]
    for place, reason in ((queue, names.REJECTED), (retry_queue, "expired")):
        known = [each for each in deaths if (each["queue"], each["reason"]) == (place, reason)]
        entry: dict[str, Any] = {"queue": place, "reason": reason, "count": 0}
        entry = known[0] if known else entry
        entry["count"] += 1
        deaths = [entry, *(each for each in deaths if each is not entry)]
    return {**headers, names.DEATHS: deaths}


def matches(kind: ExchangeType, pattern: str, key: str) -> bool:
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
