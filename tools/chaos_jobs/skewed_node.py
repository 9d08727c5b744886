"""Run `leveret` with a wall clock that is off by the milliseconds in a file, which may change.

    python -m tools.chaos_jobs.skewed_node FILE BOOK serve …

The file is read at most ten times a second. The rest of the machine keeps its time. The node writes
each ack that Redis alone has taken to BOOK, as the actors do.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Final

READ_EVERY_NS: Final = 100_000_000


class SkewedTime:
    """The time of the machine, moved by the number in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._machine_ns = time.time_ns
        self._offset_ns = 0
        self._read_after_ns = 0

    def time_ns(self) -> int:
        at_ns = time.monotonic_ns()
        if at_ns >= self._read_after_ns:
            self._read_after_ns = at_ns + READ_EVERY_NS
            self._offset_ns = int(self._path.read_text() or 0) * 1_000_000
        return self._machine_ns() + self._offset_ns


def note_quick_acks(path: Path) -> None:
    """Write each ack of a prefetched job to a file when Redis has taken it."""
    from leveret.job_service.shards.background.note_writer import NoteWriter

    book = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    end = NoteWriter.end

    def end_and_tell(
        self: NoteWriter, topic: tuple[str, str], number: int, accepted: list[bytes]
    ) -> None:
        end(self, topic, number, accepted)
        for note in accepted:
            id, token = map(int, note.split())
            facts = {"kind": "quick", "at": time.monotonic(), "by": path.name}
            line = json.dumps({**facts, "id": id, "token": token, "topic": topic[1]})
            os.write(book, line.encode() + b"\n")

    NoteWriter.end = end_and_tell  # type: ignore[method-assign]


def main() -> None:
    offset, book, *command = sys.argv[1:]
    time.time_ns = SkewedTime(Path(offset)).time_ns
    sys.argv = ["leveret", *command]
    from leveret.cli.main import main as leveret  # late: the clock takes its time at import

    note_quick_acks(Path(book))
    sys.exit(leveret())


if __name__ == "__main__":
    main()
