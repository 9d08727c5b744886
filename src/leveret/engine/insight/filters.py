"""Filters: the conditions of a search for messages. Made once for each request.

All conditions of a filter must hold. Most messages of a long queue do not match, so rejecting must
be cheap: the bytes that every match contains (`needle`) are searched for in the bytes of a message,
in the log even before it becomes an object. Only messages with the needle are decoded.

Age is the time since a message came to its queue, if that is known (`ArrivalTimes`), else the time
since its `timestamp` property. A message of unknown age is neither old nor young.

There are no patterns: values are compared, and text is searched for literally.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from leveret.engine.message import Message
from leveret.errors import PreconditionFailedError
from leveret.wire.properties import SHORTSTR_BYTES_MAX, Properties, decode_properties
from leveret.wire.tables import Field, Table, plain_value

READY: Final = "ready"
SCHEDULED: Final = "scheduled"
UNACKED: Final = "unacked"
STUCK: Final = "stuck"  # dead letters that no queue takes
STATES: Final = (READY, SCHEDULED, UNACKED, STUCK)

TEXT_PROPERTIES: Final = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
NUMBER_PROPERTIES: Final = ("delivery_mode", "priority", "timestamp")

CONDITIONS_MAX: Final = 32
TEXT_BYTES_MAX: Final = 65536

UNKNOWN_AGE: Final = -1
_NO_LIMIT: Final = -1

# Value of bytes as a needle. The bytes of a name are usually in every message.
_NAME: Final = 1
_KEY: Final = 2
_VALUE: Final = 3

# A value to compare with: text, number, bool or None.
Scalar = str | int | float | bool | None


class Filter:
    """Conditions that a message must meet. An empty filter matches all messages."""

    def __init__(self) -> None:
        self.states: list[str] = list(STATES)
        self.needle: bytes = b""  # every match contains these bytes in the log
        self._needle_worth: i64 = 0
        self._header_needle: bytes = b""  # every match contains these bytes in its header
        self._properties: list[tuple[str, str | int]] = []
        self._headers: list[tuple[str, Scalar]] = []
        self._routing_key: str | None = None
        self._seq: i64 = _NO_LIMIT
        self._text: bytes = b""
        self._is_json_match: Callable[[bytes], bool] | None = None
        self._older_ms: i64 = _NO_LIMIT
        self._newer_ms: i64 = _NO_LIMIT

    def require_states(self, states: list[str]) -> None:
        """Match only messages in one of these states."""
        for state in states:
            if state not in STATES:
                raise PreconditionFailedError(f"no state '{state}'; there are {', '.join(STATES)}")
        self.states = [state for state in STATES if state in states]

    def require_property(self, name: str, value: object) -> None:
        """Match only messages whose property is equal to a value."""
        if name in TEXT_PROPERTIES:
            if not isinstance(value, str):
                raise PreconditionFailedError(f"the property '{name}' is compared with text")
            self._note_in_header(_octets(value), 1, _VALUE)
            self._properties.append((name, value))
        elif name in NUMBER_PROPERTIES:
            if not isinstance(value, int) or isinstance(value, bool):
                raise PreconditionFailedError(
                    f"the property '{name}' is compared with a whole number"
                )
            self._properties.append((name, value))
        else:
            raise PreconditionFailedError(f"no property '{name}'")
        self._require_few()

    def require_header(self, name: str, value: object) -> None:
        """Match only messages whose header is equal to a value. Dots lead into tables and lists."""
        if not (value is None or isinstance(value, (str, int, float))):
            raise PreconditionFailedError(
                f"the header '{name}' can be compared with a single value"
            )
        if not name:
            raise PreconditionFailedError("a header has a name")
        if isinstance(value, str):
            self._note_in_header(_octets(value), 4, _VALUE)
        if "." not in name:
            self._note_in_header(_octets(name), 1, _NAME)
        self._headers.append((name, value))
        self._require_few()

    def require_routing_key(self, key: str) -> None:
        data = _octets(key)
        if len(data) > SHORTSTR_BYTES_MAX:
            raise PreconditionFailedError(f"a routing key has at most {SHORTSTR_BYTES_MAX} bytes")
        self._note_needle(len(data).to_bytes(1, "big") + data, _KEY)
        self._routing_key = key

    def require_text(self, text: str) -> None:
        """Match only messages whose body contains this text."""
        data = _octets(text)
        if not 0 < len(data) <= TEXT_BYTES_MAX:
            raise PreconditionFailedError(f"the text has from 1 to {TEXT_BYTES_MAX} bytes")
        self._note_needle(data, _VALUE)
        self._text = data

    def require_seq(self, seq: i64) -> None:
        """Match only the message with this sequence number."""
        self._seq = seq

    def require_json(self, is_match: Callable[[bytes], bool], needle: bytes = b"") -> None:
        """Match only bodies for which `is_match` is true. They must contain the needle."""
        self._note_needle(needle, _VALUE)
        self._is_json_match = is_match

    def require_older(self, age_ms: i64) -> None:
        """Match only messages older than this."""
        self._older_ms = age_ms

    def require_newer(self, age_ms: i64) -> None:
        """Match only messages that are at most this old."""
        self._newer_ms = age_ms

    def _require_few(self) -> None:
        if len(self._properties) + len(self._headers) > CONDITIONS_MAX:
            raise PreconditionFailedError(f"a filter has at most {CONDITIONS_MAX} conditions")

    def _note_needle(self, data: bytes, worth: i64) -> None:
        """Keep the bytes that are probably the rarest: those of values, and long ones."""
        if (worth, len(data)) > (self._needle_worth, len(self.needle)):
            self.needle = data
            self._needle_worth = worth

    def _note_in_header(self, data: bytes, count_bytes: int, worth: i64) -> None:
        """Note a text of the header. In the header it follows its length in `count_bytes` bytes."""
        if count_bytes > 1 or len(data) <= SHORTSTR_BYTES_MAX:
            data = len(data).to_bytes(count_bytes, "big") + data
        self._note_needle(data, worth)
        if len(data) > len(self._header_needle):
            self._header_needle = data

    def matches(self, message: Message, arrived_ms: i64, now_ms: i64) -> bool:
        """Return True if a message meets all conditions. `arrived_ms` is 0 if unknown."""
        if self._seq >= 0 and message.seq != self._seq:
            return False
        key = self._routing_key
        if key is not None and message.address.routing_key != key:
            return False
        if self._text and self._text not in message.body:
            return False
        if (self._properties or self._headers) and not self._matches_header(message.header):
            return False
        if (self._older_ms >= 0 or self._newer_ms >= 0) and not self._has_age(
            message, arrived_ms, now_ms
        ):
            return False
        is_json_match = self._is_json_match
        return is_json_match is None or is_json_match(message.body)

    def excludes(self, first_ms: i64, last_ms: i64, now_ms: i64) -> bool:
        """Return True if no message that arrived between two known times can match."""
        if self._older_ms >= 0 and now_ms - first_ms <= self._older_ms:
            return True
        return self._newer_ms >= 0 and now_ms - last_ms > self._newer_ms

    def _matches_header(self, header: bytes) -> bool:
        if self._header_needle not in header:
            return False
        properties = decode_properties(header)
        for name, value in self._properties:
            if property_of(properties, name) != value:
                return False
        for name, wanted in self._headers:
            field = find_header(properties.headers, name)
            if field is None or not _is_equal(plain_value(field), wanted):
                return False
        return True

    def _has_age(self, message: Message, arrived_ms: i64, now_ms: i64) -> bool:
        age_ms = age_of(message, arrived_ms, now_ms)
        if age_ms == UNKNOWN_AGE:
            return False
        if self._older_ms >= 0 and age_ms <= self._older_ms:
            return False
        return self._newer_ms < 0 or age_ms <= self._newer_ms


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def age_of(message: Message, arrived_ms: i64, now_ms: i64) -> i64:
    """Return the age of a message, or UNKNOWN_AGE."""
    if arrived_ms == 0:
        seconds = decode_properties(message.header).timestamp
        if seconds is None or seconds > now_ms // 1000 + 1:  # the clock of the publisher differs
            return UNKNOWN_AGE
        arrived_ms = seconds * 1000
    return max(now_ms - arrived_ms, 0)


def property_of(properties: Properties, name: str) -> str | int | None:
    """Return a property by its name, or None."""
    if name in NUMBER_PROPERTIES:
        return _number(properties, name)
    if name == "message_id":
        return properties.message_id
    if name == "correlation_id":
        return properties.correlation_id
    if name == "content_type":
        return properties.content_type
    if name == "content_encoding":
        return properties.content_encoding
    if name == "reply_to":
        return properties.reply_to
    if name == "expiration":
        return properties.expiration
    if name == "type":
        return properties.type
    if name == "user_id":
        return properties.user_id
    if name == "app_id":
        return properties.app_id
    assert name == "cluster_id"
    return properties.cluster_id


def _number(properties: Properties, name: str) -> int | None:
    if name == "priority":
        return properties.priority
    return properties.delivery_mode if name == "delivery_mode" else properties.timestamp


def find_header(headers: Table | None, name: str) -> Field | None:
    """Return a header by its name, or by a dotted path through tables and lists (numbers)."""
    if headers is None:
        return None
    found = headers.get(name)
    if found is not None or "." not in name:
        return found
    parts = name.split(".")
    found = headers.get(parts[0])
    for part in parts[1:]:
        if found is None:
            return None
        found = _inside(found.value, part)
    return found


def _inside(value: object, part: str) -> Field | None:
    if isinstance(value, dict):
        found = value.get(part)
        return found if isinstance(found, Field) else None
    if isinstance(value, list) and part.isdecimal() and len(part) <= 6:
        index = int(part)
        item = value[index] if index < len(value) else None
        return item if isinstance(item, Field) else None
    return None


def _is_equal(value: object, wanted: Scalar) -> bool:
    """Compare as JSON values: true is not 1, but 1 is 1.0."""
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    return value == wanted
