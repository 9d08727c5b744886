"""Turn rows into messages: destination, content header and body.

The columns are those of the source. The column `properties` is a whole content header as received;
it takes precedence over the columns of single properties. A deduplication id becomes a header: the
broker drops a message with a known id if queue or exchange were declared with deduplication.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from pyspark.sql.types import StructType

from leveret.errors import ProtocolError
from leveret.wire.properties import Properties, decode_properties, encode_header
from leveret.wire.tables import Table, table_of
from pyspark_leveret.errors import OptionError
from pyspark_leveret.options import Options
from pyspark_leveret.schema import TYPES

DEDUPLICATION_HEADER: Final = "x-deduplication-id"
PERSISTENT: Final = 2

_TEXTS: Final = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "type",
    "user_id",
    "app_id",
)
_NUMBERS: Final = ("delivery_mode", "priority")
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")  # types of columns in _NUMBERS
OCTET_MAX: Final = 255
NAME_BYTES_MAX: Final = 255  # of the name of an exchange, or of a routing key
# Columns that the broker sets, or that are part of another column.
NOT_WRITTEN: Final = ("stream", "offset", "timestamp", "broker_id", "x_death")

Message = tuple[str, str, bytes, bytes]  # exchange, routing key, content header, body


class MessageBuilder:
    """Makes messages from rows."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._names = [field.name for field in schema.fields]
        _check(options, schema)
        self._exchange, self._key = _destination(options)

    def messages(self, batch: Any, ids: Iterator[str]) -> Iterator[Message]:
        """Return the messages of a record batch; `ids` are for rows without an id of their own."""
        columns = {name: batch.column(name).to_pylist() for name in self._used()}
        for row in range(batch.num_rows):
            values = {name: column[row] for name, column in columns.items()}
            yield self._message(values, next(ids))

    def _used(self) -> list[str]:
        own = self._options.deduplication_column
        return [n for n in self._names if n not in NOT_WRITTEN or n == own]

    def _message(self, row: dict[str, Any], number: str) -> Message:
        body = row["body"]
        body = body.encode() if isinstance(body, str) else body or b""
        header = self._header(row, len(body), self._id(row, number))
        return self._place(self._exchange, row, "exchange"), self._route(row), header, body

    def _place(self, given: str | None, row: dict[str, Any], name: str) -> str:
        found: str | None = given if given is not None else row.get(name)
        if found is None:
            text = f"a row has no '{name}', and no option gives one"
            raise OptionError(text)
        if len(found.encode()) > NAME_BYTES_MAX:  # AMQP limits names to 255 bytes
            raise OptionError(f"the '{name}' of a row is longer than {NAME_BYTES_MAX} bytes")
        return found

    def _route(self, row: dict[str, Any]) -> str:
        return self._place(self._key, row, "routing_key")

    def _id(self, row: dict[str, Any], number: str) -> str | None:
        if not self._options.deduplicates:
            return None
        column = self._options.deduplication_column
        own = None if column is None else row[column]
        return number if own is None else str(own)  # rows without a key must not share one id

    def _header(self, row: dict[str, Any], body_bytes: int, number: str | None) -> bytes:
        given = row.get("properties")
        properties = _decoded(given) if given is not None else _properties(row)
        if number is not None:
            headers: Table = dict(properties.headers or {})
            headers.update(table_of({DEDUPLICATION_HEADER: number}))
            properties.headers = headers
        try:
            return encode_header(properties, body_bytes)
        except ValueError as fault:
            raise OptionError(f"a row cannot be a message: {fault}") from fault


def _decoded(given: bytes) -> Properties:
    try:
        return decode_properties(given)
    except ProtocolError as fault:
        text = "the column 'properties' of a row is not a content header"
        raise OptionError(f"{text}: {fault}") from fault


def _properties(row: dict[str, Any]) -> Properties:
    found = Properties()
    found.delivery_mode = PERSISTENT
    for name in _TEXTS:
        if row.get(name) is not None:
            setattr(found, name, row[name])
    for name in _NUMBERS:
        number = row.get(name)
        if number is not None:
            if not 0 <= number <= OCTET_MAX:
                raise OptionError(f"'{name}' is from 0 to {OCTET_MAX}, and not {number}")
            setattr(found, name, number)
    headers = row.get("headers")
    if headers:
        found.headers = table_of(dict(headers))
    time = row.get("message_timestamp")
    if isinstance(time, datetime):
        found.timestamp = int(time.timestamp())
        if found.timestamp < 0:
            raise OptionError(f"'message_timestamp' is from 1970 on, and not {time}")
    return found


def _destination(options: Options) -> tuple[str | None, str | None]:
    """Return exchange and key for all rows; None if each row has its own."""
    queue = options.queue if options.queue is not None else options.stream
    if queue is not None:
        return "", queue
    return options.exchange, options.routing_key


def _check(options: Options, schema: StructType) -> None:
    given = {field.name: field.dataType.simpleString() for field in schema.fields}
    if given.get("body") not in ("binary", "string"):
        raise OptionError("a table to write needs a column 'body' of type binary or string")
    column = options.deduplication_column
    for name, kind in given.items():
        if name == column:
            continue
        if name not in TYPES:
            raise OptionError(f"no column '{name}' can be written: there are {', '.join(TYPES)}")
        fits = kind in _WHOLE if name in _NUMBERS else kind == TYPES[name]
        if name != "body" and not fits:
            raise OptionError(f"the column '{name}' is of type {TYPES[name]}, not {kind}")
    if column is not None and column not in given:
        raise OptionError(f"'deduplicationColumn' is '{column}', and there is no such column")
    if _destination(options)[0] is None and "exchange" not in given:
        raise OptionError("give one of 'queue', 'stream', 'exchange', or a column 'exchange'")
    if _destination(options)[1] is None and "routing_key" not in given:
        raise OptionError("give the option 'routing_key', or a column of that name")
