"""Field tables: RabbitMQ's dialect byte by byte, round trips, and malformed bytes.

The expected bytes were recorded from RabbitMQ: each value was sent in a header, and RabbitMQ wrote
it again when it dead-lettered the message.
"""

import math
import random
import struct
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import FieldSyntaxError
from leveret.wire import scan
from leveret.wire.tables import (
    NESTING_MAX,
    Field,
    Table,
    decode_field,
    decode_peer_table,
    decode_table,
    encode_table,
    equal_values,
    field_of,
    find_entry,
    kind_name,
    plain_table,
    table_of,
)


def entry(name: str, value: bytes) -> bytes:
    return bytes([len(name)]) + name.encode() + value


def decode(entries: bytes) -> Table:
    return decode_peer_table(entries, 0, len(entries))


# Tag and data as sent, the value, and the bytes that are written back if they differ
VALUES: list[tuple[bytes, object, bytes | None]] = [
    (b"S\x00\x00\x00\x02hi", "hi", None),
    (b"x\x00\x00\x00\x02\xff\x00", b"\xff\x00", None),
    (b"I\xff\xff\xff\xfb", -5, None),
    (b"i\xff\xff\xff\xfb", 2**32 - 5, None),
    (b"l\xff\xff\xff\xff\xff\xff\xff\xf9", -7, None),
    (b"L\xff\xff\xff\xff\xff\xff\xff\xf9", -7, b"l\xff\xff\xff\xff\xff\xff\xff\xf9"),
    (b"b\xfe", -2, None),
    (b"b\x7f", 127, None),
    (b"B\xfe", 254, None),
    (b"s\xff\xfd", -3, None),
    (b"u\xff\xfd", 65533, None),
    (b"T\x80\x00\x00\x00\x00\x00\x00\x05", 2**63 + 5, None),
    (b"t\x02", True, b"t\x01"),
    (b"t\x00", False, None),
    (b"d\x3f\xf8\x00\x00\x00\x00\x00\x00", 1.5, None),
    (b"f\x3f\xc0\x00\x00", 1.5, None),
    (b"D\x02\x80\x00\x01\x3a", (2, 2**31 + 314), None),
    (b"F\x00\x00\x00\x07\x01kI\x00\x00\x00\x01", {"k": Field(ord("I"), 1)}, None),
    (b"A\x00\x00\x00\x05I\x00\x00\x00\x01", [Field(ord("I"), 1)], None),
    (b"V", None, None),
]


@pytest.mark.parametrize(("sent", "value", "written"), VALUES)
def test_value_of_each_tag_is_read_and_written_as_rabbitmq_does(
    sent: bytes, value: object, written: bytes | None
) -> None:
    expected = written or sent
    table = decode(entry("a", sent))
    assert table == {"a": Field(expected[0], value)}
    entries = entry("a", expected)
    assert encode_table(table) == len(entries).to_bytes(4, "big") + entries


def test_every_other_tag_is_refused() -> None:
    for tag in range(256):
        if chr(tag) not in "SxIilLbBsuTtdfDFAV":
            with pytest.raises(FieldSyntaxError, match=f"unknown type tag {tag}"):
                decode(entry("a", bytes([tag]) + bytes(16)))


def test_kind_names_are_rabbitmqs() -> None:
    names = [kind_name(ord(tag)) for tag in "SIDTFbdflstxVABui"]
    assert names == (
        "longstr signedint decimal timestamp table byte double float long short bool binary void "
        "array unsignedbyte unsignedshort unsignedint"
    ).split(" ")


def test_first_of_two_entries_with_one_name_counts() -> None:
    entries = entry("a", b"I\x00\x00\x00\x01") + entry("a", b"I\x00\x00\x00\x02")
    assert decode(entries) == {"a": Field(ord("I"), 1)}
    assert find_entry(entries, 0, len(entries), b"a") == 2


def test_order_of_entries_is_kept() -> None:
    assert list(decode(entry("z", b"V") + entry("a", b"V") + entry("m", b"V"))) == ["z", "a", "m"]


def test_bytes_that_are_not_utf_8_survive_in_names_and_text() -> None:
    entries = b"\x02\xff\xfeS\x00\x00\x00\x02\x80\xff"
    assert encode_table(decode(entries))[4:] == entries


def test_names_may_be_empty_and_255_bytes_long() -> None:
    entries = b"\x00V" + b"\xff" + b"n" * 255 + b"V"
    table = decode(entries)
    assert list(table) == ["", "n" * 255]
    assert encode_table(table)[4:] == entries
    with pytest.raises(ValueError, match="256 bytes"):
        encode_table({"n" * 256: Field(ord("V"), None)})


def test_table_is_decoded_inside_other_bytes() -> None:
    entries = entry("a", b"t\x01")
    data = b"before" + entries + b"after"
    assert decode_table(data, 6, 6 + len(entries)) == {"a": Field(ord("t"), True)}


