"""Rows as messages: ids, and rows that cannot be messages."""

from datetime import UTC, datetime
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from leveret.wire.properties import decode_properties
from pyspark_leveret.errors import OptionError
from pyspark_leveret.messages import DEDUPLICATION_HEADER, Message, MessageBuilder
from pyspark_leveret.options import parse_options

KINDS = {
    "body": "string",
    "priority": "integer",
    "message_id": "string",
    "message_timestamp": "timestamp",
    "routing_key": "string",
    "properties": "binary",
    "key": "long",
}


def composed(rows: list[dict[str, Any]], **options: str) -> list[Message]:
    """The messages of rows that have the same columns."""
    schema = StructType()
    for name in rows[0]:
        schema = schema.add(name, KINDS[name])
    given = {"url": "http://host", "exchange": "ex", "routing_key": "k", **options}
    if "routing_key" in rows[0]:
        del given["routing_key"]
    made = MessageBuilder(parse_options(given), schema).messages(
        pa.RecordBatch.from_pylist(rows), (f"row/{n}" for n in count())
    )
    return list(made)


def test_rows_without_a_key_have_different_ids() -> None:
    keys = [7, None, None]
    found = composed([{"body": "b", "key": key} for key in keys], deduplicationColumn="key")
    headers = [decode_properties(header).headers or {} for _, _, header, _ in found]
    ids = [one[DEDUPLICATION_HEADER].value for one in headers]
    assert ids == ["7", "row/1", "row/2"]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"priority": 256}, "'priority' is from 0 to 255, and not 256"),
        ({"priority": -1}, "'priority' is from 0 to 255, and not -1"),
        ({"message_id": "m" * 256}, "a property of 256 bytes does not fit"),
        ({"message_timestamp": datetime(1960, 1, 1, tzinfo=UTC)}, "from 1970 on"),
        ({"routing_key": "k" * 256}, "the 'routing_key' of a row is longer than 255 bytes"),
        ({"properties": b"no"}, "the column 'properties' of a row is not a content header"),
    ],
)
def test_a_row_that_cannot_be_a_message_says_why(row: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        composed([{"body": "b", **row}])


def test_a_column_of_another_type_is_refused_before_a_row_is_sent() -> None:
    schema = StructType().add("body", "string").add("priority", "string")
    with pytest.raises(OptionError, match="the column 'priority' is of type int, not string"):
        MessageBuilder(parse_options({"url": "http://host", "queue": "q"}), schema)
