"""Records of a replicated log: written and read back, refused when cut short."""

from random import Random

import pytest

from leveret.cluster.raft import block as raft_block
from leveret.errors import CorruptionError
from leveret.journal import records
from leveret.journal.cluster_records import (
    decode_roll,
    encode_members_record,
    encode_nothing,
    encode_roll,
    find_roll,
    is_roll_block,
    maybe_stamp,
)
from leveret.journal.records import (
    MEMBERS_BLOCK,
    NORMAL_BLOCK,
    RECORD_HEAD_BYTES,
    ROLL_BLOCK,
    TERM_BLOCK,
    encode_stamp,
)
from leveret.storage.blocks import encode_block_head, encode_head
from leveret.storage.dump import dump

TERMS = [(1, 1), (4, 90), (7, 1 << 40)]
MEMBERS = b"\x00members\xff"


def test_roll_is_read_back() -> None:
    roll = find_roll(encode_stamp(5, 7, ROLL_BLOCK) + encode_roll(12, TERMS, MEMBERS), 0, 1000)
    assert (roll.file, roll.terms, roll.members) == (12, TERMS, MEMBERS)


def test_roll_that_is_cut_short_is_refused() -> None:
    payload = encode_roll(12, TERMS, b"")[RECORD_HEAD_BYTES:]
    for end in range(len(payload)):
        with pytest.raises(CorruptionError):
            decode_roll(payload[:end])
    block = encode_stamp(5, 7, ROLL_BLOCK) + encode_roll(12, TERMS, b"")
    for end in range(len(block)):
        with pytest.raises(CorruptionError):
            find_roll(block, 0, end)


def test_random_bytes_are_no_roll_record() -> None:
    seed = 17
    rng = Random(seed)
    for _ in range(500):
        payload = rng.randbytes(rng.randrange(60))
        try:
            roll = decode_roll(payload)
        except CorruptionError:
            continue
        assert len(roll.terms) * 16 + len(roll.members) + 12 == len(payload), seed


def test_stamp_tells_the_kind_of_a_block() -> None:
    block = b"...." + encode_stamp(5, 7, ROLL_BLOCK)
    stamp = maybe_stamp(block, 4, len(block))
    assert stamp is not None
    assert (stamp.time_ms, stamp.term, stamp.kind) == (5, 7, ROLL_BLOCK)
    assert is_roll_block(block, 4, len(block))
    assert not is_roll_block(encode_stamp(5, 7, NORMAL_BLOCK), 0, 22)
    assert maybe_stamp(block, 4, len(block) - 1) is None
    assert maybe_stamp(encode_nothing(), 0, 5) is None


def test_kinds_of_blocks_are_those_of_the_raft_core() -> None:
    ours = (NORMAL_BLOCK, TERM_BLOCK, MEMBERS_BLOCK, ROLL_BLOCK)
    theirs = (raft_block.NORMAL, raft_block.TERM, raft_block.MEMBERS, raft_block.ROLL)
    assert ours == theirs


def test_no_flipped_bit_makes_another_kind_of_record_of_roll_and_members() -> None:
    kinds = [value for name, value in vars(records).items() if name in _KINDS]
    assert len(kinds) == len(_KINDS)
    for kind in (records.ROLL, records.MEMBERS):
        others = [other for other in kinds if other != kind]
        assert min((kind ^ other).bit_count() for other in others) > 1


_KINDS = (
    *("NOTHING", "MESSAGE", "COPY", "GONE", "RETURNED", "MARK", "DEFINE", "BLOCK", "END", "CHUNK"),
    *("STREAM", "CURSOR", "TRIM", "KEYS", "FILES", "CAME", "STAMP", "ROLL", "MEMBERS"),
)


def test_records_are_shown() -> None:
    pieces = [encode_stamp(5, 7, ROLL_BLOCK), encode_roll(12, TERMS[:2], MEMBERS)]
    pieces.append(encode_members_record(MEMBERS))
    data = encode_head(12) + encode_block_head(pieces, 9) + b"".join(pieces)
    shown = {entry.kind: entry.fields for entry in dump(data, "0000000000000012.log")}
    assert shown["roll"] == {"file": 12, "terms": "1@1,4@90", "members_bytes": 9}
    assert shown["members"] == {"members_bytes": 9}
    assert shown["stamp"] == {"time_ms": 5, "term": 7, "kind": ROLL_BLOCK}
