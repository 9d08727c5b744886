"""Positions of one group's snapshot and entries, as columns instead of an object for each entry.

The entries after the snapshot have consecutive indexes, so their columns hold no index. Of the
entries up to the snapshot only the live ones are kept, with their indexes. Every change tells the
`Space` which bytes are no longer referenced. The store makes the same changes when it writes a
record as a start does when it reads it back, so that both agree.
"""

from array import array

from mypy_extensions import i64

from leveret.cluster.raft.entry import NOBODY, Members
from leveret.cluster.store.places import Space, file_of


def _let_go(at: "array[int]", size: "array[int]", begin: i64, end: i64, space: Space) -> None:
    """Nobody points to these entries any more; neighbours are mostly in one file."""
    file: i64 = 0
    total: i64 = 0
    for here in range(begin, end):
        found = file_of(at[here])
        if found != file:
            if total:
                space.lose(file, total)
            file = found
            total = 0
        total += i64(size[here])
    if total:
        space.lose(file, total)


class Group:
    """What the log has of one group."""

    def __init__(self, members: Members) -> None:
        self.members = members  # that it began with
        self.term: i64 = 0
        self.vote: i64 = NOBODY
        self.commit: i64 = 0
        # The snapshot; size 0: none
        self.snapshot_index: i64 = 0
        self.snapshot_at: i64 = 0
        self.snapshot_size: i64 = 0
        # Entries after the snapshot
        self.first: i64 = 1
        self.at: array[int] = array("q")
        self.size: array[int] = array("I")
        # Live entries up to the snapshot, ascending
        self.kept: array[int] = array("q")
        self.kept_at: array[int] = array("q")
        self.kept_size: array[int] = array("I")

    def last(self) -> i64:
        return self.first - 1 + len(self.at)

    def append(self, at: i64, size: i64) -> None:
        """One entry more; the caller tells the space."""
        self.at.append(at)
        self.size.append(size)

    def cut(self, first: i64, space: Space) -> None:
        """Entries from `first` on are replaced."""
        keep = first - self.first
        assert 0 <= keep <= len(self.at)
        if keep == len(self.at):
            return
        _let_go(self.at, self.size, keep, len(self.at), space)
        del self.at[keep:]
        del self.size[keep:]

    def has_all(self, index: i64, live: list[int]) -> bool:
        """Whether all of these are there, ascending and not beyond `index`."""
        before: i64 = 0
        for number in live:
            if number <= before or number > index or self.find(number) == 0:
                return False
            before = number
        return True

    def snapshot(self, index: i64, live: list[int], at: i64, size: i64, space: Space) -> None:
        """A snapshot made here: of the entries up to it only the live ones stay."""
        assert index >= self.first - 1
        kept: array[int] = array("q")
        kept_at: array[int] = array("q")
        kept_size: array[int] = array("I")
        old = 0
        for number in live:
            here = number - self.first
            kept.append(number)
            if here >= 0:
                kept_at.append(self.at[here])
                kept_size.append(self.size[here])
            else:
                while self.kept[old] < number:
                    old += 1
                assert self.kept[old] == number
                kept_at.append(self.kept_at[old])
                kept_size.append(self.kept_size[old])
        for here in range(len(kept)):
            space.gain(file_of(kept_at[here]), kept_size[here])
        self._drop_up_to(index, space)
        self.kept = kept
        self.kept_at = kept_at
        self.kept_size = kept_size
        self.move_snapshot(at, size, space)
        self.snapshot_index = index

    def install(self, index: i64, at: i64, size: i64, space: Space) -> None:
        """A snapshot of the leader: nothing else is left. Its entries follow by `keep`."""
        self._drop_up_to(max(index, self.last()), space)
        self.first = index + 1
        self.move_snapshot(at, size, space)
        self.snapshot_index = index

    def keep(self, index: i64, at: i64, size: i64, space: Space) -> None:
        """A live entry of the snapshot that was just installed."""
        self.kept.append(index)
        self.kept_at.append(at)
        self.kept_size.append(size)
        space.gain(file_of(at), size)

    def _drop_up_to(self, index: i64, space: Space) -> None:
        """Forget all entries up to `index`, the kept ones among them."""
        count = min(index + 1 - self.first, i64(len(self.at)))
        _let_go(self.at, self.size, 0, count, space)
        del self.at[:count]
        del self.size[:count]
        self.first = index + 1
        _let_go(self.kept_at, self.kept_size, 0, len(self.kept), space)
        self.kept = array("q")
        self.kept_at = array("q")
        self.kept_size = array("I")

    def drop(self, space: Space) -> None:
        """The group is deleted."""
        self._drop_up_to(self.last(), space)
        if self.snapshot_size:
            space.lose(file_of(self.snapshot_at), self.snapshot_size)

    # Looking, and moving

    def find(self, index: i64) -> i64:
        """Where an entry stands; 0: nowhere."""
        here = index - self.first
        if here >= len(self.at):
            return 0
        if here >= 0:
            return self.at[here]
        here = self._kept_place(index)
        return self.kept_at[here] if here >= 0 else 0

    def size_of(self, index: i64) -> i64:
        """The size of an entry that is there."""
        here = index - self.first
        if here >= 0:
            return self.size[here]
        return self.kept_size[self._kept_place(index)]

    def _kept_place(self, index: i64) -> i64:
        """Which of the kept ones it is; -1: none."""
        low: i64 = 0
        high: i64 = len(self.kept)
        while low < high:
            middle = (low + high) // 2
            if self.kept[middle] < index:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self.kept) and self.kept[low] == index else -1

    def move(self, index: i64, at: i64, space: Space) -> None:
        """An entry that is there stands somewhere else now."""
        here = index - self.first
        if here >= 0:
            size = i64(self.size[here])
            before = i64(self.at[here])
            self.at[here] = at
        else:
            here = self._kept_place(index)
            assert here >= 0
            size = self.kept_size[here]
            before = self.kept_at[here]
            self.kept_at[here] = at
        space.lose(file_of(before), size)
        space.gain(file_of(at), size)

    def move_snapshot(self, at: i64, size: i64, space: Space) -> None:
        if self.snapshot_size:
            space.lose(file_of(self.snapshot_at), self.snapshot_size)
        self.snapshot_at = at
        self.snapshot_size = size
        space.gain(file_of(at), size)
