"""Damage and disk faults, tried at every place of a small scenario.

    python -m tests.simulation.damage [--seed N] [cuts] [bits] [stale] [writes] [syncs] [lies]

| word   | tries                                                                              |
| ------ | ---------------------------------------------------------------------------------- |
| cuts   | each length of each log file, after a kill and after a clean stop                  |
| bits   | each bit of each file of the directory flipped                                     |
| stale  | each file replaced by each of its earlier contents                                 |
| writes | each write fails, of the load and of the start after it: full disk, and I/O error  |
| syncs  | each sync fails, of the load and of the start after it                             |
| lies   | syncs without effect, and a power loss at each of the last moments                 |

Without a word all are tried. The suite tries a sample of each (`test_storage_log_end`,
`test_storage_every_fault`). A try ends with a fate; the fates in `FAULTS` are faults of the broker.
"""

from __future__ import annotations

import argparse
import errno
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Final

from leveret.errors import StorageError
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES
from leveret.storage.damage import ADVICE
from leveret.testing.disk import SYNC, WRITE, FakeDisk
from tests.simulation.storage_model import check, found_in, read_all
from tests.simulation.storage_stage import Client, StorageStage, bodies_in
from tests.simulation.stream_model import StreamLoad

FILE_BYTES: Final = 1024
STEPS: Final = 60  # of a load under disk faults
LAST_MOMENTS: Final = 40  # before the power loss of a disk that lies
REFUSED: Final = "refused"  # the node does not start, and names the repair
TOLD: Final = "told"  # the node starts, and tells what is lost
UNHARMED: Final = "unharmed"  # everything is there
SILENT: Final = "silent"  # something is missing, and nothing is told
TORN: Final = "taken for a torn write"  # synced bytes are cut off as if they were not confirmed
WRONG: Final = "wrong body"
CRASHED: Final = "crashed"  # an error that is not a StorageError
FAULTS: Final = frozenset((SILENT, TORN, WRONG, CRASHED))


@dataclass
class Scenario:
    """A directory whose content is known."""

    disk: FakeDisk
    history: FakeDisk  # the same directory with all its changes
    queues: dict[str, list[bytes]]
    stream: list[bytes]

    def logs(self) -> list[str]:
        return [name for name in self.disk.names() if name.endswith(".log")]


