"""Copied properties arrive unchanged, where the client library would change them."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from leveret.bus.lossless_properties import NAME_BYTES_MAX, copy_properties


def arrived(properties: Basic.Properties) -> Basic.Properties:
    """Encode properties and decode them again."""
    header = ContentHeader(body_size=0, properties=properties)
    read = ContentHeader()
    read.unmarshal(header.marshal())
    return read.properties


@pytest.mark.parametrize(
    "value",
    [
        0.1,
        1e300,
        b"\xff\xfe not UTF-8",
        bytearray(b"\x00\x01"),
        True,
        None,
        -(2**62),
        "text €",
        Decimal("1.25"),
        datetime(2026, 1, 31, 12, tzinfo=UTC),
        [1, [0.1, b"\xff"], {"deep": 0.1}],
        {"table": {"in": ["a table"]}},
    ],
)
def test_header_arrives_unchanged(value: Any) -> None:
    copy = copy_properties(Basic.Properties(headers={"name": value}, message_id="m1"))
    assert arrived(copy).headers == {"name": value}
    assert arrived(copy).message_id == "m1"


def test_long_name_is_not_cut() -> None:
    name = "n" * NAME_BYTES_MAX
    assert arrived(copy_properties(Basic.Properties(headers={name: 1}))).headers == {name: 1}
    with pytest.raises(ValueError, match="256 bytes"):
        copy_properties(Basic.Properties(headers={name + "n": 1})).marshal()


def test_copy_changes_what_is_named_and_keeps_the_rest() -> None:
    given = Basic.Properties(content_type="a/b", user_id="guest", priority=3, expiration="60000")
    copy = copy_properties(given, user_id=None, headers={"a": 1})
    assert (copy.content_type, copy.priority, copy.expiration) == ("a/b", 3, "60000")
    assert arrived(copy).user_id is None
    assert given.user_id == "guest"
