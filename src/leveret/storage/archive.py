"""The file format of a backup: a tar archive, written and read as a stream.

    backup.json      format, kind (node or queue), and the facts that a restore needs
    NAME …           files of a data directory, named as in `leveret.storage.file_names`
    complete.json    sizes and checksums of all files; a backup without it was cut short

Writers yield pieces and readers are fed pieces, so that neither holds more than one member in
memory. Members have plain file names, never paths.
"""

import json
import re
import tarfile
from typing import Any, Final
from zlib import crc32

from leveret.errors import CorruptionError, NewerFormatError

FORMAT: Final = 1
FIRST: Final = "backup.json"
LAST: Final = "complete.json"
ENDING: Final = bytes(1024)  # two empty blocks end a tar archive

_TAR_BLOCK: Final = 512
_NOTES_BYTES_MAX: Final = 64 * 1024 * 1024  # of the two members that are JSON
_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,98}")


class ArchiveWriter:
    """Make the pieces of an archive, and record size and checksum of each member."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, int]] = {}
        self._size = 0
        self._crc = 0

    def first(self, facts: dict[str, object]) -> bytes:
        return _whole(FIRST, json.dumps({"format": FORMAT, **facts}).encode())

    def begin(self, name: str, size: int) -> bytes:
        """Return the head of a member; its bytes follow through `data`, then `end`."""
        self._size = 0
        self._crc = 0
        return _head(name, size)

    def data(self, piece: bytes) -> bytes:
        self._size += len(piece)
        self._crc = crc32(piece, self._crc)
        return piece

    def end(self, name: str) -> bytes:
        self._files[name] = {"size": self._size, "crc32": self._crc}
        return _padding(self._size)

    def last(self, facts: dict[str, object]) -> bytes:
        notes = json.dumps({"files": self._files, **facts}).encode()
        return _whole(LAST, notes) + ENDING


class MemberPiece:
    """A piece of one archive member. `is_first` and `is_last` mark the ends of the member."""

    def __init__(self, name: str, data: bytes, *, is_first: bool, is_last: bool) -> None:
        self.name = name
        self.data = data
        self.is_first = is_first
        self.is_last = is_last


class ArchiveReader:
    """Split an archive into members as its bytes arrive; raise CorruptionError for other input."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}  # content of backup.json, once it was read
        self.notes: dict[str, Any] = {}  # content of complete.json
        self._pending = b""
        self._name = ""
        self._left = 0  # bytes of the current member that are still to come
        self._skip = 0  # padding bytes that are still to come
        self._is_first = False
        self._json = bytearray()
        self._crc = 0
        self._size = 0
        self._files: dict[str, dict[str, int]] = {}

    @property
    def is_complete(self) -> bool:
        return bool(self.notes)

    def feed(self, data: bytes) -> list[MemberPiece]:
        """Return the member pieces in these bytes. The two JSON members are kept, not returned."""
        data = self._pending + data
        self._pending = b""
        at = 0
        parts: list[MemberPiece] = []
        while at < len(data) and not self.is_complete:
            if self._skip:
                step = min(self._skip, len(data) - at)
                self._skip -= step
                at += step
            elif not self._name:
                if len(data) - at < _TAR_BLOCK:
                    break
                self._begin_member(data[at : at + _TAR_BLOCK])
                at += _TAR_BLOCK
                if self._left == 0:
                    parts.extend(self._take_piece(b""))
            else:
                piece = data[at : at + self._left]
                at += len(piece)
                parts.extend(self._take_piece(piece))
        self._pending = data[at:]
        return parts

    def finish(self) -> None:
        """Raise CorruptionError if the bytes fed so far are not a whole backup."""
        if not self.is_complete:
            raise CorruptionError("the backup is cut short")

    def _begin_member(self, head: bytes) -> None:
        try:
            info = tarfile.TarInfo.frombuf(head, "utf-8", "strict")
        except (tarfile.HeaderError, ValueError) as fault:
            raise CorruptionError("this is not a backup, or it is damaged") from fault
        if not _NAME.fullmatch(info.name) or not info.isfile() or info.size < 0:
            raise CorruptionError(f"a backup has no member {info.name!r}")
        if not self.facts and info.name != FIRST:
            raise CorruptionError("this is not a backup")
        if info.name in (FIRST, LAST) and info.size > _NOTES_BYTES_MAX:
            raise CorruptionError(f"{info.name} of the backup is too large")
        self._name = info.name
        self._left = self._size = info.size
        self._is_first = True
        self._crc = 0

    def _take_piece(self, piece: bytes) -> list[MemberPiece]:
        name = self._name
        self._left -= len(piece)
        is_last = self._left == 0
        if is_last:
            self._skip = len(_padding(self._size))
            self._name = ""
        if name in (FIRST, LAST):
            self._json += piece
            if is_last:
                self._note_json(name)
            return []
        self._crc = crc32(piece, self._crc)
        if is_last:
            self._files[name] = {"size": self._size, "crc32": self._crc}
        part = MemberPiece(name, piece, is_first=self._is_first, is_last=is_last)
        self._is_first = False
        return [part]

    def _note_json(self, name: str) -> None:
        try:
            found = json.loads(self._json)
        except (ValueError, RecursionError):
            found = None
        self._json.clear()
        if not isinstance(found, dict) or not isinstance(found.get("format", 0), int):
            raise CorruptionError(f"{name} of the backup cannot be read")
        if name == LAST:
            if found.get("files") != self._files:
                raise CorruptionError("the backup is damaged: its files are not what was backed up")
            self.notes = found
            return
        if found.get("format", 0) > FORMAT:
            raise NewerFormatError(
                f"the backup has format {found['format']}; this version reads up to {FORMAT}"
            )
        self.facts = found


def _head(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o600
    return info.tobuf(tarfile.GNU_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % _TAR_BLOCK)


def _whole(name: str, data: bytes) -> bytes:
    return _head(name, len(data)) + data + _padding(len(data))
