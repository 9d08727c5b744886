"""Every byte that a random load makes the log write, as digests that two forms can be compared by.

As a module (`python -m tests.simulation.storage_bytes SEED`) it prints the form that it runs in and
a digest for each step: of all changes of the disk so far, and after a start of what was found.
"""

from __future__ import annotations

import hashlib
import sys
from random import Random
from typing import Final

from leveret import build_info
from leveret.testing.disk import FakeDisk
from tests.protocol.stage import START_MS
from tests.simulation.storage_model import Load
from tests.simulation.storage_stage import StorageStage, durable_view

GENERATIONS: Final = 6
STEPS: Final = 40  # of a generation, each of several commands
COMMANDS: Final = 5
SIZES: Final = (0, 1, 20, 200, 20_000)  # the last is over what is copied into a block


def digests(seed: int) -> list[str]:
    """A digest after each step."""
    rng = Random(seed)
    load = Load(rng, SIZES)
    disk = FakeDisk()
    now_ms = START_MS
    found: list[str] = []
    for generation in range(GENERATIONS):
        stage = StorageStage(disk, file_bytes=rng.choice((2048, 100_000)), now_ms=now_ms)
        found.append(_digest(repr(durable_view(stage)).encode()))
        load.begin(stage)
        load.define()
        for _ in range(STEPS):
            load.run(COMMANDS)
            found.append(_digest(_changes(disk)))
        now_ms = stage.now_ms
        load.state = load.state.after_start()
        stage.sync_all()
        disk = stage.stop() if generation % 2 else stage.killed()
    return found


def _changes(disk: FakeDisk) -> bytes:
    """Everything that was done to a disk, in order."""
    lines = [
        b"%s %s %s %d %s\n" % (c.kind.encode(), c.name.encode(), c.to.encode(), c.offset, c.data)
        for c in disk.changes
    ]
    return b"".join(lines)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def main() -> None:
    print("compiled" if build_info.is_compiled() else "interpreted")
    print("\n".join(digests(int(sys.argv[1]))))


if __name__ == "__main__":
    main()
