"""What a member wrote is what it finds; a torn end is cut off, damage is refused."""

import pytest

from leveret.cluster.raft.entry import COMMAND, Entry, Members
from leveret.cluster.raft.ready import Ready
from leveret.cluster.raft.records import Recovery, encode_block
from leveret.cluster.raft.snapshot import Snapshot, decode_snapshot
from leveret.cluster.raft.stored import Stored
from leveret.errors import Corrupt, SyntaxFault

MEMBERS = Members([1, 2, 3], [])
GROUP = 7


def state(term: int, vote: int, commit: int) -> Ready:
    ready = Ready(term, vote, commit)
    ready.is_changed = True
    return ready


def entries(first: int, *terms: int) -> Ready:
    ready = Ready(0, 0, 0)
    ready.entries = [
        Entry(first + at, term, COMMAND, f"{first + at}.{term}".encode())
        for at, term in enumerate(terms)
    ]
    return ready


def blocks(*readies: Ready) -> bytes:
    return b"".join(encode_block(GROUP, ready) for ready in readies)


def read(data: bytes) -> Stored:
    recovery = Recovery()
    recovery.read(data)
    return recovery.remains(GROUP).stored(MEMBERS)


def test_term_vote_and_entries_are_found_again() -> None:
    found = read(blocks(state(3, 2, 0), entries(1, 1, 3), state(3, 2, 1)))
    assert (found.term, found.vote, found.commit) == (3, 2, 1)
    assert [(entry.index, entry.term) for entry in found.entries] == [(1, 1), (2, 3)]


def test_entries_replace_what_was_from_their_first_on() -> None:
    found = read(blocks(entries(1, 1, 1, 1), entries(2, 2)))
    assert [entry.term for entry in found.entries] == [1, 2]


def test_snapshot_keeps_live_entries_and_what_follows() -> None:
    first = entries(1, 1, 1, 1, 1)
    ready = Ready(0, 0, 0)
    ready.snapshot = Snapshot(3, 1, MEMBERS, b"state", [first.entries[1]])
    found = read(blocks(first, ready))
    assert found.snapshot is not None
    assert [entry.data for entry in found.snapshot.live] == [b"2.1"]
    assert [entry.index for entry in found.entries] == [4]
    # And a later snapshot may keep what only the earlier one has kept.
    ready.snapshot = Snapshot(4, 1, MEMBERS, b"later", [first.entries[1]])
    found = read(blocks(first, ready, ready))
    assert found.snapshot is not None
    assert [entry.index for entry in found.snapshot.live] == [2]


def test_received_snapshot_replaces_everything() -> None:
    ready = Ready(0, 0, 0)
    ready.snapshot = Snapshot(9, 4, MEMBERS, b"state", [Entry(8, 4, COMMAND, b"body")])
    ready.is_received = True
    found = read(blocks(entries(1, 1, 1), ready, entries(10, 4)))
    assert found.snapshot is not None
    assert found.snapshot.live[0].data == b"body"
    assert [entry.index for entry in found.entries] == [10]


def test_every_torn_end_is_cut_off() -> None:
    whole = blocks(state(1, 1, 0), entries(1, 1))
    last = blocks(entries(2, 1))
    for size in range(len(last)):
        recovery = Recovery()
        recovery.read(whole + last[:size])
        assert len(recovery.remains(GROUP).entries) == 1
        assert recovery.torn_bytes == size


def test_damage_before_the_last_block_is_refused_bit_by_bit() -> None:
    first = blocks(state(1, 1, 0), entries(1, 1))
    data = first + blocks(entries(2, 1))
    for spot in range(len(first)):
        broken = bytearray(data)
        broken[spot] ^= 0x10
        with pytest.raises(Corrupt):
            read(bytes(broken))


def test_group_that_was_made_anew_finds_nothing_of_the_old_one() -> None:
    recovery = Recovery()
    recovery.read(blocks(state(5, 1, 0), entries(1, 5)))
    remains = recovery.remains(GROUP + 1)
    assert (remains.term, remains.entries) == (0, [])


@pytest.mark.parametrize("size", [0, 1, 20, 60])
def test_snapshot_that_is_cut_short_is_refused(size: int) -> None:
    blob = Snapshot(3, 1, MEMBERS, b"state", [Entry(2, 1, COMMAND, b"body")]).blob()
    assert decode_snapshot(blob).state == b"state"
    with pytest.raises(SyntaxFault):
        decode_snapshot(blob[:size])
