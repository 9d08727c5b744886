"""The jobs of the log's thread."""

from collections.abc import Callable
from typing import Final

from leveret.journal.chunks import WrittenChunk
from leveret.journal.pieces import read_pieces
from leveret.storage.blocks import BLOCK_HEAD_BYTES, encode_block_head

# Upper bounds of the histogram of `WriteJob.sync_s`, in seconds.
SYNC_BOUNDS_S: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.5,
    2,
)


class WriteJob:
    """One task for the log's thread, in two halves: write a block, then settle its effects.

    The first half writes and syncs the block, and creates the next file if this one is full. The
    second half may begin when the block is committed: nothing can take the block back any more.
    It puts chunks into segments, writes the checkpoint of the next file, and removes files. On a
    single node a block is committed when it is synced, so both halves are done at once.

    In a replicated log the first block of a file is a ROLL block, with the checkpoint inside. Its
    job creates the file (`new_file`), and follows the job that filled the file before it.

    A job without a block begins the first file of a node, or only removes files.
    """

    def __init__(self, pieces: list[bytes], number: int, offset: int, file: int) -> None:
        self.pieces = pieces
        self.has_head = False  # the pieces begin with the head of the block
        self.number = number
        self.offset = offset
        self.file = file  # number of the file to which the block goes
        self.definitions = 0  # definitions that are safe with this block
        self.released: list[int] = []  # positions to release when the block is committed
        self.removable: list[int] = []  # files to remove when the block is committed
        self.chunks: list[WrittenChunk] = []  # stream chunks to append to their segments
        self.dropped: list[tuple[int, int]] = []  # segments to remove when the block is committed
        # Files to remove before the block is written: a full disk needs their space.
        self.removable_now: list[int] = []
        self.is_written = not pieces
        self.is_next_created = False  # the next file is created
        self.is_committed = False  # the second half may be done
        self.is_next_begun = False  # the checkpoint of the next file is written
        self.is_done = False  # both halves are done
        self.sync_s = 0.0  # time for writing and syncing the block
        self.next_file = 0  # number of the file to begin after this block; 0 = none
        # Number of the file that this block begins, in a replicated log; 0 = none
        self.new_file = 0
        self.full_file = 0  # number of the file before `new_file`
        self.index = b""  # index of the full file
        self.checkpoint: list[bytes] = []  # records of the checkpoint for the new file
        # Callers of `Log.roll` that wait for the new file.
        self.on_rolled: list[Callable[[int], None]] = []
        self.files: dict[int, int] = {}  # sizes of the older files, for the checkpoint

    def has_disk_effects(self) -> bool:
        """Return True if the second half changes files."""
        return bool(
            self.chunks or self.dropped or self.removable or self.next_file or self.new_file
        )

    def encoded(self) -> list[bytes]:
        """Return the pieces of the block with its head."""
        if self.has_head:
            return self.pieces
        return [encode_block_head(self.pieces, self.number), *self.pieces]

    def join(self) -> bytes:
        """Make one piece of the block and its head, and return it."""
        data = b"".join(self.encoded())
        self.pieces = [data]
        self.has_head = True
        return data

    def holds(self, file: int, offset: int) -> bool:
        """Return True if a record at this place is in this block, or in a later one."""
        return file == self.file and offset >= self.offset + BLOCK_HEAD_BYTES

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of the file from this block."""
        start = self.offset if self.has_head else self.offset + BLOCK_HEAD_BYTES
        return read_pieces(self.pieces, offset - start, size)
