"""The current block of the log: all records since the last block was taken.

The engine appends records, and gets the log position of each message at once. This is possible
because blocks are written one after the other, so that the position of the next block is known when
the last one is taken (`begin_block`). A body over `BIG_BODY_BYTES` is a separate piece of the block
and is never copied.

A message that goes to several queues is written once. Its further copies refer back to it, if they
follow it directly, as they do in one publish. Streams collect their messages in chunks, which are
written when the block is taken.

The journal also counts the live messages of each log file: a file without live messages can be
removed. The last messages of a sparse file are written again (`rewrite`), so that the old file can
be removed. A `Message` in memory keeps its old position. `moved` maps it to the new one, until
`current_position` is asked for it.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from leveret.journal.chunks import ChunkWriter, WrittenChunk
from leveret.journal.index import ENTRY_BYTES, write_entry
from leveret.journal.pieces import read_pieces
from leveret.journal.records import (
    BLOCK,
    CAME,
    CHUNK,
    COPY,
    COPY_BYTES,
    CURSOR,
    DEFINE,
    END,
    GONE,
    KEY_BYTES,
    KEYS,
    KEYS_HEAD_BYTES,
    MARK,
    MESSAGE,
    NOTHING,
    NOWHERE,
    OFFSET_BITS,
    RETURNED,
    SPILLED,
    STREAM,
    TRIM,
    write_copy,
    write_head,
)

BIG_BODY_BYTES: Final = 16384  # larger bodies are not copied into the block


class Journal:
    """Collects the records of the current block, and counts live messages by log file."""

    def __init__(self) -> None:
        self.file: i64 = 0  # number of the log file to which the block will be written
        self.start: i64 = 0  # offset of the block's first record in that file
        self.live: dict[int, int] = {}  # messages that are not released, by log file
        self.totals: dict[int, int] = {}  # messages that were written to each full file
        self.releases: i64 = 0  # released messages since the compaction last reset it
        self.has_emptied = False  # an older file has no live message any more
        self.must_sync = False  # a client waits for the block; a block of acks alone can wait
        self.definitions: i64 = 0  # definitions written since the start
        self.synced_definitions: i64 = 0  # the first of them, which are on disk
        self._writer = BytesWriter()
        self._pieces: list[bytes] = []
        self._piece_bytes: i64 = 0
        self._index = BytesWriter()  # index of the current file
        self._spilled: i64 = 0  # spilled messages of the current file, which its index leaves out
        self._released: list[int] = []  # positions to release when the block is on disk
        self._open: list[ChunkWriter] = []  # streams with messages for this block
        self._written: list[WrittenChunk] = []  # finished chunks of the block
        self._dropped: list[tuple[int, int]] = []  # segments to remove when the block is on disk
        # Messages that are being copied out of a sparse file
        self.is_moving = False  # one of the following is set
        self.moving_file: i64 = NOWHERE  # the file that is being emptied
        self.pinned: set[int] = set()  # positions in that file that must not be copied any more
        self.moved: dict[int, int] = {}  # old position -> new one, of messages in memory
        # The last message written, for the copies that follow it.
        self._last_address: bytes | None = None
        self._last_header: bytes | None = None
        self._last_body: bytes | None = None
        self._last_at: i64 = 0

    def size(self) -> i64:
        """Return the bytes of records in the block so far."""
        return self._piece_bytes + len(self._writer)

    def waiting_bytes(self) -> i64:
        """Estimate the bytes that wait to be written: records, and open chunks."""
        waiting = self.size()
        for chunk in self._open:
            waiting += chunk.size()
        return waiting

    def has_news(self) -> bool:
        """Return True if the block holds more than acks: clients may be told of its content."""
        if self._last_body is not None or len(self._open) != 0 or len(self._written) != 0:
            return True
        return self.must_sync and self.size() != 0

    def begin_block(self, file: i64, start: i64) -> None:
        """Set the position of the next block; the current block must be empty."""
        assert self.size() == 0
        self.file = file
        self.start = start

    def take_block(self) -> list[bytes]:
        """Return the pieces of the block; the next block starts empty."""
        self.close_chunks()
        pieces = self._pieces
        if len(self._writer) != 0:
            pieces.append(self._writer.getvalue())
            self._writer.truncate(0)
        self._pieces = []
        self._piece_bytes = 0
        self._last_header = None
        self._last_body = None
        self.must_sync = False
        return pieces

    def take_index(self) -> bytes:
        """Return the index of the current file; the next file starts with an empty index."""
        index = self._index.getvalue()
        self._index = BytesWriter()
        self.totals[self.file] = len(index) // ENTRY_BYTES + self._spilled
        self._spilled = 0
        return index

    def write_message(
        self,
        queue: i64,
        seq: i64,
        expires_ms: i64,
        due_ms: i64,
        priority: i64,
        flags: i64,
        address: bytes,
        header: bytes,
        body: bytes,
    ) -> i64:
        """Write one copy of a message and return its position."""
        at = self.size()
        writer = self._writer
        if (
            body is self._last_body
            and header is self._last_header
            and address is self._last_address
        ):
            write_head(writer, COPY, COPY_BYTES + 4)
            write_copy(writer, queue, seq, expires_ms, due_ms, priority, flags)
            write_i32_be(writer, i32(at - self._last_at))
        else:
            self._last_address = address
            self._last_header = header
            self._last_body = body
            self._last_at = at
            size: i64 = len(body)
            write_head(writer, MESSAGE, COPY_BYTES + len(address) + 4 + len(header) + size)
            write_copy(writer, queue, seq, expires_ms, due_ms, priority, flags)
            writer.write(address)
            write_i32_be(writer, i32(len(header)))
            writer.write(header)
            if size > BIG_BODY_BYTES:
                self._add_piece(body)
            else:
                writer.write(body)
        self.live[self.file] = self.live.get(self.file, 0) + 1
        if queue != SPILLED:
            write_entry(self._index, queue, self.start + at, seq, priority, len(body), due_ms)
        else:
            self._spilled += 1
        return self.file << OFFSET_BITS | (self.start + at)

    def rewrite(self, payload: bytes, body_bytes: i64, old: i64) -> i64:
        """Write a message of an older file again, and return its new position.

        `payload` is the payload of a MESSAGE record. The old position is released when this block
        is on disk.
        """
        at = self.size()
        size: i64 = len(payload)
        write_head(self._writer, MESSAGE, size)
        if size > BIG_BODY_BYTES:
            self._add_piece(payload)
        else:
            self._writer.write(payload)
        self.live[self.file] = self.live.get(self.file, 0) + 1
        queue = read_i64_be(payload, 0)
        if queue != SPILLED:
            seq = read_i64_be(payload, 8)
            due_ms = read_i64_be(payload, 24)
            priority = i64(read_i32_be(payload, 32))
            write_entry(self._index, queue, self.start + at, seq, priority, body_bytes, due_ms)
        else:
            self._spilled += 1
        self._released.append(old)
        self.must_sync = True
        return self.file << OFFSET_BITS | (self.start + at)

    def begin_moving(self, file: i64) -> None:
        """Start to copy the live messages of this file to the current one."""
        assert self.moving_file == NOWHERE
        self.moving_file = file
        self.is_moving = True

    def end_moving(self) -> None:
        """Stop copying messages of the file that `begin_moving` named."""
        self.moving_file = NOWHERE
        self.pinned = set()
        self.is_moving = bool(self.moved)

    def current_position(self, position: i64) -> i64:
        """Return the current position of a message in memory.

        The caller stores the position. If it is in the file that is being emptied, it is pinned:
        that message is not copied any more.
        """
        while position in self.moved:
            position = self.moved.pop(position)
        if position >> OFFSET_BITS == self.moving_file and position != NOWHERE:
            self.pinned.add(position)
        self.is_moving = self.moving_file != NOWHERE or bool(self.moved)
        return position

    def release(self, position: i64) -> None:
        """Release a message: its file has one live message less."""
        if position != NOWHERE:
            if self.is_moving:
                position = self.current_position(position)
            self.release_many(position >> OFFSET_BITS, 1)

    def release_later(self, position: i64) -> None:
        """Release a message when this block, which replaces it, is on disk."""
        if position != NOWHERE:
            if self.is_moving:
                position = self.current_position(position)
            self._released.append(position)

    def release_now(self, positions: list[int]) -> None:
        """Release the positions of `take_released`: their block is on disk."""
        for position in positions:
            self.release_many(i64(position) >> OFFSET_BITS, 1)

    def take_released(self) -> list[int]:
        """Return the positions to release when the block that was taken is on disk."""
        released = self._released
        self._released = []
        return released

    def release_many(self, file: i64, count: i64) -> None:
        """Release a number of messages of one file."""
        left = self.live[file] - count
        self.live[file] = left
        self.releases += count
        if left == 0 and file != self.file:
            self.has_emptied = True

    def read(self, offset: i64, size: i64) -> bytes:
        """Return up to `size` bytes of the records so far, from an offset in the file."""
        at = offset - self.start
        if at + size <= self._piece_bytes:
            return read_pieces(self._pieces, at, size)
        return read_pieces([*self._pieces, self._writer.getvalue()], at, size)

    def _add_piece(self, body: bytes) -> None:
        self._pieces.append(self._writer.getvalue())
        self._piece_bytes += len(self._writer) + len(body)
        self._writer.truncate(0)
        self._pieces.append(body)

    def open_chunk(self, chunk: ChunkWriter) -> None:
        """Note that a stream has messages for this block."""
        chunk.is_open = True
        self._open.append(chunk)

    def close_chunks(self) -> None:
        """Write the open chunks of all streams."""
        if self._open:
            chunks = self._open
            self._open = []
            for chunk in chunks:
                chunk.is_open = False
                self.write_chunk(chunk)

    def write_chunk(self, chunk: ChunkWriter) -> None:
        """Write the chunk of a stream, unless it is empty."""
        if chunk.count == 0:
            return
        written = chunk.close()
        write_head(self._writer, CHUNK, 8 + len(written.data))
        write_i64_be(self._writer, chunk.stream)
        self._add_piece(written.data)
        self._written.append(written)

    def forget_chunks(self, chunk: ChunkWriter) -> None:
        """Copy no chunk of this block to the segments of a stream that is deleted in it."""
        self.write_chunk(chunk)
        self._written = [written for written in self._written if written.owner is not chunk]

    def take_written(self) -> list[WrittenChunk]:
        """Return the chunks of the block that was taken."""
        written = self._written
        self._written = []
        return written

    def drop_segment(self, stream: i64, segment: i64) -> None:
        """Remove a segment when this block is on disk."""
        self._dropped.append((stream, segment))

    def take_dropped(self) -> list[tuple[int, int]]:
        """Return the segments to remove when the block that was taken is on disk."""
        dropped = self._dropped
        self._dropped = []
        return dropped

    def write_stream(self, chunk: ChunkWriter, first_offset: i64) -> None:
        """Write where a stream begins and ends, for a checkpoint."""
        writer = self._writer
        position = chunk.position
        write_head(writer, STREAM, 56)
        write_i64_be(writer, chunk.stream)
        write_i64_be(writer, first_offset)
        write_i64_be(writer, position.segment)
        write_i64_be(writer, position.at)
        write_i64_be(writer, position.began_ms)
        write_i64_be(writer, chunk.next_offset)
        write_i64_be(writer, chunk.last_ms)

    def write_trim(self, stream: i64, first_offset: i64) -> None:
        """Write that a stream has dropped its messages before an offset."""
        writer = self._writer
        write_head(writer, TRIM, 16)
        write_i64_be(writer, stream)
        write_i64_be(writer, first_offset)

    def write_cursor(self, stream: i64, offset: i64, name: bytes) -> None:
        """Write the offset of a named cursor; -1 deletes the cursor."""
        writer = self._writer
        write_head(writer, CURSOR, 16 + len(name))
        write_i64_be(writer, stream)
        write_i64_be(writer, offset)
        writer.write(name)

    def write_gone(self, queue: i64, runs: list[int]) -> None:
        """Write which messages are settled: first and last sequence numbers of runs in turn."""
        writer = self._writer
        write_head(writer, GONE, 8 + 8 * len(runs))
        write_i64_be(writer, queue)
        for seq in runs:
            write_i64_be(writer, seq)

    def write_returned(
        self, queue: i64, seq: i64, returns: i64, failures: i64, due_ms: i64
    ) -> None:
        """Write that a message came back; `due_ms` is 0 or the time until which it waits."""
        writer = self._writer
        write_head(writer, RETURNED, 32)
        write_i64_be(writer, queue)
        write_i64_be(writer, seq)
        write_i32_be(writer, i32(returns))
        write_i32_be(writer, i32(failures))
        write_i64_be(writer, due_ms)

    def write_mark(self, queue: i64, delivered: i64) -> None:
        """Write that messages up to this number may have been delivered."""
        writer = self._writer
        write_head(writer, MARK, 16)
        write_i64_be(writer, queue)
        write_i64_be(writer, delivered)

    def write_came(self, queue: i64, marks: list[int]) -> None:
        """Write when messages arrived: first sequence numbers and times in turn."""
        writer = self._writer
        write_head(writer, CAME, 8 + 8 * len(marks))
        write_i64_be(writer, queue)
        for number in marks:
            write_i64_be(writer, number)

    def write_key(self, owner: i64, time_ms: i64, digest: bytes) -> None:
        """Write a deduplication key that is remembered from now on."""
        writer = self._writer
        write_head(writer, KEYS, KEYS_HEAD_BYTES + KEY_BYTES)
        write_i64_be(writer, owner)
        write_i32_be(writer, 1)
        write_i64_be(writer, time_ms)
        writer.write(digest)

    def write_keys(self, owner: i64, columns: bytes) -> None:
        """Write remembered keys for a checkpoint, oldest first: all times, then all digests."""
        count: i64 = len(columns) // KEY_BYTES
        assert len(columns) == KEY_BYTES * count
        write_head(self._writer, KEYS, KEYS_HEAD_BYTES + KEY_BYTES * count)
        write_i64_be(self._writer, owner)
        write_i32_be(self._writer, i32(count))
        self._add_piece(columns)

    def write_block_number(self, number: i64) -> None:
        """Write the number of the last block before a checkpoint."""
        write_head(self._writer, BLOCK, 8)
        write_i64_be(self._writer, number)

    def write_nothing(self) -> None:
        """Write an empty record, so that there is a block to wait for."""
        write_head(self._writer, NOTHING, 0)
        self.must_sync = True

    def write_end(self) -> None:
        """Write that the node stops in order: the delivered messages are known exactly."""
        self.close_chunks()
        write_head(self._writer, END, 0)

    def write_definition(self, table: bytes) -> None:
        """Write that a definition was made or deleted."""
        write_head(self._writer, DEFINE, len(table))
        self._writer.write(table)
        self.definitions += 1
        self.must_sync = True
