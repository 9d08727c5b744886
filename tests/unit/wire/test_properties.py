"""Content headers: every property, the traits for the publish path, and malformed bytes."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import FieldSyntaxError, FrameError
from leveret.wire.properties import (
    Properties,
    decode_properties,
    encode_header,
    parse_traits,
    with_headers,
)
from leveret.wire.tables import Field, Table, encode_table, table_of

NAMES = (
    "content_type content_encoding headers delivery_mode priority correlation_id reply_to "
    "expiration message_id timestamp type user_id app_id cluster_id"
).split(" ")


def payload(flags: int, properties: bytes, body_size: int = 0) -> bytes:
    return struct.pack(">HHQH", 60, 0, body_size, flags) + properties


def properties_of(values: dict[str, object]) -> Properties:
    properties = Properties()
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


def values_of(properties: Properties) -> dict[str, object]:
    values = {name: getattr(properties, name) for name in NAMES}
    return {name: value for name, value in values.items() if value is not None}


ALL: dict[str, object] = {
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "headers": table_of({"CC": ["a"], "BCC": ["b"], "x-delay": 5, "x-death": [], "k": 1}),
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "cid",
    "reply_to": "back",
    "expiration": "1000",
    "message_id": "mid",
    "timestamp": 2**64 - 1,
    "type": "t",
    "user_id": "guest",
    "app_id": "app",
    "cluster_id": "clu",
}


def test_bytes_of_a_header_with_every_property() -> None:
    headers = ALL["headers"]
    assert isinstance(headers, dict)
    assert encode_header(properties_of(ALL), 5) == (
        b"\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\xff\xfc"
        + b"\x0atext/plain\x04gzip"
        + encode_table(headers)
        + b"\x02\x07\x03cid\x04back\x041000\x03mid"
        + b"\xff" * 8
        + b"\x01t\x05guest\x03app\x03clu"
    )


def test_header_without_properties_has_14_bytes() -> None:
    assert encode_header(Properties(), 0) == payload(0, b"")
    assert values_of(decode_properties(payload(0, b""))) == {}


@pytest.mark.parametrize("name", NAMES)
def test_each_property_alone_survives_a_round_trip(name: str) -> None:
    values = {name: ALL[name]}
    encoded = encode_header(properties_of(values), 1)
    assert values_of(decode_properties(encoded)) == values
    parse_traits(encoded)


def test_traits_of_a_full_header() -> None:
    encoded = encode_header(properties_of(ALL), 2**63 - 1)
    traits = parse_traits(encoded)
    assert traits.body_size == 2**63 - 1
    assert (traits.delivery_mode, traits.persistent, traits.priority) == (2, True, 7)
    assert (traits.reply_to, traits.expiration, traits.user_id) == ("back", "1000", "guest")
    assert (traits.has_cc, traits.has_bcc, traits.has_delay) == (True,) * 3
    headers = ALL["headers"]
    assert isinstance(headers, dict)
    assert encoded[traits.headers_at : traits.headers_end] == encode_table(headers)[4:]


def test_traits_of_an_empty_header() -> None:
    traits = parse_traits(payload(0, b"", 3))
    assert traits.body_size == 3
    assert (traits.delivery_mode, traits.persistent, traits.priority) == (-1, False, -1)
    assert (traits.reply_to, traits.expiration, traits.user_id) == (None, None, None)
    assert (traits.headers_at, traits.headers_end) == (0, 0)
    assert (traits.has_cc, traits.has_bcc, traits.has_delay) == (False,) * 3


@pytest.mark.parametrize(("mode", "persistent"), [(0, False), (1, False), (2, True), (7, False)])
def test_only_delivery_mode_2_is_persistent(mode: int, persistent: bool) -> None:
    traits = parse_traits(payload(0x1000, bytes([mode])))
    assert (traits.delivery_mode, traits.persistent) == (mode, persistent)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("CC", "cc"),
        ("BCC", "bcc"),
        ("x-delay", "delay"),
        ("x-death", ""),
        ("cc", ""),
        ("CCC", ""),
        ("bcc", ""),
        ("x-delays", ""),
        ("x-deaf--", ""),
        ("x-dxxxx", ""),
        ("y-delay", ""),
        ("X-Delay", ""),
        ("", ""),
    ],
)
def test_names_of_headers_are_matched_whole(name: str, seen: str) -> None:
    traits = parse_traits(encode_header(properties_of({"headers": table_of({name: 1})}), 0))
    for trait in ("cc", "bcc", "delay"):
        assert getattr(traits, f"has_{trait}") == (trait == seen)


def test_text_that_is_not_utf_8_survives() -> None:
    encoded = payload(0x8200, b"\x02\xff\xfe\x01\x80")
    assert parse_traits(encoded).reply_to == "\udc80"
    assert encode_header(decode_properties(encoded), 0) == encoded


@pytest.mark.parametrize("body_size", [2**63, 2**64 - 1])
def test_body_size_over_63_bits_is_a_frame_error(body_size: int) -> None:
    with pytest.raises(FrameError):
        parse_traits(payload(0, b"", body_size))


def test_more_flags_are_a_frame_error() -> None:
    for flags in (0x0001, 0x1001, 0xFFFF):
        with pytest.raises(FrameError):
            parse_traits(payload(flags, bytes(64)))
        with pytest.raises(FrameError):
            decode_properties(payload(flags, bytes(64)))


def test_flag_without_meaning_is_ignored() -> None:
    assert parse_traits(payload(0x0002, b"")).delivery_mode == -1


MALFORMED = [
    (0x0000, b"junk"),
    (0x1000, b"\x02junk"),
    (0x1800, b"\x02"),
    (0x8000, b""),
    (0x8000, b"\x05abcd"),
    (0x0040, bytes(7)),
    (0x2000, b"\x00\x00\x00"),
    (0x2000, b"\x00\x00\x00\xff"),
    (0x2000, b"\x80\x00\x00\x00"),
    (0x2000, b"\xff\xff\xff\xff"),
    (0x2000, b"\x00\x00\x00\x03\x01az"),
    (0x2000, b"\x00\x00\x00\x02\x05a"),
    # Malformed inside a nested table: later decoding of the headers must not fail.
    (0x2000, b"\x00\x00\x00\x0a\x01aF\x00\x00\x00\x03\x01kz"),
    (0x2000, b"\x00\x00\x00\x08\x01aA\x00\x00\x00\x01I"),
]


@pytest.mark.parametrize(("flags", "properties"), MALFORMED)
def test_malformed_properties_raise_a_field_syntax_error(flags: int, properties: bytes) -> None:
    with pytest.raises(FieldSyntaxError):
        parse_traits(payload(flags, properties))
    with pytest.raises(FieldSyntaxError):
        decode_properties(payload(flags, properties))


@pytest.mark.parametrize("size", range(14))
def test_payload_shorter_than_its_fixed_part_raises_a_field_syntax_error(size: int) -> None:
    with pytest.raises(FieldSyntaxError):
        parse_traits(bytes(size))
    with pytest.raises(FieldSyntaxError):
        decode_properties(bytes(size))


def test_every_truncation_raises_a_field_syntax_error() -> None:
    encoded = encode_header(properties_of(ALL), 5)
    for end in range(len(encoded)):
        with pytest.raises(FieldSyntaxError):
            parse_traits(encoded[:end])
        with pytest.raises(FieldSyntaxError):
            decode_properties(encoded[:end])


def test_text_over_255_bytes_does_not_fit() -> None:
    encode_header(properties_of({"type": "x" * 255}), 0)
    with pytest.raises(ValueError, match="256 bytes"):
        encode_header(properties_of({"type": "x" * 256}), 0)


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("old", [None, {}, {"k": 1, "BCC": ["a"]}])
@pytest.mark.parametrize("new", [None, {}, {"x-delivery-count": 3}])
def test_headers_are_replaced_and_the_rest_kept(
    others: bool, old: dict[str, object] | None, new: dict[str, object] | None
) -> None:
    values = dict(ALL) if others else {}
    before = properties_of(values | {"headers": None if old is None else table_of(old)})
    after = properties_of(values | {"headers": None if new is None else table_of(new)})
    assert with_headers(encode_header(before, 9), after.headers) == encode_header(after, 9)


def test_replacing_headers_keeps_a_flag_without_meaning() -> None:
    assert with_headers(payload(0x0002, b""), {}) == payload(0x2002, b"\x00\x00\x00\x00")


TEXTS = st.binary(max_size=255).map(lambda b: b.decode("utf-8", "surrogateescape"))
HEADERS: st.SearchStrategy[Table] = st.dictionaries(
    st.sampled_from(["CC", "BCC", "x-delay", "x-death", "k", "long-name"]),
    st.sampled_from([Field(ord("I"), 1), Field(ord("A"), []), Field(ord("S"), "text")]),
)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        name: HEADERS
        if name == "headers"
        else st.integers(0, 255)
        if name in ("delivery_mode", "priority")
        else st.integers(0, 2**64 - 1)
        if name == "timestamp"
        else TEXTS
        for name in NAMES
    },
)


@given(PROPERTIES, st.integers(0, 2**63 - 1))
def test_any_properties_survive_a_round_trip(values: dict[str, object], body_size: int) -> None:
    encoded = encode_header(properties_of(values), body_size)
    assert values_of(decode_properties(encoded)) == values
    traits = parse_traits(encoded)
    assert traits.body_size == body_size
    assert traits.delivery_mode == values.get("delivery_mode", -1)
    assert traits.priority == values.get("priority", -1)
    for name in ("expiration", "reply_to", "user_id"):
        assert getattr(traits, name) == values.get(name)
    headers = values.get("headers", {})
    assert isinstance(headers, dict)
    assert traits.has_cc == ("CC" in headers)
    assert traits.has_delay == ("x-delay" in headers)


def test_mutated_headers_raise_only_protocol_errors(seed: int) -> None:
    """`parse_traits` and `decode_properties` accept the same payloads."""
    print("seed", seed)
    rng = random.Random(seed)
    valid = encode_header(properties_of(ALL), 5)
    refused = 0
    for _ in range(5_000):
        data = bytearray(valid)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(12, len(data))
            data[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        mutated = bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
        try:
            parse_traits(mutated)
        except (FieldSyntaxError, FrameError) as fault:
            refused += 1
            with pytest.raises(type(fault)):
                decode_properties(mutated)
        else:
            decode_properties(mutated)
    assert refused > 1_000
