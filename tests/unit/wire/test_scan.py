"""Checking encoded field tables: wrong lengths, names and nesting."""

import pytest

from leveret.errors import FieldSyntaxError
from leveret.wire.scan import check_entries, counted_end, find_entry, name_end, value_end


def entry(name: str, value: bytes) -> bytes:
    return bytes([len(name)]) + name.encode() + value


def check(entries: bytes) -> None:
    check_entries(entries, 0, len(entries), 0)


@pytest.mark.parametrize("length", [3, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1])
@pytest.mark.parametrize("tag", list("SxFA"))
def test_length_past_the_end_is_refused(tag: str, length: int) -> None:
    entries = entry("a", tag.encode() + length.to_bytes(4, "big") + b"\x00V")
    with pytest.raises(FieldSyntaxError, match="past the end"):
        check(entries)


def test_inner_length_cannot_reach_past_its_own_table() -> None:
    inner = entry("k", b"S\x00\x00\x00\x05ab")  # the length reaches past the inner table
    entries = entry("a", b"F" + len(inner).to_bytes(4, "big") + inner) + entry("bcd", b"V")
    with pytest.raises(FieldSyntaxError, match="past the end"):
        check(entries)


def test_find_entry_finds_the_tag_of_the_whole_name_only() -> None:
    entries = entry("abc", b"I\x00\x00\x00\x01") + entry("ab", b"t\x01") + entry("b", b"V")
    assert entries[find_entry(entries, 0, len(entries), b"ab")] == ord("t")
    assert entries[find_entry(entries, 0, len(entries), b"b")] == ord("V")
    assert find_entry(entries, 0, len(entries), b"a") == -1
    assert find_entry(entries, 0, len(entries), b"") == -1


def test_find_entry_refuses_malformed_entries_before_the_one_it_seeks() -> None:
    entries = entry("a", b"z")
    with pytest.raises(FieldSyntaxError):
        find_entry(entries, 0, len(entries), b"b")


def test_counted_bytes_end_where_their_length_says() -> None:
    assert counted_end(b"..\x00\x00\x00\x02ab", 2, 8) == 8
    assert counted_end(b"..\x00\x00\x00\x00ab", 2, 8) == 6
    for at, end in ((-1, 8), (5, 8), (2, 9), (8, 8)):
        with pytest.raises(FieldSyntaxError):
            counted_end(b"..\x00\x00\x00\x02ab", at, end)


def test_name_must_be_followed_by_a_tag() -> None:
    assert name_end(b"\x02abV", 0, 4) == 3
    with pytest.raises(FieldSyntaxError, match="name is cut short"):
        name_end(b"\x02ab", 0, 3)


def test_value_end_does_not_look_inside() -> None:
    value = b"F\x00\x00\x00\x03\x01kz"
    assert value_end(value, 0, len(value)) == len(value)
    with pytest.raises(FieldSyntaxError, match="unknown type tag"):
        check(entry("a", value))
    with pytest.raises(FieldSyntaxError, match="missing"):
        value_end(value, len(value), len(value))
