"""Chunks: reading gives the messages that were written, and damage is noticed."""

import copy
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.engine.message import Address
from leveret.engine.streams.chunk import Envelope, chunk_bytes, read_chunk
from leveret.errors import CorruptionError
from leveret.journal.chunks import CHUNK_BYTES_MAX, CHUNK_COUNT_MAX, CHUNK_HEAD_BYTES
from leveret.wire.properties import Properties, decode_properties, encode_header
from leveret.wire.tables import Field, Table, table_of
from tests.unit.engine.streams.chunks import ADDRESS, header, writer, written

TEXT = st.text(max_size=20)
VALUES: st.SearchStrategy[object] = st.recursive(
    st.one_of(st.integers(-(2**31), 2**31 - 1), TEXT, st.booleans(), st.none(), st.binary()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
NAMES = st.one_of(st.text(max_size=8), st.sampled_from(["x-stream-offset", "CC", "a", "z"]))
TABLES = st.dictionaries(NAMES, VALUES, max_size=4).map(table_of)


@st.composite
def properties(draw: st.DrawFn) -> Properties:
    made = Properties()
    made.headers = draw(st.none() | TABLES)
    made.content_type = draw(st.none() | TEXT)
    made.correlation_id = draw(st.none() | TEXT)
    made.delivery_mode = draw(st.none() | st.integers(1, 2))
    made.priority = draw(st.none() | st.integers(0, 255))
    made.timestamp = draw(st.none() | st.integers(0, 2**64 - 1))
    made.app_id = draw(st.none() | TEXT)
    return made


Sent = list[tuple[tuple[str, str], Properties, bytes, int]]
MESSAGES = st.lists(
    st.tuples(st.tuples(TEXT, TEXT), properties(), st.binary(max_size=200), st.integers(0, 5)),
    min_size=1,
    max_size=12,
)


def with_offset(made: Properties, offset: int, body_bytes: int) -> bytes:
    """Return the header of a delivery, made by decoding and encoding."""
    shown = copy.copy(made)
    headers: Table = dict(made.headers or {})
    headers.pop("x-stream-offset", None)
    headers["x-stream-offset"] = Field(ord("l"), offset)
    shown.headers = headers
    return encode_header(shown, body_bytes)


@given(MESSAGES, st.integers(0, 2**40))
def test_reading_returns_the_messages_that_were_written(messages: Sent, first: int) -> None:
    made = writer()
    made.next_offset = first
    now_ms = 1_700_000_000_000
    times: list[int] = []
    for (exchange, key), given_properties, body, later_ms in messages:
        now_ms += later_ms
        address = Address(exchange, key).record()
        assert made.add(address, header(given_properties), body, now_ms) == first + len(times)
        times.append(now_ms)
    result = made.close()
    chunk = read_chunk(result.data + b"what follows", 7, 13)
    assert (chunk.first_offset, chunk.count, chunk.end_offset) == (
        first,
        len(messages),
        first + len(messages),
    )
    assert (chunk.segment, chunk.at, chunk.size()) == (7, 13, len(result.data))
    assert (chunk.first_ms, chunk.last_ms) == (times[0], times[-1])
    for index, ((exchange, key), given_properties, body, _) in enumerate(messages):
        message = chunk.message(index, 3)
        assert (message.address.exchange, message.address.keys) == (exchange, [key])
        assert (message.body, int(message.seq), int(message.queue)) == (body, first + index, 3)
        assert message.header == with_offset(given_properties, first + index, len(body))
        assert chunk.time_ms(index) == times[index]


def test_envelope_that_messages_share_stands_once() -> None:
    made = writer()
    red, blue = header(headers=table_of({"c": "red"})), header(headers=table_of({"c": "blue"}))
    for each in (red, blue, bytes(bytearray(red)), blue, red):
        made.add(ADDRESS, each, b"x", 5)
    made.add(Address("e", "q").record(), red, b"x", 5)
    data = made.close().data
    (envelopes,) = struct.unpack_from("<I", data, 36)
    assert envelopes == 3
    chunk = read_chunk(data, 0, 0)
    assert chunk.envelope(0) is chunk.envelope(2)
    assert chunk.envelope(1) is chunk.envelope(3)
    assert chunk.envelope(0) is not chunk.envelope(5)


def test_chunk_that_follows_shares_nothing_with_the_one_before() -> None:
    made = writer()
    first = written(made, [b"a", b"b"])
    second = written(made, [b"c"])
    assert (second.first_offset, second.count) == (2, 1)
    chunk = read_chunk(second.data, 0, 0)
    assert chunk.body(0) == b"c"
    assert len(second.data) < len(first.data)


def test_every_flipped_bit_is_noticed() -> None:
    data = written(writer(), [b"one", b"", b"three" * 5]).data
    for bit in range(len(data) * 8):
        turned = bytearray(data)
        turned[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            read_chunk(bytes(turned), 0, 0)


def test_every_cut_is_noticed() -> None:
    data = written(writer(), [b"one", b"two"]).data
    for size in range(len(data)):
        with pytest.raises(CorruptionError):
            read_chunk(data[:size], 0, 0)
    assert chunk_bytes(data[:CHUNK_HEAD_BYTES]) == len(data)
    assert chunk_bytes(data[: CHUNK_HEAD_BYTES - 1]) == 0


@pytest.mark.parametrize("size", [CHUNK_BYTES_MAX, CHUNK_BYTES_MAX + 1])
def test_chunk_is_full_by_its_bodies(size: int) -> None:
    made = writer()
    made.add(ADDRESS, header(), b"x" * (size // 2), 1)
    assert not made.is_full()
    made.add(ADDRESS, header(), b"x" * (size - size // 2), 1)
    assert made.is_full()


def test_chunk_is_full_by_its_envelopes() -> None:
    made = writer()
    count = 0
    while not made.is_full():
        count += 1
        made.add(ADDRESS, header(headers=table_of({"k": f"{count}" + "x" * 100_000})), b"", 1)
    assert count == 11


def test_chunk_is_full_by_its_count() -> None:
    made = writer()
    plain = header()
    for _ in range(CHUNK_COUNT_MAX - 1):
        made.add(ADDRESS, plain, b"", 1)
    assert not made.is_full()
    made.add(ADDRESS, plain, b"", 1)
    assert made.is_full()
    assert read_chunk(made.close().data, 0, 0).end_offset == CHUNK_COUNT_MAX


def test_time_does_not_go_back_within_a_stream() -> None:
    made = writer()
    for now_ms in (100, 90, 110, 50):
        made.add(ADDRESS, header(), b"x", now_ms)
    chunk = read_chunk(made.close().data, 0, 0)
    assert [chunk.time_ms(index) for index in range(4)] == [100, 100, 110, 110]
    made.add(ADDRESS, header(), b"x", 20)
    assert read_chunk(made.close().data, 0, 0).first_ms == 110


@given(st.lists(st.integers(0, 100), min_size=1, max_size=20), st.integers(-5, 105))
def test_first_message_that_is_not_older_than_a_time(times: list[int], wanted: int) -> None:
    made = writer()
    for now_ms in sorted(times):
        made.add(ADDRESS, header(), b"x", now_ms)
    chunk = read_chunk(made.close().data, 0, 0)
    not_older = [index for index, at in enumerate(sorted(times)) if at >= wanted]
    assert chunk.index_at(wanted) == (not_older[0] if not_older else len(times))


@pytest.mark.parametrize(
    ("value", "found"), [("red", "red"), ("", ""), (7, None), (None, None), (["red"], None)]
)
def test_filter_value_is_a_text(value: object, found: str | None) -> None:
    table = table_of({"x-stream-filter-value": value})
    assert Envelope(ADDRESS + header(headers=table)[12:]).filter_value == found


def test_header_of_a_delivery_can_be_decoded() -> None:
    envelope = Envelope(ADDRESS + header(headers=table_of({"a": 1}))[12:])
    decoded = decode_properties(envelope.header(2**40, 17))
    assert decoded.headers == {"a": Field(ord("I"), 1), "x-stream-offset": Field(ord("l"), 2**40)}
