"""Merges the messages of one queue into ascending order, each message once.

Mostly the log holds them in this order already, file by file. But compaction copies a message
behind younger ones, and if the node dies before the old file is removed, the message stands in two
files. Then the copy in the later file counts. `merge_ranges` merges whole ranges of messages, not
one message at a time.
"""

from array import array
from bisect import bisect_left
from heapq import heappop, heappush

from mypy_extensions import i64

from leveret.storage.replay import FileMessages


class MessageRange:
    """Messages of one log file in ascending order, as columns."""

    def __init__(self, file: i64, columns: "MessageColumns", first: i64, end: i64) -> None:
        self.file = file
        self.columns = columns
        self.first = first  # index of the first message in the columns
        self.end = end  # index after the last message

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
        """Return due times; empty if no message was scheduled."""
        return self.columns.dues[self.first : self.end]


class MessageColumns:
    """The columns of one queue's messages in one log file, decoded once."""

    def __init__(self, messages: FileMessages) -> None:
        self.seqs = messages.seqs()
        self.offsets = messages.offsets()
        self.sizes = messages.sizes()
        self.priorities = messages.priorities()
        self.dues = messages.dues()


def is_in_order(files: list[FileMessages]) -> bool:
    """Return True if the messages of all files, one after the other, are ascending."""
    last: i64 = -1
    for messages in files:
        if not messages.is_ascending or messages.first <= last:
            return False
        last = messages.last
    return True


def whole_range(messages: FileMessages) -> MessageRange:
    """Return the messages of a file that are already in order, as one range."""
    columns = MessageColumns(messages)
    return MessageRange(messages.file, columns, 0, len(columns.seqs))


def merge_ranges(files: list[FileMessages], superseded: dict[int, set[int]]) -> list[MessageRange]:
    """Merge messages that are not in order, and return them as ascending ranges.

    Positions of older copies are added to `superseded`: offsets by file.
    """
    pieces: list[MessageRange] = []
    for messages in files:
        _split(messages, pieces)
    # Sequence number, negated file number, piece: the later file comes first.
    heads: list[tuple[int, int, int]] = []
    for index, piece in enumerate(pieces):
        heappush(heads, (piece.columns.seqs[piece.first], -piece.file, index))
    found: list[MessageRange] = []
    done: i64 = -1  # the last sequence number found
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


def _split(messages: FileMessages, pieces: list[MessageRange]) -> None:
    """Cut the messages of a file wherever their sequence numbers go down."""
    columns = MessageColumns(messages)
    first: i64 = 0
    if not messages.is_ascending:
        last: i64 = -1
        index: i64 = 0
        for number in columns.seqs:
            seq: i64 = number
            if seq <= last:
                pieces.append(MessageRange(messages.file, columns, first, index))
                first = index
            last = seq
            index += 1
    pieces.append(MessageRange(messages.file, columns, first, len(columns.seqs)))


def _add(found: list[MessageRange], piece: MessageRange, end: i64) -> None:
    """Add the next messages of a piece, and extend the last range if they follow it."""
    if found and found[-1].columns is piece.columns and found[-1].end == piece.first:
        found[-1].end = end
    else:
        found.append(MessageRange(piece.file, piece.columns, piece.first, end))
