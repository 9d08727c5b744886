"""Messages survive encoding; any other bytes are refused by an error, never by a crash."""

import random

import pytest

from leveret.cluster.raft.block import MEMBERS, NORMAL, TERM, Block
from leveret.cluster.raft.codec import PIECE_BYTES_MIN, encode_frames
from leveret.cluster.raft.members import Member, Members, decode_members, encode_members
from leveret.cluster.raft.messages import APPEND, KIND_MAX, Message
from leveret.errors import FieldSyntaxError, FrameError, ProtocolError
from tests.cluster.simulation.frames import decode_frame, encode_frame

FIELDS = (
    "kind",
    "source",
    "target",
    "term",
    "index",
    "log_term",
    "commit",
    "hint",
    "context",
)


def members() -> Members:
    voters = [Member(1, "rabbit", b"u" * 16, b"10.0.0.1:25672"), Member(2, "häsin")]
    return Members(voters, [Member(65_535)])


def make(kind: int) -> Message:
    message = Message(kind, 1, 2, 5)
    message.index, message.log_term, message.commit = 3, 4, 2
    message.hint, message.context = 6, 7
    if kind == APPEND:
        message.blocks = [
            Block(4, 4, NORMAL, b"one"),
            Block(5, 5, TERM, b""),
            Block(6, 5, MEMBERS, b"two", members()),
        ]
    return message


def shown(block: Block) -> tuple[int, int, int, bytes, bytes]:
    encoded = b"" if block.members is None else encode_members(block.members)
    return block.index, block.term, block.kind, block.data, encoded


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
        assert list(map(shown, after.blocks)) == list(map(shown, before.blocks))
    assert encode_frame(1, 2, found) == encode_frame(1, 2, sent)


def test_large_data_is_passed_on_and_small_data_is_joined() -> None:
    message = make(APPEND)
    sizes = (3, PIECE_BYTES_MIN, 5, 6, PIECE_BYTES_MIN + 1)
    datas = [bytes([at]) * size for at, size in enumerate(sizes)]
    message.blocks = [Block(4 + at, 5, NORMAL, data) for at, data in enumerate(datas)]
    frames = encode_frames(1, 2, [message, message], full=PIECE_BYTES_MIN)
    for pieces in frames:
        assert [any(piece is data for piece in pieces) for data in datas] == [
            size >= PIECE_BYTES_MIN for size in sizes
        ]
        (found,) = decode_frame(b"".join(pieces))
        assert [block.data for block in found.blocks] == datas
    assert len(frames) == 2


def test_frame_of_another_kind_is_refused() -> None:
    data = frame()
    with pytest.raises(FrameError, match="kind 9"):
        decode_frame(data[:4] + b"\x09" + data[5:])


@pytest.mark.parametrize("size", [0, 12])
def test_frame_that_is_too_short_is_refused(size: int) -> None:
    with pytest.raises(FrameError):
        decode_frame(size.to_bytes(4, "big") + bytes(size))


def test_terms_that_fall_are_refused() -> None:
    message = make(APPEND)
    message.blocks = [Block(4, 5, NORMAL, b""), Block(5, 4, NORMAL, b"")]
    with pytest.raises(FieldSyntaxError, match="term 4 after 5"):
        decode_frame(encode_frame(1, 2, [message]))


def test_count_that_the_bytes_cannot_hold_is_refused_before_it_costs_anything() -> None:
    data = bytearray(encode_frame(1, 2, []))
    data[13:17] = (0x7FFF_FFFF).to_bytes(4, "big")
    with pytest.raises(FieldSyntaxError, match="cannot be in"):
        decode_frame(bytes(data))


def test_number_that_would_not_fit_arithmetic_is_refused() -> None:
    data = bytearray(frame())
    data[22:30] = b"\xff" * 8  # the term of the first message
    with pytest.raises(FieldSyntaxError):
        decode_frame(bytes(data))


@pytest.mark.parametrize("at", [5, 9])
@pytest.mark.parametrize("number", [0, 65_536])
def test_node_that_cannot_be_is_refused(at: int, number: int) -> None:
    data = bytearray(frame())
    data[at : at + 4] = number.to_bytes(4, "big")
    with pytest.raises(FieldSyntaxError, match="a frame from"):
        decode_frame(bytes(data))


def test_member_that_is_named_twice_is_refused() -> None:
    once = encode_members(Members([Member(1)], []))
    twice = once[:-4] + once[4:-4]
    message = make(APPEND)
    good = encode_frame(1, 2, [message])
    wanted = encode_members(members())
    bad = len(twice).to_bytes(4, "big") + twice
    broken = good.replace(len(wanted).to_bytes(4, "big") + wanted, bad)
    assert broken != good
    heads = int.from_bytes(good[17:21], "big") + len(broken) - len(good)
    broken = broken[:17] + heads.to_bytes(4, "big") + broken[21:]
    sized = (len(broken) - 4).to_bytes(4, "big") + broken[4:]
    with pytest.raises(FieldSyntaxError, match="named twice"):
        decode_frame(sized)


def test_number_of_a_removed_member_is_not_given_again() -> None:
    after = members().without(65_535)
    assert after.next_number == 65_536
    found = decode_members(encode_members(after))
    assert (found.next_number, found.everyone()) == (65_536, [1, 2])
    with pytest.raises(FieldSyntaxError, match="next number"):
        decode_members((2).to_bytes(4, "big") + encode_members(after)[4:])


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
