"""Redriving: the new form of a dead letter that goes back to the queue in which it died.

The target is the queue of the first death (`x-first-death-queue`, or the oldest entry of `x-death`
if that header is missing). A message that died in its work queue and then, by a TTL, in a retry
queue belongs into the work queue. It goes straight into that queue, under the exchange and routing
keys by which it had come there, so that no other queue gets a second copy.

Attempts are reset: everything that counts them is removed from the headers.

    x-death, x-first-death-*, x-last-death-*   the entries of x-death move to `x-redrive-history`
    x-delivery-count, x-acquired-count         counts of a quorum queue
    x-retry-count                              the count of clients that republish

`x-redrive-count` is raised by one. Everything else (message id, traceparent, properties, body)
stays. With `keep_attempts` only `x-redrive-count` changes.
"""

from typing import Final

from leveret.engine.commands.dead_letter import deaths_of
from leveret.engine.message import ADDRESS_NAME_BYTES_MAX, Address, Message
from leveret.wire.properties import decode_properties, encode_header
from leveret.wire.tables import Field, Table

COUNT_HEADER: Final = "x-redrive-count"
HISTORY_HEADER: Final = "x-redrive-history"
HISTORY_MAX: Final = 32  # newest deaths that are kept

_FIRST_QUEUE: Final = "x-first-death-queue"
_DEATH: Final = "x-death"
_MARKS: Final = tuple(
    f"x-{which}-death-{what}"
    for which in ("first", "last")
    for what in ("queue", "reason", "exchange")
)
_COUNTS: Final = ("x-delivery-count", "x-acquired-count", "x-retry-count")
_LONG: Final = ord("l")
_ARRAY: Final = ord("A")
_TABLE: Final = ord("F")


class RedrivenMessage:
    """The queue, address and header of a dead letter that goes back."""

    def __init__(self, queue: str, address: Address, header: bytes) -> None:
        self.queue = queue  # in which it died first; empty: unknown
        self.address = address
        self.header = header


def prepare_redrive(message: Message, keep_attempts: bool) -> RedrivenMessage:
    """Return the new form of a dead letter, and the queue in which it died first."""
    properties = decode_properties(message.header)
    headers: Table = dict(properties.headers) if properties.headers is not None else {}
    deaths = deaths_of(headers)
    queue = _first_queue(headers, deaths)
    address = _address_before(deaths, queue)
    if not keep_attempts:
        _reset(headers, deaths)
    headers[COUNT_HEADER] = Field(_LONG, _times(headers) + 1)
    properties.headers = headers
    header = encode_header(properties, len(message.body))
    return RedrivenMessage(queue, message.address if address is None else address, header)


def _first_queue(headers: Table, deaths: list[Table]) -> str:
    found = _text(headers, _FIRST_QUEUE)
    return _text(deaths[-1], "queue") if not found and deaths else found


def _address_before(deaths: list[Table], queue: str) -> Address | None:
    """Return the exchange and keys by which a message came to a queue before its first death."""
    for death in reversed(deaths):
        if _text(death, "queue") != queue:
            continue
        keys = _text_list(death, "routing-keys")
        exchange = death.get("exchange")
        if not keys or exchange is None or not isinstance(exchange.value, str):
            continue
        if _is_name(exchange.value) and _is_name(keys[0]):
            address = Address(exchange.value, keys[0])
            address.keys = keys
            address.shown = len(keys)
            return address
    return None


def _is_name(text: str) -> bool:
    """Return True if a text from a header can be an exchange or a routing key."""
    return len(text.encode("utf-8", "surrogateescape")) <= ADDRESS_NAME_BYTES_MAX


def _reset(headers: Table, deaths: list[Table]) -> None:
    """Remove all counts of attempts, and move the deaths to the history."""
    for name in _MARKS:
        headers.pop(name, None)
    for name in _COUNTS:
        headers.pop(name, None)
    headers.pop(_DEATH, None)
    have = headers.get(HISTORY_HEADER)
    old = have.value if have is not None and isinstance(have.value, list) else []
    history = [Field(_TABLE, death) for death in deaths]
    history.extend([field for field in old if isinstance(field, Field)])
    if history:
        headers[HISTORY_HEADER] = Field(_ARRAY, history[:HISTORY_MAX])


def _times(headers: Table) -> int:
    """Return how often the message was redriven. An invalid count starts again at 0."""
    have = headers.get(COUNT_HEADER)
    times = have.value if have is not None else 0
    return times if isinstance(times, int) and 0 <= times < 1 << 62 else 0


def _text(table: Table, name: str) -> str:
    found = table.get(name)
    return found.value if found is not None and isinstance(found.value, str) else ""


def _text_list(table: Table, name: str) -> list[str]:
    found = table.get(name)
    if found is None or not isinstance(found.value, list):
        return []
    return [item.value for item in found.value if isinstance(item.value, str)]
