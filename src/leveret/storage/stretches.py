"""What the log holds of one queue, in ascending order and each message once.

Mostly the log has it so: file by file, one after the other. But a message that was copied out of a
sparse file stands behind younger ones, and in two files if the node died before the sparse one was
removed; then the copy in the later file counts. `stretches` merges what is in disorder by whole
stretches of messages, not one by one.
"""

from array import array
from bisect import bisect_left
from heapq import heappop, heappush

from mypy_extensions import i64

from leveret.storage.replay import Part


class Stretch:
    """Messages of one log file in ascending order, as columns."""

    def __init__(self, file: i64, columns: "Columns", first: i64, end: i64) -> None:
        self.file = file
        self.columns = columns
        self.first = first  # index of its first message in the columns
        self.end = end  # index behind its last

    def __len__(self) -> int:
        return self.end - self.first

    def seqs(self) -> "array[int]":
        return self.columns.seqs[self.first : self.end]

    def offsets(self) -> "array[int]":
        return self.columns.offsets[self.first : self.end]

    def sizes(self) -> "array[int]":
        return self.columns.sizes[self.first : self.end]

    def priorities(self) -> "array[int]":
        return self.columns.priorities[self.first : self.end]

    def dues(self) -> "array[int]":
        """When messages are due; empty where none was to wait."""
        return self.columns.dues[self.first : self.end]


class Columns:
    """The columns of one part."""

    def __init__(self, part: Part) -> None:
        self.seqs = part.seqs()
        self.offsets = part.offsets()
        self.sizes = part.sizes()
        self.priorities = part.priorities()
        self.dues = part.dues()


def is_in_order(parts: list[Part]) -> bool:
    """Whether the parts, one after the other, are ascending."""
    last: i64 = -1
    for part in parts:
        if not part.is_ascending or part.first <= last:
            return False
        last = part.last
    return True


def whole(part: Part) -> Stretch:
    """A part that is in order."""
    columns = Columns(part)
    return Stretch(part.file, columns, 0, len(columns.seqs))


def stretches(parts: list[Part], superseded: dict[int, set[int]]) -> list[Stretch]:
    """All messages of parts that are in disorder, in order.

    `superseded` is told which offsets of which files do not count, because there is a later copy.
    """
    pieces: list[Stretch] = []
    for part in parts:
        _split(part, pieces)
    heads: list[tuple[int, int, int]] = []  # number, file negated, piece: the later file is first
    for index, piece in enumerate(pieces):
        heappush(heads, (piece.columns.seqs[piece.first], -piece.file, index))
    found: list[Stretch] = []
    done: i64 = -1  # the last number found
    while heads:
        seq, _, index = heappop(heads)
        piece = pieces[index]
        if seq > done:
            end = piece.first + 1
            if heads:
                end = bisect_left(piece.columns.seqs, heads[0][0], end, piece.end)
            else:
                end = piece.end
            _add(found, piece, end)
            done = piece.columns.seqs[end - 1]
            piece.first = end
        else:
            offsets = superseded.setdefault(piece.file, set())
            offsets.add(piece.columns.offsets[piece.first])
            piece.first += 1
        if len(piece) != 0:
            heappush(heads, (piece.columns.seqs[piece.first], -piece.file, index))
    return found


def _split(part: Part, pieces: list[Stretch]) -> None:
    """Cut a part where its numbers go down."""
    columns = Columns(part)
    first: i64 = 0
    if not part.is_ascending:
        last: i64 = -1
        index: i64 = 0
        for number in columns.seqs:
            seq: i64 = number
            if seq <= last:
                pieces.append(Stretch(part.file, columns, first, index))
                first = index
            last = seq
            index += 1
    pieces.append(Stretch(part.file, columns, first, len(columns.seqs)))


def _add(found: list[Stretch], piece: Stretch, end: i64) -> None:
    """Note the next messages of a piece, with those before them where they are neighbours."""
    if found and found[-1].columns is piece.columns and found[-1].end == piece.first:
        found[-1].end = end
    else:
        found.append(Stretch(piece.file, piece.columns, piece.first, end))