@cache
def scenario(ending: str) -> Scenario:
    """Several log files, full and checkpointed, and several blocks in the last one."""
    stage = StorageStage(FakeDisk(), file_bytes=FILE_BYTES)
    client = Client(stage)
    client.declare("q")
    client.declare("other")
    client.declare("s", **{"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 600})
    want: dict[str, list[bytes]] = {"q": [], "other": []}
    streamed: list[bytes] = []
    number = 0
    while len(_logs(stage.disk)) < 3 or _blocks(stage.disk) < 5:
        body = b"%03d" % number * 12
        client.publish("q", body)
        want["q"].append(body)
        if number % 3 == 0:
            client.publish("s", body)
            streamed.append(body)
        if number % 4 == 0:
            client.publish("other", body)
            want["other"].append(body)
        if number % 5 == 0:
            client.get("q", no_ack=True)
            want["q"].pop(0)
            stage.sync_all()
        number += 1
    stage.sync_all()
    disk = stage.stop() if ending == "stopped" else stage.killed()
    return Scenario(disk, stage.disk, want, streamed)


def _logs(disk: FakeDisk) -> list[str]:
    return [name for name in disk.names() if name.endswith(".log")]


def _blocks(disk: FakeDisk) -> int:
    """Return the number of blocks in the last log file."""
    return len(block_ends(disk.content(max(_logs(disk))))) - 1


def block_ends(log: bytes) -> list[int]:
    """Return the ends of the head and of each block of a log file."""
    ends = [HEAD_BYTES]
    while ends[-1] < len(log):
        size = int.from_bytes(log[ends[-1] : ends[-1] + 4], "big")
        ends.append(ends[-1] + BLOCK_HEAD_BYTES + size)
    return ends


def fate(case: Scenario, disk: FakeDisk) -> str:
    """Start a node on a damaged directory, read everything, and return the result."""
    try:
        stage = StorageStage(disk, file_bytes=FILE_BYTES)
    except StorageError as fault:
        return REFUSED if ADVICE in str(fault) or "this version reads" in str(fault) else CRASHED
    except Exception:
        return CRASHED
    try:
        return _compare(case, stage)
    except StorageError:
        return TOLD
    except Exception:
        return CRASHED
    finally:
        stage.abandon()


def _compare(case: Scenario, stage: StorageStage) -> str:
    queues = stage.broker.vhost("/").queues
    found = {name: bodies_in(stage, name) if name in queues else [] for name in case.queues}
    streamed = [body for _, body in read_all(stage, "s")] if "s" in queues else []
    known = {body for bodies in case.queues.values() for body in bodies} | set(case.stream)
    held = [*found["q"], *found["other"], *streamed]
    # A lost ack brings a message back. A body that does not repeat one number is wrong.
    if any(len({body[at : at + 3] for at in range(0, len(body), 3)}) != 1 for body in held):
        return WRONG
    if _is_told(stage):
        return TOLD
    is_whole = all(set(case.queues[name]) <= set(found[name]) for name in case.queues)
    if is_whole and set(case.stream) <= set(streamed) and set(held) <= known:
        return UNHARMED
    return TORN if stage.found.cut_bytes else SILENT


def _is_told(stage: StorageStage) -> bool:
    queues = [queue for queue in stage.broker.slots.queues if queue is not None]
    is_marked = any(queue.damage for queue in queues)
    return bool(stage.found.losses or stage.found.damage or stage.broker.turn.faults or is_marked)


def cuts(ending: str) -> Iterator[tuple[str, int, FakeDisk]]:
    """Yield each log file cut to each length, with its name and the length."""
    case = scenario(ending)
    for name in case.logs():
        content = case.disk.content(name)
        for size in range(len(content)):
            yield name, size, with_file(case.disk, name, content[:size])


def with_file(disk: FakeDisk, name: str, content: bytes) -> FakeDisk:
    made = disk.copy()
    made.put(name, content)
    return made


def stale(ending: str) -> Iterator[tuple[str, int, FakeDisk]]:
    """Yield the directory with one file as it was at an earlier moment."""
    case = scenario(ending)
    seen = {(name, case.disk.content(name)) for name in case.disk.names()}
    for moment in range(case.history.moment):
        older = case.history.killed(moment)
        for name in set(older.names()) & set(case.disk.names()):
            content = older.content(name)
            if (name, content) not in seen:
                seen.add((name, content))
                yield name, moment, with_file(case.disk, name, content)


def flipped(ending: str, step: int = 1, first: int = 0) -> Iterator[tuple[str, int, FakeDisk]]:
    """Yield the directory with one bit flipped, for every `step`-th bit.

    After a stop, only files that differ from those after a kill are tried.
    """
    case = scenario(ending)
    tried = scenario("killed").disk.contents() if ending == "stopped" else {}
    for name, content in case.disk.contents().items():
        if tried.get(name) == content:
            continue
        for bit in range(first, len(case.disk.content(name)) * 8, step):
            made = case.disk.copy()
            made.flip(name, bit)
            yield name, bit, made


@dataclass
class Fault:
    """A disk fault: the nth operation of a kind fails with a code."""

    kind: str
    nth: int
    code: int

    def arm(self, disk: FakeDisk) -> None:
        fail = disk.fail_write if self.kind == WRITE else disk.fail_sync
        fail(self.nth, self.code)

    def __str__(self) -> str:
        return f"{self.kind} {self.nth} fails with {errno.errorcode[self.code]}"


def loaded(seed: int, fault: Fault | None) -> tuple[StreamLoad, FakeDisk]:
    """Run a random load on a disk with one fault. The same seed gives the same load."""
    disk = FakeDisk()
    load = StreamLoad(Random(seed), sizes=(0, 20, 200))
    load.begin(StorageStage(disk, file_bytes=FILE_BYTES))
    if fault is not None:
        fault.arm(disk)
    load.define_few()
    load.define_streams()
    actions = [action for action, weight in load.stream_actions() for _ in range(weight)] + [
        load.publish,
        load.get,
        load.settle,
        load.write_acks,
    ]
    for _ in range(STEPS):
        load.rng.choice(actions)()
    load.stage.sync_all()
    load.hear()
    load.stage.abandon()
    return load, disk


def operations(seed: int, kind: str) -> int:
    """Return how many operations of a kind the load does without a fault."""
    _, disk = loaded(seed, None)
    return disk.counts[kind]


def check_fault(seed: int, fault: Fault) -> None:
    """Raise AssertionError if a fault of the disk loses a confirmed message or invents one."""
    load, disk = loaded(seed, fault)
    floor = max((block for _, block in load.floors), default=0)
    for survivor in (disk.killed(), disk.crash(Random(seed))):
        stage = StorageStage(survivor, file_bytes=FILE_BYTES, now_ms=load.stage.now_ms)
        block = stage.found.last_block
        assert block >= floor, f"block {floor} was confirmed, and {block} is the last: {fault}"
        assert not stage.found.losses, (stage.found.losses, str(fault))
        check(load.states[block], found_in(stage), stage)
        stage.abandon()


def check_start_fault(seed: int, fault: Fault) -> bool:
    """Let an operation of a start fail, then start again; return False if it never happened."""
    load, disk = loaded(seed, None)
    again = disk.killed()
    before = again.counts[fault.kind]
    fault.arm(again)
    try:
        stage = StorageStage(again, file_bytes=FILE_BYTES, now_ms=load.stage.now_ms)
    except (OSError, StorageError) as told:
        assert not isinstance(told, StorageError), f"{told}: {fault}"
    else:
        stage.abandon()
    for survivor in (again.killed(), again.crash(Random(seed))):
        stage = StorageStage(survivor, file_bytes=FILE_BYTES, now_ms=load.stage.now_ms)
        check(load.states[max(load.states)], found_in(stage), stage)
        stage.abandon()
    return again.counts[fault.kind] - before >= fault.nth


def lie(seed: int) -> Iterator[str]:
    """Let syncs have no effect, lose power at each of the last moments, and yield the fates."""
    rng = Random(seed)
    disk = FakeDisk()
    load = StreamLoad(rng, sizes=(0, 20, 200))
    load.begin(StorageStage(disk, file_bytes=rng.choice((FILE_BYTES, 1 << 20)), holds=True))
    load.define()
    load.run(STEPS)
    disk.lies = True
    load.run(STEPS)
    load.stage.abandon()
    for moment in range(disk.moment - LAST_MOMENTS, disk.moment + 1):
        floor = max((block for when, block in load.floors if when <= moment), default=0)
        try:
            stage = StorageStage(disk.crash(rng, moment), now_ms=load.stage.now_ms)
        except StorageError:
            yield REFUSED
            continue
        found = found_in(stage)
        if _is_told(stage):
            yield TOLD
        else:
            check(load.states[stage.found.last_block], found, stage)
            yield UNHARMED if stage.found.last_block >= floor else "an older state"
        stage.abandon()


@dataclass
class Run:
    """The results of one kind of tries."""

    name: str
    fates: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def note(self, result: str, place: str) -> None:
        self.fates[result] += 1
        if result in FAULTS:
            self.faults.append(f"{place}: {result}")

    def expect(self, test: Callable[[int, Fault], object], seed: int, fault: Fault) -> object:
        try:
            result = test(seed, fault)
        except AssertionError as found:
            self.fates["failed"] += 1
            self.faults.append(f"{fault}: {found}")
            return None
        self.fates["kept"] += 1
        return result

    def line(self, seconds: float) -> str:
        shown = ", ".join(f"{count} {result}" for result, count in sorted(self.fates.items()))
        return f"{self.name}: {sum(self.fates.values())} tries in {seconds:.0f} s: {shown}"


def try_cuts(run: Run, seed: int) -> None:
    for ending in ("killed", "stopped"):
        for name, size, disk in cuts(ending):
            result = fate(scenario(ending), disk)
            # Every byte of these files was on disk, so no cut may go unnoticed.
            result = SILENT if result == UNHARMED else result
            run.note(result, f"{ending}, {name} cut to {size} bytes")


def try_bits(run: Run, seed: int) -> None:
    for ending in ("killed", "stopped"):
        for name, bit, disk in flipped(ending):
            run.note(fate(scenario(ending), disk), f"{ending}, {name}, bit {bit}")


def try_stale(run: Run, seed: int) -> None:
    for ending in ("killed", "stopped"):
        for name, moment, disk in stale(ending):
            run.note(fate(scenario(ending), disk), f"{ending}, {name} as of change {moment}")


def try_writes(run: Run, seed: int) -> None:
    _try_operations(run, seed, WRITE, (errno.ENOSPC, errno.EIO))


def try_syncs(run: Run, seed: int) -> None:
    _try_operations(run, seed, SYNC, (errno.EIO, errno.ENOSPC))


def _try_operations(run: Run, seed: int, kind: str, codes: tuple[int, ...]) -> None:
    for code in codes:
        for nth in range(1, operations(seed, kind) + 1):
            run.expect(check_fault, seed, Fault(kind, nth, code))
        nth = 1
        while run.expect(check_start_fault, seed, Fault(kind, nth, code)):
            nth += 1


def try_lies(run: Run, seed: int) -> None:
    for number in range(20):
        try:
            for result in lie(seed * 1000 + number):
                run.note(result, f"seed {seed}, run {number}")
        except AssertionError as found:
            run.faults.append(f"seed {seed}, run {number}: {found}")


TRIES: Final[dict[str, Callable[[Run, int], None]]] = {
    "cuts": try_cuts,
    "bits": try_bits,
    "stale": try_stale,
    "writes": try_writes,
    "syncs": try_syncs,
    "lies": try_lies,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Try damage and disk faults at every place.")
    parser.add_argument("words", nargs="*", choices=[*TRIES, []], metavar="|".join(TRIES))
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    logging.disable()  # the tries make the broker log many errors
    has_failed = False
    print(f"seed {chosen.seed}")
    for word in chosen.words or TRIES:
        run = Run(word)
        began_s = time.monotonic()
        TRIES[word](run, chosen.seed)
        print(run.line(time.monotonic() - began_s), flush=True)
        for fault in run.faults[:20]:
            print(f"  {fault}")
        has_failed = has_failed or bool(run.faults)
    sys.exit(1 if has_failed else 0)


if __name__ == "__main__":
    main()