@pytest.mark.parametrize(
    ("start", "end"), [(0, 5), (-1, 2), (3, 2), (4, 4 + 2**32), (2**62, 2**62)]
)
def test_span_outside_the_data_is_refused(start: int, end: int) -> None:
    data = entry("a", b"V")
    with pytest.raises(FieldSyntaxError):
        decode_table(data, start, end)
    with pytest.raises(FieldSyntaxError):
        find_entry(data, start, end, b"a")


def nested(tag: str, depth: int) -> bytes:
    """Return entries with `depth` nested tables (F) or arrays (A)."""
    inside = b""
    for level in range(depth):
        value = tag.encode() + len(inside).to_bytes(4, "big") + inside
        outermost = level == depth - 1
        inside = entry("a", value) if tag == "F" or outermost else value
    return inside


@pytest.mark.parametrize("tag", list("FA"))
def test_nesting_is_bounded(tag: str) -> None:
    deepest = decode(nested(tag, NESTING_MAX))
    assert encode_table(deepest)[4:] == nested(tag, NESTING_MAX)
    for depth in (NESTING_MAX + 1, 5_000):
        with pytest.raises(FieldSyntaxError, match="nested deeper"):
            decode(nested(tag, depth))


@pytest.mark.parametrize("tag", list("FA"))
def test_deepest_table_of_a_peer_can_be_wrapped(tag: str) -> None:
    table = decode(nested(tag, NESTING_MAX))
    for _ in range(scan.WRAPPING_MAX):
        table = {"inside": Field(ord("F"), table)}
    encoded = encode_table(table)
    assert decode_table(encoded, 4, len(encoded)) == table


def test_python_values_nested_too_deep_are_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested deeper"):
        field_of(endless)
    field = Field(ord("V"), None)
    for _ in range(scan.DEPTH_MAX + 1):
        field = Field(ord("A"), [field])
    with pytest.raises(ValueError, match="nested deeper"):
        encode_table({"a": field})


def test_python_values_become_fields() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    table = table_of(
        {
            "bool": True,
            "int": -(2**31),
            "long": 2**31,
            "double": 0.5,
            "text": "é",
            "binary": b"\x00",
            "none": None,
            "list": [1, "a"],
            "tuple": (True,),
            "table": {"k": 1},
            "time": moment,
            "field": Field(ord("s"), 3),
        }
    )
    assert "".join(chr(field.kind) for field in table.values()) == "tIldSxVAAFTs"
    assert table["list"].value == [Field(ord("I"), 1), Field(ord("S"), "a")]
    assert table["time"].value == 1767323045
    assert decode(encode_table(table)[4:]) == table


@pytest.mark.parametrize(("value", "kind"), [(2**31 - 1, "I"), (2**63 - 1, "l"), (-(2**63), "l")])
def test_integer_takes_the_narrowest_of_two_kinds(value: int, kind: str) -> None:
    assert field_of(value) == Field(ord(kind), value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, object(), {1, 2}, datetime(1960, 1, 1)])  # noqa: DTZ001
def test_value_that_no_table_can_hold_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"64 bits|cannot hold|before 1970"):
        field_of(value)


def test_time_is_taken_in_utc() -> None:
    bare = datetime(1970, 1, 1, 1, 0, 0)  # noqa: DTZ001
    east = datetime(1970, 1, 1, 1, 0, 0, tzinfo=timezone(timedelta(hours=1)))
    assert field_of(bare).value == 3600
    assert field_of(east).value == 0


def test_plain_values_fit_json() -> None:
    table = table_of({"text": "a\udcff", "binary": b"\xfe", "deep": {"l": [1, None]}})
    table["decimal"] = Field(ord("D"), (2, 314))
    table["time"] = Field(ord("T"), 2**63)
    assert plain_table(table) == {
        "text": "a\N{REPLACEMENT CHARACTER}",
        "binary": "\N{REPLACEMENT CHARACTER}",
        "deep": {"l": [1, None]},
        "decimal": 3.14,
        "time": 2**63,
    }


# One group per line: values that are equal for a headers exchange of RabbitMQ. Values of different
# groups are different.
EQUALS: list[list[Field]] = [
    [Field(ord(kind), 1) for kind in "bBsuIilT"],
    [Field(ord("d"), 1.0), Field(ord("f"), 1.0)],
    [Field(ord("S"), "1"), Field(ord("x"), b"1")],
    [Field(ord("S"), ""), Field(ord("x"), b"")],
    [Field(ord("S"), "true")],
    [Field(ord("t"), True)],
    [Field(ord("t"), False)],
    [Field(ord("I"), 0)],
    [Field(ord("D"), (0, 1))],
    [Field(ord("D"), (1, 10))],
    [Field(ord("V"), None)],
    [Field(ord("A"), [Field(ord("I"), 1)])],
    [Field(ord("A"), [Field(ord("l"), 1)])],
    [Field(ord("F"), {"k": Field(ord("I"), 1)})],
    [Field(ord("F"), {"k": Field(ord("l"), 1)})],
    [Field(ord("l"), 2**53 + 1)],
    [Field(ord("d"), 2.0**53)],
    [Field(ord("l"), 2**53)],
]


