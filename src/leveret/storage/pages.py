"""Reads waiting messages back from the log, a page at a time.

Neighbours in the log are read by one call: messages of one queue mostly stand close together. What
does not fit that (a large body, a copy whose message stands further back) is read by itself. Blocks
of files that were there before this process started are checked before anything of them is used.
Bytes that are no block are noted as damaged and passed over; messages in them cannot be read.
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
from leveret.storage.blocks import BLOCK_BYTES_MAX, BLOCK_HEAD_BYTES, HEAD_BYTES
from leveret.storage.messages import Copy, distance_of, fill_message
from leveret.storage.names import log_name
from leveret.storage.replay import find_block

PAGE_MESSAGES: Final = 1024
PAGE_BYTES: Final = 1024 * 1024
SIFT_MESSAGES: Final = 8192  # looked through at once, without being made

_GAP_BYTES: Final = 65536  # so many bytes between two messages are worth reading over
_AHEAD_BYTES: Final = 4096  # read behind the last message of a stretch, whose size is not known
_SEARCH_BYTES: Final = 16 * 1024 * 1024  # read at once in search of a whole block
_NO_LIMIT: Final = 1 << 62


class LogPages(PageReader):
    """Messages of the log, by file and offset."""

    def __init__(self, read_bytes: Callable[[int, int, int], bytes]) -> None:
        self._read_bytes = read_bytes  # file, offset, size: fewer bytes only at the end of the file
        self.trusted_from: i64 = 1 << 62  # files from this one on were written by this process
        self._verified: dict[int, int] = {}  # up to where older files were checked
        self._blocks: dict[int, int] = {}  # number of the last block before that
        # The last address: neighbours mostly have the same. It says itself where it ends.
        self._address: Address = NO_ADDRESS
        self._address_record = b""
        self._damaged: dict[int, list[tuple[int, int]]] = {}  # stretches of files that are no block

    def read(self, run: PagedRun, slot: i64) -> list[Message]:
        messages: list[Message] = []
        self._read(run, slot, messages, None)
        return messages

    def payloads(self, run: PagedRun) -> list[bytes]:
        """The next messages of a run as the payloads of MESSAGE records of their own."""
        payloads: list[bytes] = []
        self._read(run, 0, [], payloads)
        return payloads

    def verify(self, file: i64, bytes_max: i64) -> bool:
        """Check the next part of a file before it is read; whether all of it has been checked."""
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
        """Neighbours are read by one call, and searched before anything is taken apart."""
        count = self._neighbours(run) if needle else 0
        if count <= 1:
            messages = self.read(run, slot)
            return messages, len(messages)
        offsets: list[int] = run.offsets[run.at : run.at + count].tolist()
        start: i64 = offsets[0]
        if run.file < self.trusted_from:
            self._verify(run.file, offsets[count - 1] + 1)
        data = self._read_bytes(run.file, start, offsets[count - 1] - start + _AHEAD_BYTES)
        found: list[Message] = []
        for index in _hits(data, offsets, start, needle):
            offset: i64 = offsets[index]
            if self._damaged and self._damage_at(run.file, offset) >= 0:
                if index == 0:
                    raise self._corrupt(run.file, offset)
                return found, index
            found.append(self._message(run.file, offset, data, start, slot))
        return found, count

    def _neighbours(self, run: PagedRun) -> i64:
        """How many of the next messages of a run can be read by one call."""
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
        taken: i64 = 0  # bytes of messages: large ones are read by themselves
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
                        raise self._corrupt(run.file, offsets[index])
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
        """How many of the next messages stand in damaged bytes; all, if the reason is another."""
        count: i64 = 0
        for offset in run.offsets[run.at :]:
            if self._damage_at(run.file, offset) < 0:
                break
            count += 1
        return count if count != 0 else run.left()

    def _damage_at(self, file: i64, offset: i64) -> i64:
        """Where the damage that covers an offset begins; -1 where there is none."""
        for first, end in self._damaged.get(file, []):
            if first <= offset < end:
                return first
        return -1

    def _corrupt(self, file: i64, offset: i64) -> CorruptionError:
        return CorruptionError(
            f"{log_name(file)} is damaged at byte {self._damage_at(file, offset)}"
        )

    def _verify(self, file: i64, end: i64) -> None:
        """Check the blocks of a file up to `end`, each once: no wrong body is ever delivered."""
        at: i64 = self._verified.get(file, HEAD_BYTES)
        last: i64 = self._blocks.get(file, 0)
        while at < end:
            head = self._read_bytes(file, at, BLOCK_HEAD_BYTES)
            size: i64 = int.from_bytes(head[:4], "big")
            data = b""
            if len(head) == BLOCK_HEAD_BYTES and size <= BLOCK_BYTES_MAX:
                data = self._read_bytes(file, at + 8, size + 8)
            if len(data) != size + 8 or crc32(data) != int.from_bytes(head[4:8], "big"):
                at = self._pass_over(file, at, last)
            else:
                last = int.from_bytes(head[8:16], "big")
                at += BLOCK_HEAD_BYTES + size
        self._verified[file] = at
        self._blocks[file] = last

    def _pass_over(self, file: i64, at: i64, last: i64) -> i64:
        """Note bytes that are no block as damaged; where the next one begins, or the file ends."""
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
        copy = Copy(record[RECORD_HEAD_BYTES:])
        content = record
        if record[0] == COPY:
            origin = offset - distance_of(record[RECORD_HEAD_BYTES:])
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
        """The payload of a message that does not refer to another record."""
        record = self._record(file, offset, data, start)
        if record[0] == COPY:
            origin = offset - distance_of(record[RECORD_HEAD_BYTES:])
            content = self._record(file, origin, data, start)
            if content[0] == MESSAGE:
                own = record[RECORD_HEAD_BYTES : RECORD_HEAD_BYTES + COPY_BYTES]
                return own + content[RECORD_HEAD_BYTES + COPY_BYTES :]
        elif record[0] == MESSAGE:
            return record[RECORD_HEAD_BYTES:]
        raise CorruptionError(f"log file {file} has no message at byte {offset}")

    def _record(self, file: i64, offset: i64, data: bytes, start: i64) -> bytes:
        """The whole record at an offset, from bytes that were read or by reading more."""
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


def _hits(data: bytes, offsets: list[int], start: i64, needle: bytes) -> list[int]:
    """Which of the records at these offsets may have some bytes.

    Of a copy the content stands elsewhere, and of the last one not all may have been read.
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
