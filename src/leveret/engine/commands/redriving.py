"""Redriving: what a dead letter becomes when it goes back to where it died.

The target is the queue of the first death (`x-first-death-queue`, or the oldest entry of `x-death`
where that header is missing): a message that died in its work queue and then, by a TTL, in a retry
queue belongs into the work queue. It goes straight into that queue, under the exchange and routing
keys by which it had come there, so that no other queue gets a second copy.

Attempts are reset, that is everything that counts them is taken out of the headers:

    x-death, x-first-death-*, x-last-death-*   the entries of x-death move to `x-redrive-history`
    x-delivery-count, x-acquired-count         counts of a quorum queue
    x-retry-count                              the count of clients that republish

`x-redrive-count` is raised by one. Everything else (message id, traceparent, properties, body)
stays as it is. With `keep_attempts` only `x-redrive-count` changes.
"""

from typing import Final

from leveret.engine.commands.dead_letter import deaths_of
from leveret.engine.message import ADDRESS_NAME_BYTES_MAX, Address, Message
from leveret.wire.properties import Properties, decode_properties, encode_header
from leveret.wire.tables import Field, Table

COUNT: Final = "x-redrive-count"
HISTORY: Final = "x-redrive-history"
HISTORY_MAX: Final = 32  # deaths that are remembered, the newest

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


class Redriven:
    """A dead letter on its way back."""

    def __init__(self, queue: str, address: Address, header: bytes) -> None:
        self.queue = queue  # where it died first; empty where nobody knows
        self.address = address
        self.header = header


def redriven(message: Message, keep_attempts: bool) -> Redriven:
    """What a message becomes, and where it belongs."""
    properties = decode_properties(message.header)
    headers: Table = dict(properties.headers) if properties.headers is not None else {}
    deaths = deaths_of(headers)
    queue = _first_queue(headers, deaths)
    address = _address_before(deaths, queue)
    if not keep_attempts:
        _reset(headers, deaths)
    headers[COUNT] = Field(_LONG, _times(headers) + 1)
    properties.headers = headers
    header = encode_header(properties, len(message.body))
    return Redriven(queue, message.address if address is None else address, header)


def target_of(properties: Properties) -> str:
    """The queue in which a message died first; empty where its headers do not tell."""
    headers = properties.headers
    return _first_queue(headers, deaths_of(headers)) if headers is not None else ""


def _first_queue(headers: Table, deaths: list[Table]) -> str:
    found = _text(headers, _FIRST_QUEUE)
    return _text(deaths[-1], "queue") if not found and deaths else found


def _address_before(deaths: list[Table], queue: str) -> Address | None:
    """The exchange and keys by which a message had come to a queue, at its first death there."""
    for death in reversed(deaths):
        if _text(death, "queue") != queue:
            continue
        keys = _texts(death, "routing-keys")
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
    """Whether a text from a header can be an exchange or a routing key."""
    return len(text.encode("utf-8", "surrogateescape")) <= ADDRESS_NAME_BYTES_MAX


def _reset(headers: Table, deaths: list[Table]) -> None:
    """Forget the attempts; the deaths go to the history."""
    for name in _MARKS:
        headers.pop(name, None)
    for name in _COUNTS:
        headers.pop(name, None)
    headers.pop(_DEATH, None)
    have = headers.get(HISTORY)
    old = have.value if have is not None and isinstance(have.value, list) else []
    history = [Field(_TABLE, death) for death in deaths]
    history.extend([field for field in old if isinstance(field, Field)])
    if history:
        headers[HISTORY] = Field(_ARRAY, history[:HISTORY_MAX])


def _times(headers: Table) -> int:
    """How often the message was redriven so far; a nonsense count begins anew."""
    have = headers.get(COUNT)
    times = have.value if have is not None else 0
    return times if isinstance(times, int) and 0 <= times < 1 << 62 else 0


def _text(table: Table, name: str) -> str:
    found = table.get(name)
    return found.value if found is not None and isinstance(found.value, str) else ""


def _texts(table: Table, name: str) -> list[str]:
    found = table.get(name)
    if found is None or not isinstance(found.value, list):
        return []
    return [item.value for item in found.value if isinstance(item.value, str)]
