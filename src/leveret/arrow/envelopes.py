r"""Converts envelopes to Arrow arrays, one row for each distinct envelope of a batch.

Text that is not UTF-8 shows its bytes as `\\xNN`. The column `properties` has the original bytes.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from leveret.arrow.schema import DEATHS, HEADERS, TIME, TYPES
from leveret.engine.commands.dead_letter import deaths_of
from leveret.engine.streams.envelope_columns import (
    Column,
    EnvelopeColumns,
    HeadersColumn,
    NumberColumn,
    TextColumn,
    field_text,
    text_of_bytes,
)
from leveret.wire.scan import TIMESTAMP
from leveret.wire.tables import INTEGERS, Table

_MICROS: Final = 1_000_000
# The most seconds that a time in microseconds can hold.
_SECONDS_MAX: Final = (1 << 63) // _MICROS - 1


def envelope_array(columns: EnvelopeColumns, name: str) -> pa.Array:
    """Return a column that depends on the envelope only."""
    if name == "headers":
        return headers_array(columns.headers)
    if name == "x_death":
        return deaths_array(columns)
    if name == "properties":
        return _bytes_array(columns.properties, pa.binary())
    if name in ("delivery_mode", "priority"):
        return number_array(getattr(columns, name)).cast(TYPES[name])
    if name == "message_timestamp":
        return time_array(number_array(columns.timestamp))
    if name == "broker_id":
        return number_array(columns.broker_id)
    return text_array(getattr(columns, name))


def _valid(column: Column) -> pa.Buffer | None:
    return pa.py_buffer(column.valid()) if column.null_count else None


def _bytes_array(column: TextColumn, kind: pa.DataType) -> pa.Array:
    if column.null_count == column.count:
        return pa.nulls(column.count, kind)
    buffers = [_valid(column), pa.py_buffer(column.ends()), pa.py_buffer(column.values())]
    return pa.Array.from_buffers(kind, column.count, buffers, column.null_count)


def text_array(column: TextColumn) -> pa.Array:
    array = _bytes_array(column, pa.string())
    if not column.values().isascii():
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            values = _bytes_array(column, pa.binary()).to_pylist()
            array = pa.array([None if v is None else text_of_bytes(v) for v in values], pa.string())
    return array


def number_array(column: NumberColumn) -> pa.Array:
    if column.null_count == column.count:
        return pa.nulls(column.count, pa.int64())
    buffers = [_valid(column), pa.py_buffer(column.values())]
    return pa.Array.from_buffers(pa.int64(), column.count, buffers, column.null_count)


def time_array(seconds: pa.Array) -> pa.Array:
    """Convert seconds to timestamps; null if the value is out of range."""
    if seconds.null_count == len(seconds):
        return pa.nulls(len(seconds), TIME)
    is_known = pc.and_(pc.greater_equal(seconds, 0), pc.less_equal(seconds, _SECONDS_MAX))
    known = pc.if_else(is_known, seconds, pa.scalar(None, pa.int64()))
    return pc.multiply(known, _MICROS).cast(TIME)


def headers_array(column: HeadersColumn) -> pa.Array:
    if column.null_count == column.count:
        return pa.nulls(column.count, HEADERS)
    names, values = text_array(column.names), text_array(column.values)
    entries = pa.StructArray.from_arrays(
        [names, values], fields=[HEADERS.key_field, HEADERS.item_field]
    )
    buffers = [_valid(column), pa.py_buffer(column.ends())]
    return pa.Array.from_buffers(
        HEADERS, column.count, buffers, column.null_count, children=[entries]
    )


def deaths_array(columns: EnvelopeColumns) -> pa.Array:
    count = int(columns.count)
    if not columns.deaths:
        return pa.nulls(count, DEATHS)
    rows: list[list[dict[str, Any]] | None] = [None] * count
    for row, field in columns.deaths.items():
        rows[row] = [_death(death) for death in deaths_of({"x-death": field})]
    return pa.array(rows, DEATHS)


def _death(table: Table) -> dict[str, Any]:
    return {
        "queue": _text(table, "queue"),
        "reason": _text(table, "reason"),
        "count": _number(table, "count"),
        "exchange": _text(table, "exchange"),
        "routing_keys": _texts(table, "routing-keys"),
        "time": _time(table),
        "original_expiration": _text(table, "original-expiration"),
    }


def _text(table: Table, name: str) -> str | None:
    found = table.get(name)
    return None if found is None or found.value is None else field_text(found)


def _texts(table: Table, name: str) -> list[str] | None:
    found = table.get(name)
    if found is None or not isinstance(found.value, list):
        return None
    return [field_text(item) for item in found.value]


def _number(table: Table, name: str) -> int | None:
    found = table.get(name)
    if found is None or found.kind not in INTEGERS:
        return None
    assert isinstance(found.value, int)
    return found.value


def _time(table: Table) -> int | None:
    """Return the time of a death in microseconds."""
    found = table.get("time")
    if found is None or found.kind != TIMESTAMP or not isinstance(found.value, int):
        return None
    return found.value * _MICROS if found.value <= _SECONDS_MAX else None