def test_equality_of_values_is_rabbitmqs() -> None:
    for i, group in enumerate(EQUALS):
        for j, other in enumerate(EQUALS):
            for a in group:
                for b in other:
                    assert equal_values(a, b) == (i == j), (a, b)


def test_fields_compare_by_kind_and_value() -> None:
    assert Field(ord("I"), 1) == Field(ord("I"), 1)
    assert Field(ord("I"), 1) != Field(ord("l"), 1)
    assert Field(ord("I"), 1) != 1
    assert repr(Field(ord("S"), "a")) == "Field('S', 'a')"


def integers(kind: str, low: int, high: int) -> st.SearchStrategy[Field]:
    return st.integers(low, high).map(lambda n: Field(ord(kind), n))


TEXTS = st.binary(max_size=20).map(lambda b: b.decode("utf-8", "surrogateescape"))
SCALARS = st.one_of(
    TEXTS.map(lambda s: Field(ord("S"), s)),
    st.binary(max_size=20).map(lambda b: Field(ord("x"), b)),
    integers("b", -(2**7), 2**7 - 1),
    integers("B", 0, 2**8 - 1),
    integers("s", -(2**15), 2**15 - 1),
    integers("u", 0, 2**16 - 1),
    integers("I", -(2**31), 2**31 - 1),
    integers("i", 0, 2**32 - 1),
    integers("l", -(2**63), 2**63 - 1),
    integers("T", 0, 2**64 - 1),
    st.booleans().map(lambda b: Field(ord("t"), b)),
    st.floats(allow_nan=False).map(lambda x: Field(ord("d"), x)),
    st.floats(allow_nan=False, width=32).map(lambda x: Field(ord("f"), x)),
    st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1)).map(lambda d: Field(ord("D"), d)),
    st.just(Field(ord("V"), None)),
)
FIELDS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: Field(ord("A"), items)),
        st.dictionaries(TEXTS, inner, max_size=4).map(lambda table: Field(ord("F"), table)),
    ),
    max_leaves=12,
)
TABLES = st.dictionaries(TEXTS, FIELDS, max_size=6)


@given(TABLES)
def test_any_table_survives_a_round_trip(table: Table) -> None:
    encoded = encode_table(table)
    assert int.from_bytes(encoded[:4], "big") == len(encoded) - 4
    assert decode_table(encoded, 4, len(encoded)) == table
    assert list(decode_table(encoded, 4, len(encoded))) == list(table)
    assert scan.counted_end(encoded, 0, len(encoded)) == len(encoded)


@given(TABLES)
def test_every_entry_is_found_where_it_is(table: Table) -> None:
    encoded = encode_table(table)
    for name, field in table.items():
        at = find_entry(encoded, 4, len(encoded), name.encode("utf-8", "surrogateescape"))
        assert decode_field(encoded, at, len(encoded)) == field


@given(TABLES.filter(bool))
def test_every_truncation_raises_a_field_syntax_error(table: Table) -> None:
    encoded = encode_table(table)
    ends = {4}  # a cut between two entries leaves a shorter table
    for count in range(1, len(table) + 1):
        ends.add(len(encode_table(dict(list(table.items())[:count]))))
    for end in range(4, len(encoded)):
        if end not in ends:
            with pytest.raises(FieldSyntaxError):
                decode_table(encoded, 4, end)
        with pytest.raises(FieldSyntaxError):
            scan.counted_end(encoded, 0, end)


@given(st.binary(max_size=60))
def test_any_bytes_give_a_table_or_a_field_syntax_error(data: bytes) -> None:
    try:
        table = decode_table(data, 0, len(data))
    except FieldSyntaxError:
        return
    plain_table(table)
    again = encode_table(table)
    assert repr(decode_table(again, 4, len(again))) == repr(table)


def sample_table() -> bytes:
    deep: object = {"x": 1}
    for _ in range(8):
        deep = {"n": [deep, b"raw", 2**40]}
    table = table_of({"S": "text", "deep": deep, "d": math.pi, "t": True, "none": None})
    table["D"] = Field(ord("D"), (3, 5))
    return encode_table(table)[4:]


def test_mutated_tables_raise_only_field_syntax_errors(seed: int) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    valid = sample_table()
    faults = 0
    for _ in range(5_000):
        data = bytearray(valid)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            choice = rng.randrange(4)
            if choice == 0:
                data[at] = rng.randrange(256)
            elif choice == 1:
                del data[at : at + rng.randint(1, 5)]
            elif choice == 2:
                data[at:at] = rng.randbytes(rng.randint(1, 5))
            else:
                data[at : at + 4] = struct.pack(">I", rng.choice([0, 2**31, 2**32 - 1, 7]))
        try:
            decode(bytes(data))
        except FieldSyntaxError:
            faults += 1
    assert faults > 1_000
