"""Dead-lettering: the history that a message carries in its headers, and the rule against cycles.

`x-death` is an array of tables, newest death first, one entry for each pair of queue and reason:

    count         l  number of deaths of this pair
    reason        S  rejected, expired, maxlen, delivery_limit
    queue         S  the queue in which the message died
    time          T  seconds, of the first death of this pair
    exchange      S  the exchange to which it had been published then
    routing-keys  A  its routing keys, with CC and without BCC
    original-expiration  S  the expiration that the message had, if any (a dead letter has none)

RabbitMQ 4 ignores an `x-death` that a publisher sends. Here it is kept and continued, because
clients that republish count their retries by it (docs/differences.md).
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.message import Address, Message
from leveret.wire.properties import Properties, decode_properties, encode_header
from leveret.wire.tables import Field, Table

_LONG: Final = ord("l")
_LONGSTR: Final = ord("S")
_TIMESTAMP: Final = ord("T")
_ARRAY: Final = ord("A")
_TABLE: Final = ord("F")
_COUNT_MAX: Final = 1 << 62  # a larger count was made up by a publisher, and starts again


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
        if _text(death, "reason") == "rejected":
            return False
        if _text(death, "queue") == target:
            return True
    return False


def counted_header(message: Message) -> bytes:
    """Return the content header with the counts of returns and failures (RabbitMQ 4.3)."""
    properties = decode_properties(message.header)
    headers: Table = dict(properties.headers) if properties.headers is not None else {}
    headers["x-acquired-count"] = Field(_LONG, int(message.returns))
    if message.failures != 0:
        headers["x-delivery-count"] = Field(_LONG, int(message.failures))
    properties.headers = headers
    return encode_header(properties, len(message.body))
