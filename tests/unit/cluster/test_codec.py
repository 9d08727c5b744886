"""Messages survive encoding; any other bytes are refused by an error, never by a crash."""

import random

import pytest

from leveret.cluster.raft.codec import FRAME_BYTES_MAX, decode_frame, encode_frame, frame_size
from leveret.cluster.raft.entry import COMMAND, CONFIG, Entry, Members, encode_members
from leveret.cluster.raft.messages import APPEND, KIND_MAX, SNAPSHOT, Message
from leveret.errors import FieldSyntaxError, FrameError, ProtocolError

FIELDS = (
    "kind",
    "source",
    "target",
    "group",
    "term",
    "index",
    "log_term",
    "commit",
    "hint",
    "context",
)


def make(kind: int) -> Message:
    message = Message(kind, 1, 2, 9, 5)
    message.index, message.log_term, message.commit = 3, 4, 2
    message.hint, message.context = 6, 7
    if kind == APPEND:
        members = encode_members(Members([1, 2], [3]))
        message.entries = [Entry(4, 4, COMMAND, b"one"), Entry(5, 5, CONFIG, members)]
    elif kind == SNAPSHOT:
        message.data = b"chunk"
    return message


def frame() -> bytes:
    return encode_frame(1, 2, [make(kind) for kind in range(1, KIND_MAX + 1)])


def test_messages_of_every_kind_survive_a_frame() -> None:
    sent = [make(kind) for kind in range(1, KIND_MAX + 1)]
    found = decode_frame(encode_frame(1, 2, sent))
    assert [message.kind for message in found] == [message.kind for message in sent]
    for before, after in zip(sent, found, strict=True):
        for name in FIELDS:
            # A field that a kind does not have is 0.
            assert getattr(after, name) in (getattr(before, name), 0), name
        assert after.data == before.data
        assert [(e.index, e.term, e.kind, e.data) for e in after.entries] == [
            (e.index, e.term, e.kind, e.data) for e in before.entries
        ]
    assert encode_frame(1, 2, found) == encode_frame(1, 2, sent)


def test_size_of_a_frame_is_known_from_its_first_bytes() -> None:
    data = frame()
    assert frame_size(data[:3], 0) == 0
    assert frame_size(data[:4], 0) == len(data)
    assert frame_size(b"xx" + data, 2) == len(data)


def test_frame_of_another_version_is_refused() -> None:
    data = frame()
    with pytest.raises(FrameError, match="version 9"):
        decode_frame(data[:4] + b"\x09" + data[5:])


@pytest.mark.parametrize("size", [0, 20, FRAME_BYTES_MAX + 1])
def test_frame_of_a_size_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(FrameError):
        frame_size(size.to_bytes(4, "big"), 0)


def test_terms_that_fall_are_refused() -> None:
    message = make(APPEND)
    message.entries = [Entry(4, 5, COMMAND, b""), Entry(5, 4, COMMAND, b"")]
    with pytest.raises(FieldSyntaxError, match="term 4 after 5"):
        decode_frame(encode_frame(1, 2, [message]))


def test_count_that_the_bytes_cannot_hold_is_refused_before_it_costs_anything() -> None:
    data = bytearray(encode_frame(1, 2, []))
    data[-4:] = (0x7FFF_FFFF).to_bytes(4, "big")
    with pytest.raises(FieldSyntaxError, match="cannot be in"):
        decode_frame(bytes(data))


def test_number_that_would_not_fit_arithmetic_is_refused() -> None:
    data = bytearray(frame())
    data[5:13] = b"\xff" * 8  # the source
    with pytest.raises(FieldSyntaxError):
        decode_frame(bytes(data))


def test_every_cut_of_a_frame_is_refused() -> None:
    data = frame()
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            decode_frame(data[:size])


def test_turned_bits_give_messages_or_an_error(seed: int) -> None:
    rng = random.Random(seed)
    data = frame()
    for _ in range(3000):
        broken = bytearray(data)
        for _ in range(rng.choice((1, 1, 3))):
            broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        try:
            decode_frame(bytes(broken))
        except ProtocolError:
            continue
