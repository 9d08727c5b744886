"""Messages in the engine: one `Message` for each copy in a queue.

Copies of one publish share the bytes of header and body, and the `Address`. The content header
stays as it was received. Only priority, expiry and persistence are unpacked, because the queue
needs them.

The cyclic garbage collector ignores messages (`acyclic`), so that a million of them cost no
collection time. Therefore a message must not be part of a reference cycle. It names its queue by
slot number. Its field `holder` could make a cycle, and is set only while the message is in flight:
the code that settles the message clears it.
"""

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64, mypyc_attr

from leveret.errors import CorruptionError
from leveret.journal.records import NOWHERE

# Bits of `Message.flags`
PERSISTENT: Final = 1  # survives a restart if its queue does
REDELIVERED: Final = 2  # was delivered before
COUNTED: Final = 4  # shows its consumers how often it came back
LOGGED: Final = 8  # is in the log; when it is settled, the log must be told

NO_EXPIRY: Final = 0
ADDRESS_NAME_BYTES_MAX: Final = 255


class Address:
    """Exchange, routing key, and the further keys from CC and BCC of a publish."""

    def __init__(self, exchange: str, routing_key: str) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.keys: list[str] = [routing_key]  # all routing keys, with those from CC and BCC
        self.shown: i64 = 1  # how many keys consumers may see; keys from BCC are at the end
        self.wire: bytes = short_string(exchange) + short_string(routing_key)
        self._record: bytes = b""

    def record(self) -> bytes:
        """Return the address with all its keys in the format of the log."""
        if not self._record:
            more = b"".join([_long_string(key) for key in self.keys[1:]])
            count = len(self.keys).to_bytes(4, "big") + int(self.shown).to_bytes(4, "big")
            self._record = count + self.wire + more
        return self._record


def short_string(text: str) -> bytes:
    """Encode a text as an AMQP short string: length octet and UTF-8."""
    data = text.encode("utf-8", "surrogateescape")
    assert len(data) <= ADDRESS_NAME_BYTES_MAX
    return bytes((len(data),)) + data


def _long_string(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return len(data).to_bytes(4, "big") + data


NO_ADDRESS: Final = Address("", "")


def read_address(data: bytes, at: i64) -> tuple[Address, i64]:
    """Decode the output of `Address.record` at `at`; return the address and where it ends.

    Raise CorruptionError if the bytes are cut short.
    """
    require_bytes(data, at, 8)
    left = (i64(read_i32_be(data, at)) & 0xFFFFFFFF) - 1
    shown = i64(read_i32_be(data, at + 4)) & 0xFFFFFFFF
    exchange, at = _read_text(data, at + 8, 1)
    routing_key, at = _read_text(data, at, 1)
    address = Address(exchange, routing_key)
    address.shown = shown
    while left > 0:
        key, at = _read_text(data, at, 4)
        address.keys.append(key)
        left -= 1
    return address, at


def _read_text(data: bytes, at: i64, width: i64) -> tuple[str, i64]:
    """Return the text after a length of one or four octets, and where it ends."""
    require_bytes(data, at, width)
    size: i64 = data[at]
    if width == 4:
        size = i64(read_i32_be(data, at)) & 0xFFFFFFFF
    at += width
    require_bytes(data, at, size)
    return data[at : at + size].decode("utf-8", "surrogateescape"), at + size


def require_bytes(data: bytes, at: i64, size: i64) -> None:
    """Raise CorruptionError unless `size` bytes follow at `at`."""
    if size > len(data) - at:
        raise CorruptionError("a message record is cut short")


class Holder:
    """Base of the holders of messages in flight: a consumer, or all `get`s of a session."""

    def __init__(self) -> None:
        self.unacked: i64 = 0  # messages in flight
        self.unacked_bytes: i64 = 0  # body bytes of these messages
        self.timeout_ms: i64 = 0  # how long it may hold a message; 0 = without limit
        self.suspended: bool = False  # not in the round robin until it can take messages again


@mypyc_attr(acyclic=True)
class Message:
    """One copy of a message in one queue."""

    def __init__(
        self,
        address: Address,
        header: bytes,
        body: bytes,
        seq: i64,
        expires_ms: i64,
        priority: i64,
        flags: i64,
        queue: i64,
    ) -> None:
        self.address = address
        self.header = header  # content header payload as received
        self.body = body
        self.seq = seq  # identity inside its queue, never reused
        self.rank = seq  # order inside its priority; a scheduled message gets a new rank when due
        self.expires_ms = expires_ms  # NO_EXPIRY or the time at which it expires
        self.priority = priority
        self.flags = flags
        self.queue = queue  # slot of its queue in the broker
        self.position: i64 = NOWHERE  # position of its record in the log
        self.holder: Holder | None = None  # set while in flight
        self.tag: i64 = 0  # delivery tag while in flight
        self.taken_ms: i64 = 0  # when it was delivered, while in flight
        self.returns: i64 = 0  # times it came back to the queue, for any reason
        self.failures: i64 = 0  # times it came back after a failure; the delivery limit counts them
