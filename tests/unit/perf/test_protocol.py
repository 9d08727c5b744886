"""Blocks of publishes are valid frames, and the parser reads frames that are split anywhere."""

import random

import pytest
from mypy_extensions import i64

from leveret.amqp.methods import (
    BASIC_PUBLISH,
    CHANNEL_CLOSE,
    CONNECTION_CLOSE,
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_METHOD,
    QUEUE_DECLARE_OK,
)
from leveret.amqp.reader import MethodReader
from leveret.amqp.writer import MethodWriter
from leveret.errors import ClosedError, FrameError
from leveret.perf.protocol import CHANNEL, FRAME_BYTES, Parser, Publishes, Template, frame
from leveret.wire.properties import decode_properties
from leveret.wire.tables import plain_table, table_of

NOW_NS = 0x0102030405060708
BODY_BYTES_MAX = FRAME_BYTES - 8


def publishes(
    key: str, size: int, persistent: bool = False, stamped: bool = True, burst: int = 32
) -> Publishes:
    template = Template("", persistent, {}, False)
    return Publishes(template, [key], [size], stamped, burst)


def frames_of(data: bytes) -> list[tuple[int, int, bytes]]:
    """Return type, channel and payload of each frame, by a simple parser."""
    found = []
    at = 0
    while at < len(data):
        kind, channel = data[at], int.from_bytes(data[at + 1 : at + 3], "big")
        stop = at + 7 + int.from_bytes(data[at + 3 : at + 7], "big")
        assert data[stop] == 0xCE
        found.append((kind, channel, data[at + 7 : stop]))
        at = stop + 1
    return found


def test_frame_has_head_payload_and_end() -> None:
    assert frame(1, 0x0203, b"abc") == b"\x01\x02\x03\x00\x00\x00\x03abc\xce"


@pytest.mark.parametrize("count", [1, 2, 32])
def test_block_has_method_header_and_stamped_body_of_each_message(count: int) -> None:
    block = publishes("q", 20, persistent=True).block(count, NOW_NS)
    frames = frames_of(block)
    kinds = [kind for kind, _, _ in frames]
    assert kinds == [FRAME_METHOD, FRAME_HEADER, FRAME_BODY] * count
    assert {channel for _, channel, _ in frames} == {CHANNEL}
    for _, _, body in frames[2::3]:
        assert body == bytes(range(1, 9)) + b"x" * 12


def test_publish_names_default_exchange_and_queue() -> None:
    (_, _, method), (_, _, header), _ = frames_of(publishes("orders", 9).block(1, NOW_NS))
    assert int.from_bytes(method[:4], "big") == BASIC_PUBLISH
    reader = MethodReader(method)
    assert (reader.short(), reader.short_string(), reader.short_string()) == (0, "", "orders")
    assert reader.octet() == 0
    reader.finish()
    assert int.from_bytes(header[4:12], "big") == 9
    assert decode_properties(header).delivery_mode == 1


def test_bodies_without_stamps_are_all_x() -> None:
    block = publishes("q", 9, stamped=False).block(2, NOW_NS)
    assert [p for kind, _, p in frames_of(block) if kind == 3] == [b"x" * 9] * 2


def test_keys_and_sizes_alternate_across_blocks() -> None:
    template = Template("e", True, table_of({"colour": "red"}), True)
    made = Publishes(template, ["a", "b", "c"], [10, 20], True, 4)
    data = b"".join(made.block(count, NOW_NS) for count in (4, 1, 2, 4))
    frames = frames_of(data)
    keys = []
    for _, _, method in frames[::3]:
        reader = MethodReader(method)
        assert (reader.short(), reader.short_string()) == (0, "e")
        keys.append(reader.short_string())
        assert reader.octet() == 1  # mandatory
    assert "".join(keys) == "abcabcabcab"
    assert [len(body) for _, _, body in frames[2::3]] == [10, 20, 10] * 3 + [10, 20]
    assert all(body.startswith(bytes(range(1, 9)) + b"xx") for _, _, body in frames[2::3])
    properties = decode_properties(frames[1][2])
    assert properties.headers is not None
    assert plain_table(properties.headers) == {"colour": "red"}


def test_empty_body_has_no_body_frame() -> None:
    frames = frames_of(publishes("q", 0, stamped=False).block(3, NOW_NS))
    assert [kind for kind, _, _ in frames] == [FRAME_METHOD, FRAME_HEADER] * 3


def test_body_over_the_frame_limit_is_split() -> None:
    frames = frames_of(publishes("q", 2 * BODY_BYTES_MAX + 1).block(1, NOW_NS))
    assert [len(payload) for _, _, payload in frames[2:]] == [BODY_BYTES_MAX, BODY_BYTES_MAX, 1]


# The parser


def answers_of(data: bytes, cuts: list[int]) -> list[bytes]:
    """Return the methods that a parser finds in these pieces."""
    parser = Parser()
    for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
        parser.feed(data[start:stop], i64(1))
    return parser.answers


def conversation() -> tuple[bytes, list[bytes]]:
    """Return frames of methods with content between them, and the payloads of the methods."""
    payloads = [MethodWriter(QUEUE_DECLARE_OK).long(n).payload() for n in range(3)]
    header = frame(FRAME_HEADER, CHANNEL, b"\x00\x3c\x00\x00" + (700).to_bytes(8, "big") + b"\0\0")
    bodies = [frame(FRAME_BODY, CHANNEL, b"\x01" * size) for size in (0, 1, 8, 600, 91)]
    methods = [frame(FRAME_METHOD, CHANNEL, payload) for payload in payloads]
    heartbeat = frame(8, 0, b"")
    return b"".join([methods[0], header, *bodies, methods[1], heartbeat, methods[2]]), payloads


def test_parser_reads_the_same_byte_by_byte() -> None:
    data, payloads = conversation()
    assert answers_of(data, list(range(1, len(data)))) == payloads


def test_parser_reads_the_same_however_bytes_are_split(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    data, payloads = conversation()
    for _ in range(200):
        cuts = sorted(chance.sample(range(1, len(data)), chance.randrange(20)))
        assert answers_of(data, cuts) == payloads


@pytest.mark.parametrize("method", [CONNECTION_CLOSE, CHANNEL_CLOSE])
def test_close_by_the_broker_is_raised_with_its_reason(method: int) -> None:
    payload = (
        MethodWriter(method).short(404).short_string("NOT_FOUND - no").short(0).short(0).payload()
    )
    with pytest.raises(ClosedError, match="404 NOT_FOUND - no"):
        Parser().feed(frame(FRAME_METHOD, CHANNEL, payload), i64(1))


def test_frame_with_a_wrong_end_octet_is_refused() -> None:
    bad = frame(FRAME_METHOD, CHANNEL, b"\x00\x32\x00\x0b")[:-1] + b"\x00"
    with pytest.raises(FrameError, match="frame end 0"):
        Parser().feed(bad, i64(1))


@pytest.mark.parametrize("size", [FRAME_BYTES + 1, 2**31, 2**32 - 1])
def test_frame_that_is_too_large_is_refused(size: int) -> None:
    with pytest.raises(FrameError):
        Parser().feed(b"\x01\x00\x01" + size.to_bytes(4, "big"), i64(1))
