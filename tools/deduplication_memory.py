"""Measures what remembered keys cost: memory, time for each publish, checkpoint and start.

    python -m tools.deduplication_memory --keys 1000000

Keys are such as a publisher would send, a short text each. Growth is that of the resident memory of
this process; what stands around them in a broker, a queue and its log, holds nothing more per key.
"""

import argparse
import os
import time
from typing import Final

from leveret import build_info
from leveret.engine.arguments.queue_arguments import DeduplicationSettings
from leveret.engine.deduplication.deduplication import Deduplication, key_of
from leveret.engine.deduplication.key_room import KeyRoom
from leveret.engine.timer_queue import TimerQueue
from leveret.journal.journal import Journal
from leveret.storage.replay import Replay
from leveret.wire.tables import field_of, table_of

NOW_MS: Final = 1_700_000_000_000
TAKEN_AT: Final = 10_000  # keys between two looks at the journal, as a turn would take it


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def empty(size: int) -> Deduplication:
    settings = DeduplicationSettings(table_of({"size": size, "window_ms": 86_400_000}))
    return Deduplication(settings, 1, True, TimerQueue(), KeyRoom("/"))


def fill(memory: Deduplication, keys: int) -> None:
    """Add keys as a publish does: look up, remember, write."""
    journal = Journal()
    journal.begin_block(1, 0)
    for number in range(keys):
        key = key_of(field_of(f"order-{number}"))
        if memory.added_ms(key, NOW_MS) == 0:
            memory.remember(key, NOW_MS, journal)
        if number % TAKEN_AT == 0:
            journal.take_block()
            journal.begin_block(1, 0)


def load(records: list[bytes], size: int) -> Deduplication:
    """Load keys as a start of the broker does."""
    data = b"".join(records)
    replay = Replay()
    replay.read(data, 0, len(data), 0, False)
    columns = replay.keys[1]
    memory = empty(size)
    memory.load(columns.pages, columns.rest())
    return memory


def measure(keys: int) -> dict[str, float]:
    """Figures by name."""
    before = resident_bytes()
    start = time.perf_counter()
    memory = empty(keys)
    fill(memory, keys)
    filled = time.perf_counter()
    grown = resident_bytes() - before
    journal = Journal()
    began = time.perf_counter()
    memory.write(journal)
    records = journal.take_block()
    written = time.perf_counter()
    again = load(records, keys)
    loaded = time.perf_counter()
    assert memory.count() == again.count() == keys
    return {
        "grown_mib": grown / (1 << 20),
        "bytes_per_key": grown / keys,
        "publish_us": (filled - start) * 1e6 / keys,
        "checkpoint_ms": (written - began) * 1e3,
        "checkpoint_mib": sum(map(len, records)) / (1 << 20),
        "start_ms": (loaded - written) * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What remembered keys cost.")
    parser.add_argument("--keys", type=int, default=1_000_000)
    keys = parser.parse_args().keys
    print(build_info.describe())
    for name, figure in measure(keys).items():
        print(f"{name:16} {figure:10.2f}")


if __name__ == "__main__":
    main()
