"""Dead-lettering: the history that a message carries in its headers, and the rule against cycles.

`x-death` is an array of tables, newest death first, one entry for each pair of queue and reason:

    count         l  number of deaths of this pair
    reason        S  rejected, expired, maxlen, delivery_limit
    queue         S  the queue in which the message died
    time          T  time of the first death of this pair, in seconds
    exchange      S  the exchange to which it had been published then
    routing-keys  A  its routing keys, with CC and without BCC
    original-expiration  S  the expiration that the message had, if any (a dead letter has none)
    copies        l  copies of the publish after this death, if it made several (Leveret's own)

A chain is a row of deaths without a rejection: no consumer took part in it. Queues whose messages
expire at once, bound to their own dead-letter exchange, would make N! copies of one message: each
copy passes the N queues in another order, which is not a cycle. So a chain has two limits: its
length, and the copies that it makes of one publish. RabbitMQ has neither.

RabbitMQ 4 ignores an `x-death` that a publisher sends. Here it is kept and continued, because
clients that republish count their retries by it (docs/differences.md).
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.message import Address, Message
from leveret.engine.turns.turn import REJECTED
from leveret.wire.properties import Properties, decode_properties, encode_header
from leveret.wire.tables import Field, Table

_LONG: Final = ord("l")
_LONGSTR: Final = ord("S")
_TIMESTAMP: Final = ord("T")
_ARRAY: Final = ord("A")
_TABLE: Final = ord("F")
_COUNT_MAX: Final = 1 << 62  # a larger count was made up by a publisher, and starts again
_COPIES: Final = "copies"

CHAIN_MAX: Final = 128  # queues in which a message may die one after the other; delays use about 30
SPREAD_MAX: Final = 10_000  # copies that a chain may make of one publish
# Queues that the first death of a chain may always reach, however many queues the publish reached.
SPREAD_FREE: Final = 16


def deaths_of(headers: Table | None) -> list[Table]:
    """Return the entries of `x-death`, newest first. Malformed entries are left out."""
    if headers is None:
        return []
    found = headers.get("x-death")
    if found is None or not isinstance(found.value, list):
        return []
    return [entry.value for entry in found.value if isinstance(entry.value, dict)]


def record_death(
    properties: Properties, queue: str, reason: str, address: Address, now_ms: i64
) -> list[Table]:
    """Write one more death into the headers. Return all deaths, newest first."""
    headers: Table = dict(properties.headers) if properties.headers is not None else {}
    deaths = deaths_of(headers)
    entry = _take_entry(deaths, queue, reason)
    if entry is None:
        entry = _new_entry(queue, reason, address, now_ms)
        if properties.expiration is not None:
            entry["original-expiration"] = Field(_LONGSTR, properties.expiration)
    deaths.insert(0, entry)
    headers["x-death"] = Field(_ARRAY, [Field(_TABLE, death) for death in deaths])
    if "x-first-death-reason" not in headers:
        _mark(headers, "x-first-death-", queue, reason, address.exchange)
    _mark(headers, "x-last-death-", queue, reason, address.exchange)
    headers.pop("BCC", None)
    properties.headers = headers
    properties.expiration = None
    return deaths


def _take_entry(deaths: list[Table], queue: str, reason: str) -> Table | None:
    """Remove and return the entry of this pair, with its count raised by one."""
    for index, death in enumerate(deaths):
        if _text(death, "queue") == queue and _text(death, "reason") == reason:
            entry = dict(deaths.pop(index))
            count = entry.get("count")
            times = count.value if count is not None else 0
            if not isinstance(times, int) or not 0 <= times < _COUNT_MAX:
                times = 0
            entry["count"] = Field(_LONG, times + 1)
            entry.pop(_COPIES, None)
            return entry
    return None


def _new_entry(queue: str, reason: str, address: Address, now_ms: i64) -> Table:
    keys = address.keys[: address.shown]
    return {
        "count": Field(_LONG, 1),
        "reason": Field(_LONGSTR, reason),
        "queue": Field(_LONGSTR, queue),
        "time": Field(_TIMESTAMP, now_ms // 1000),
        "exchange": Field(_LONGSTR, address.exchange),
        "routing-keys": Field(_ARRAY, [Field(_LONGSTR, key) for key in keys]),
    }


def _mark(headers: Table, prefix: str, queue: str, reason: str, exchange: str) -> None:
    headers[prefix + "queue"] = Field(_LONGSTR, queue)
    headers[prefix + "reason"] = Field(_LONGSTR, reason)
    headers[prefix + "exchange"] = Field(_LONGSTR, exchange)


def _text(table: Table, name: str) -> str:
    found = table.get(name)
    return found.value if found is not None and isinstance(found.value, str) else ""


def is_cycle(deaths: list[Table], target: str) -> bool:
    """Return True if a message would come back, without a rejection, to a queue it died in.

    RabbitMQ: the deaths from the newest back to the last one in `target` decide. If one of them is
    a rejection, a consumer took part, and the cycle is intended (reject, wait, retry).
    """
    for death in deaths:
        if _text(death, "reason") == REJECTED:
            return False
        if _text(death, "queue") == target:
            return True
    return False


def is_long_chain(deaths: list[Table]) -> bool:
    """Return True if a message died too often without a rejection. `deaths` includes the last."""
    return len(deaths) > CHAIN_MAX and len(_chain(deaths)) > CHAIN_MAX


def _chain(deaths: list[Table]) -> list[Table]:
    """Return the deaths since the last rejection, newest first."""
    for at, death in enumerate(deaths):
        if _text(death, "reason") == REJECTED:
            return deaths[:at]
    return deaths


def spread_of(deaths: list[Table]) -> int:
    """Return the copies that a chain has made of the publish; 0 if no death made more than one."""
    most = 0
    for death in _chain(deaths):
        found = death.get(_COPIES)
        # Values over the limit are cut to it: a publisher may have sent any number.
        if found is not None and isinstance(found.value, int):
            most = max(most, min(found.value, SPREAD_MAX))
    return most


def may_spread(before: int, arrivals: int, queues: int) -> bool:
    """Return True if a dead letter may go to `queues` queues.

    `before` is the result of `spread_of`. `arrivals` is the number of queues that the message
    reached when it came to the queue in which it died.
    """
    if before > 1:
        return before * queues <= SPREAD_MAX
    return arrivals <= 1 or queues <= SPREAD_FREE or arrivals * queues <= SPREAD_MAX


def header_with_copies(header: bytes, body_bytes: int, copies: int) -> bytes:
    """Return the header of a dead letter with the copies of its newest death."""
    properties = decode_properties(header)
    deaths = deaths_of(properties.headers)
    assert properties.headers is not None and deaths
    deaths[0][_COPIES] = Field(_LONG, min(copies, SPREAD_MAX))
    properties.headers["x-death"] = Field(_ARRAY, [Field(_TABLE, death) for death in deaths])
    return encode_header(properties, body_bytes)


def counted_header(message: Message) -> bytes:
    """Return the content header with the counts of returns and failures (RabbitMQ 4.3)."""
    properties = decode_properties(message.header)
    headers: Table = dict(properties.headers) if properties.headers is not None else {}
    headers["x-acquired-count"] = Field(_LONG, int(message.returns))
    if message.failures != 0:
        headers["x-delivery-count"] = Field(_LONG, int(message.failures))
    properties.headers = headers
    return encode_header(properties, len(message.body))
