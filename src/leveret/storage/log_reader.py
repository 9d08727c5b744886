"""Reads waiting messages back from the log, one page at a time.

Messages of one queue mostly stand close together, so one system call reads many of them. A message
that does not fit (a large body, or a copy whose MESSAGE record is further back) is read on its own.
Blocks of files from an earlier run of the node are verified before their first use. Bytes that are
not a valid block are noted as damaged and skipped; messages in them cannot be read.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from leveret.checksum import crc32
from leveret.engine.backlog.page_reader import PageReader
from leveret.engine.backlog.paged import PagedRun
from leveret.engine.message import LOGGED, NO_ADDRESS, Address, Message, read_address
from leveret.errors import CorruptionError
from leveret.journal.records import (
    COPY,
    COPY_BYTES,
    MESSAGE,
    OFFSET_BITS,
    RECORD_HEAD_BYTES,
    SPILLED,
)
from leveret.storage.block_search import find_block
from leveret.storage.blocks import BLOCK_BYTES_MAX, BLOCK_HEAD_BYTES, HEAD_BYTES
from leveret.storage.file_names import log_name
from leveret.storage.message_records import CopyFields, distance_to_message, fill_message

PAGE_MESSAGES: Final = 1024
PAGE_BYTES: Final = 1024 * 1024
SIFT_MESSAGES: Final = 8192  # searched at once, without decoding them

_GAP_BYTES: Final = 65536  # a gap up to this size is read along instead of starting a new read
_AHEAD_BYTES: Final = 4096  # read beyond the start of the last message, whose size is not known yet
_SEARCH_BYTES: Final = 16 * 1024 * 1024  # read at once when searching for the next valid block
_NO_LIMIT: Final = 1 << 62


class LogReader(PageReader):
    """Reads messages by log file and offset."""

    def __init__(self, read_bytes: Callable[[int, int, int], bytes]) -> None:
        # File, offset, size -> bytes; fewer bytes only at the end of the file.
        self._read_bytes = read_bytes
        self.trusted_from: i64 = 1 << 62  # files from this number on were written by this process
        self._verified: dict[int, int] = {}  # end of the verified bytes, by file
        self._blocks: dict[int, int] = {}  # number of the last verified block, by file
        # Consecutive messages mostly have the same address, so the last one is kept decoded.
        self._address: Address = NO_ADDRESS
        self._address_record = b""
        # Ranges that are not a valid block, by file.
        self._damaged: dict[int, list[tuple[int, int]]] = {}

    def read(self, run: PagedRun, slot: i64) -> list[Message]:
        messages: list[Message] = []
        self._read(run, slot, messages, None)
        return messages

    def payloads(self, run: PagedRun) -> list[bytes]:
        """Return the next messages of a run, as payloads of complete MESSAGE records."""
        payloads: list[bytes] = []
        self._read(run, 0, [], payloads)
        return payloads

    def verify(self, file: i64, bytes_max: i64) -> bool:
        """Verify the next `bytes_max` bytes of a file; return True if all of it is verified."""
        if file >= self.trusted_from:
            return True
        first: i64 = self._verified.get(file, HEAD_BYTES)
        at = first
        while at - first < bytes_max:
            if not self._read_bytes(file, at, 1):
                return True
            self._verify(file, at + 1)
            at = self._verified[file]
        return False

    def prepare(self, run: PagedRun) -> bool:
        if run.file >= self.trusted_from:
            return True
        end: i64 = min(run.at + SIFT_MESSAGES, len(run.offsets))
        last: i64 = run.offsets[end - 1]
        if i64(self._verified.get(run.file, HEAD_BYTES)) > last:
            return True
        self.verify(run.file, PAGE_BYTES)
        return i64(self._verified.get(run.file, HEAD_BYTES)) > last

    def sift(self, run: PagedRun, slot: i64, needle: bytes) -> tuple[list[Message], i64]:
        """Return the messages that may contain `needle`, and how many messages were searched.

        Messages that stand close together are read by one call, and searched before any is decoded.
        """
        count = self._count_close(run) if needle else 0
        if count <= 1:
            messages = self.read(run, slot)
            return messages, len(messages)
        offsets: list[int] = run.offsets[run.at : run.at + count].tolist()
        start: i64 = offsets[0]
        if run.file < self.trusted_from:
            self._verify(run.file, offsets[count - 1] + 1)
        data = self._read_bytes(run.file, start, offsets[count - 1] - start + _AHEAD_BYTES)
        found: list[Message] = []
        for index in _find_candidates(data, offsets, start, needle):
            offset: i64 = offsets[index]
            if self._damaged and self._damage_at(run.file, offset) >= 0:
                if index == 0:
                    raise self._damage_error(run.file, offset)
                return found, index
            found.append(self._message(run.file, offset, data, start, slot))
        return found, count

    def _count_close(self, run: PagedRun) -> i64:
        """Return how many of the next messages of a run can be read by one call."""
        offsets = run.offsets
        at = run.at
        most = min(run.left(), SIFT_MESSAGES)
        start: i64 = offsets[at]
        before = start
        count: i64 = 0
        while count < most:
            offset: i64 = offsets[at + count]
            if offset - before >= _GAP_BYTES or offset - start > PAGE_BYTES:
                break
            before = offset
            count += 1
        return count

    def _read(
        self, run: PagedRun, slot: i64, messages: list[Message], payloads: list[bytes] | None
    ) -> None:
        """Read a page of a run, as messages or as payloads."""
        count = min(run.left(), PAGE_MESSAGES)
        offsets: list[int] = run.offsets[run.at : run.at + count].tolist()
        index: i64 = 0
        total: i64 = 0  # bytes read at once
        taken: i64 = 0  # bytes of messages, including large ones that are read on their own
        while index < count and total < PAGE_BYTES and taken < PAGE_BYTES:
            start: i64 = offsets[index]
            end = index + 1
            while end < count and offsets[end] - offsets[end - 1] < _GAP_BYTES:
                if offsets[end] - start > PAGE_BYTES - total:
                    break
                end += 1
            if run.file < self.trusted_from:
                self._verify(run.file, offsets[end - 1] + 1)
            size = offsets[end - 1] - start + _AHEAD_BYTES
            data = self._read_bytes(run.file, start, size)
            total += len(data)
            while index < end:
                if self._damaged and self._damage_at(run.file, offsets[index]) >= 0:
                    if index == 0:
                        raise self._damage_error(run.file, offsets[index])
                    return
                if payloads is None:
                    message = self._message(run.file, offsets[index], data, start, slot)
                    taken += len(message.body)
                    messages.append(message)
                else:
                    payload = self._payload(run.file, offsets[index], data, start)
                    taken += len(payload)
                    payloads.append(payload)
                index += 1

    def unreadable(self, run: PagedRun) -> i64:
        """Return how many of the next messages are in damaged bytes.

        Return all of them if the read failed for another reason.
        """
        count: i64 = 0
        for offset in run.offsets[run.at :]:
            if self._damage_at(run.file, offset) < 0:
                break
            count += 1
        return count if count != 0 else run.left()

    def _damage_at(self, file: i64, offset: i64) -> i64:
        """Return the start of the damaged range that covers an offset; -1 if there is none."""
        for first, end in self._damaged.get(file, []):
            if first <= offset < end:
                return first
        return -1

    def _damage_error(self, file: i64, offset: i64) -> CorruptionError:
        return CorruptionError(
            f"{log_name(file)} is damaged at byte {self._damage_at(file, offset)}"
        )

    def _verify(self, file: i64, end: i64) -> None:
        """Verify the blocks of a file up to `end`, each once: no wrong body is ever delivered."""
        at: i64 = self._verified.get(file, HEAD_BYTES)
        last: i64 = self._blocks.get(file, 0)
        while at < end:
            head = self._read_bytes(file, at, BLOCK_HEAD_BYTES)
            size: i64 = int.from_bytes(head[:4], "big")
            data = b""
            if len(head) == BLOCK_HEAD_BYTES and size <= BLOCK_BYTES_MAX:
                data = self._read_bytes(file, at + 8, size + 8)
            if len(data) != size + 8 or crc32(data) != int.from_bytes(head[4:8], "big"):
                at = self._skip_damage(file, at, last)
            else:
                last = int.from_bytes(head[8:16], "big")
                at += BLOCK_HEAD_BYTES + size
        self._verified[file] = at
        self._blocks[file] = last

    def _skip_damage(self, file: i64, at: i64, last: i64) -> i64:
        """Note an invalid range as damaged; return where the next block begins or the file ends."""
        pieces: list[bytes] = []
        while True:
            piece = self._read_bytes(file, at + len(pieces) * _SEARCH_BYTES, _SEARCH_BYTES)
            pieces.append(piece)
            if len(piece) < _SEARCH_BYTES:
                break
        data = b"".join(pieces)
        highest: i64 = last + 1 + len(data) // 17 if last != 0 else _NO_LIMIT
        found = find_block(data, 0, last, highest)
        end: i64 = at + found if found >= 0 else _NO_LIMIT
        if file not in self._damaged:
            self._damaged[file] = []
        self._damaged[file].append((at, end))
        return end

    def _message(self, file: i64, offset: i64, data: bytes, start: i64, slot: i64) -> Message:
        record = self._record(file, offset, data, start)
        copy = CopyFields(record[RECORD_HEAD_BYTES : RECORD_HEAD_BYTES + COPY_BYTES])
        content = record
        if record[0] == COPY:
            origin = offset - distance_to_message(record[RECORD_HEAD_BYTES:])
            content = self._record(file, origin, data, start)
        if content[0] != MESSAGE:
            raise CorruptionError(f"log file {file} has no message at byte {offset}")
        payload = content[RECORD_HEAD_BYTES:]
        known = self._address_record
        if not known or not payload.startswith(known, COPY_BYTES):
            self._address, at = read_address(payload, COPY_BYTES)
            known = payload[COPY_BYTES:at]
            self._address_record = known
        message = fill_message(copy, payload, slot, self._address, COPY_BYTES + len(known))
        message.position = file << OFFSET_BITS | offset
        if copy.queue != SPILLED:
            message.flags |= LOGGED
        return message

    def _payload(self, file: i64, offset: i64, data: bytes, start: i64) -> bytes:
        """Return the payload of a complete MESSAGE record, also for a COPY record."""
        record = self._record(file, offset, data, start)
        if record[0] == COPY:
            origin = offset - distance_to_message(record[RECORD_HEAD_BYTES:])
            content = self._record(file, origin, data, start)
            if content[0] == MESSAGE:
                own = record[RECORD_HEAD_BYTES : RECORD_HEAD_BYTES + COPY_BYTES]
                return own + content[RECORD_HEAD_BYTES + COPY_BYTES :]
        elif record[0] == MESSAGE:
            return record[RECORD_HEAD_BYTES:]
        raise CorruptionError(f"log file {file} has no message at byte {offset}")

    def _record(self, file: i64, offset: i64, data: bytes, start: i64) -> bytes:
        """Return the whole record at an offset, from `data` or by reading more."""
        at = offset - start
        if at < 0 or at + RECORD_HEAD_BYTES > len(data):
            data = self._read_bytes(file, offset, _AHEAD_BYTES)
            at = 0
        if len(data) < at + RECORD_HEAD_BYTES:
            raise CorruptionError(f"log file {file} has no record at byte {offset}")
        size = RECORD_HEAD_BYTES + int.from_bytes(data[at + 1 : at + 5], "big")
        record = data[at : at + size]
        if len(record) < size:
            record = self._read_bytes(file, offset, size)
        if len(record) < size:
            raise CorruptionError(f"log file {file} has no whole record at byte {offset}")
        return record


def _find_candidates(data: bytes, offsets: list[int], start: i64, needle: bytes) -> list[int]:
    """Return which of the records at these offsets may contain `needle`.

    COPY records are always included, because their content stands elsewhere. So is the last record,
    because `data` may hold only a part of it.
    """
    hits: list[int] = []
    count: i64 = len(offsets)
    size: i64 = len(data)
    found: i64 = data.find(needle)
    index: i64 = 0
    while index < count:
        at = i64(offsets[index]) - start
        end = i64(offsets[index + 1]) - start if index + 1 < count else size
        while found >= 0 and found < at:
            found = data.find(needle, at)
        is_whole = index + 1 < count and at < size
        if (found >= 0 and found < end) or not is_whole or data[at] == COPY:
            hits.append(index)
        index += 1
    return hits
