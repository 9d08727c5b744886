"""Recovery at a start: from checkpoint and log files to the state of the broker.

The longest valid prefix of the log counts. Bytes after it in the last file are a write that was
torn when the node died: they are cut off and reported. Every other invalid range is damage
(`damage`), also at the end of the log if the mark `synced` names a block there. The affected queues
are told, their unreadable messages are set aside, and the rest of the node starts. If the affected
queues cannot be known, the node does not start. Recovery deletes nothing that it cannot explain: a
damaged file stays, without an index, until `repair` has dealt with it.

A log file is lost if the checkpoint lists it, it does not exist, and it has no removal marker. Its
index tells which messages stood in it: they are set aside and reported, and the rest of the node
starts. Without the index these messages are unknown, and the node does not start.

Removal markers and the mark `synced` name a block that was on disk. If the log ends before this
block, its end is missing, and the node does not start. A segment with messages that the log does
not explain shows the same (`unexplained_segments`). Until all this is checked, a start changes
nothing in the directory.

Blocks that the last node may not have synced are written again (`unsynced_end`).

In a replicated log the checkpoint is a block of the log (`recovery_start`). A newest file whose
first block is not whole was never part of the log, and goes.

A recovery is a generator that yields after a limited amount of work. A single node runs it in one
go. A node of a cluster sends heartbeats between two steps, and may give the recovery up: whatever
it has written until then, a kill at the same moment would have left behind.
"""

from collections.abc import Iterator
from typing import Final

from leveret.engine.backlog.page_reader import PageReader
from leveret.engine.broker import Broker
from leveret.engine.queues.queue import Queue
from leveret.engine.restore import apply_definition
from leveret.engine.streams.stream import Stream
from leveret.engine.target import Target
from leveret.engine.turns.retired_counts import Churn
from leveret.errors import CorruptionError, public_reason
from leveret.storage.blocks import (
    encode_head,
    first_block,
)
from leveret.storage.checkpoint import read_file, read_whole, write_index
from leveret.storage.damage import ADVICE, salvage_definitions
from leveret.storage.disk import Disk, is_full
from leveret.storage.file_names import checkpoint_name, log_name, numbers, removed_logs
from leveret.storage.queue_recovery import QueueRestoration, set_aside_queue
from leveret.storage.recovery_files import read_files
from leveret.storage.recovery_result import RecoveryResult
from leveret.storage.recovery_start import RecoveryStart, find_start
from leveret.storage.replay import QueueLog, Replay
from leveret.storage.segment_files import SegmentFiles
from leveret.storage.stream_recovery import restore_streams
from leveret.storage.synced_mark import read_mark
from leveret.storage.unexplained_segments import require_explained
from leveret.storage.unsynced_end import write_unsynced_end

STEP_OBJECTS: Final = 256  # definitions, or queues without messages, that one step restores

_ENDED: Final = object()


class Recovery:
    """One recovery of a data directory, in steps of limited work."""

    def __init__(
        self,
        disk: Disk,
        broker: Broker,
        pages: PageReader,
        segments: SegmentFiles,
        found: RecoveryResult,
    ) -> None:
        self.found = found
        self._steps = _rebuild(disk, broker, pages, segments, found)

    def run(self) -> RecoveryResult:
        """Do all steps at once."""
        for _ in self._steps:
            pass
        return self.found

    def do_step(self) -> bool:
        """Do the next step. Return False if there was none left."""
        return next(self._steps, _ENDED) is not _ENDED


def recover(
    disk: Disk,
    broker: Broker,
    pages: PageReader,
    segments: SegmentFiles,
    *,
    accepts_lost_end: bool = False,
    is_replicated: bool = False,
) -> Recovery:
    """Return the recovery that builds the broker's state from the data directory."""
    found = RecoveryResult()
    found.accepts_lost_end = accepts_lost_end
    found.is_replicated = is_replicated
    return Recovery(disk, broker, pages, segments, found)


def _rebuild(
    disk: Disk, broker: Broker, pages: PageReader, segments: SegmentFiles, found: RecoveryResult
) -> Iterator[None]:
    """Build the broker's state from the data directory, and yield between steps."""
    replay = found.replay
    names = disk.names()
    beginning = find_start(disk, names)
    start = beginning.number
    if start:
        records = beginning.roll or _read_checkpoint(disk, beginning, found)
        replay.read(records, 0, len(records), 0, False)
        found.last_block = replay.last_block
    if beginning.files is not None:
        replay.files = beginning.files
    logs = numbers(names, ".log")
    _require_complete(disk, logs, start, found)
    _read_witnesses(disk, names, found)
    found.missing = set(replay.files).difference(
        logs, [number for number, _ in removed_logs(names)]
    )
    yield from read_files(disk, names, logs, start, found)
    # The mark of a node that stopped in order names its last block.
    replay.has_ended = replay.has_ended and found.marked_block == found.last_block
    _check_end(found)
    found.covered = start
    found.next_file = max([start, *found.files]) + 1
    yield from _apply_definitions(broker, replay, found)
    replay.has_ended = replay.has_ended and not found.has_lost_delivery_marks
    yield from _load_messages(broker, pages, replay, found)
    adopts = found.is_repair or found.accepts_lost_end
    unexamined = {} if adopts else require_explained(disk, broker, replay)
    _tidy_up(disk, names, found, start)
    if logs and logs[-1] in found.files:
        end = found.files[logs[-1]]
        yield from write_unsynced_end(disk, logs[-1], found.unsynced_from or end, end)
    yield from _write_indexes(disk, found)
    yield from restore_streams(
        disk,
        broker,
        replay,
        segments,
        found.losses,
        adopts=adopts,
        has_lost_checkpoint=found.has_lost_checkpoint,
        unexamined=unexamined,
    )
    yield from _load_keys(broker, replay)
    _report_damage(broker, found)


def _apply_definitions(broker: Broker, replay: Replay, found: RecoveryResult) -> Iterator[None]:
    """Make the objects of the broker. No turn runs between two steps."""
    broker.turn.is_restoring = True
    for at, table in enumerate(replay.definitions):
        apply_definition(broker, table)
        if at % STEP_OBJECTS == STEP_OBJECTS - 1:
            yield
    if broker.on_defined is not None:
        broker.on_defined()
    found.faults = list(broker.turn.faults)
    broker.turn.is_restoring = False
    broker.turn.churn = Churn()  # restored objects do not count as newly created
    broker.end_turn()


def _read_checkpoint(disk: Disk, start: RecoveryStart, found: RecoveryResult) -> bytes:
    """Return the records of the checkpoint. A repair takes the readable part of a damaged one."""
    number = start.number
    name = log_name(number) if start.is_damaged else checkpoint_name(number)
    try:
        records = None if start.is_damaged else read_whole(disk, name, number)
    except CorruptionError:
        records = None
    if records is None:
        if not found.is_repair:
            raise CorruptionError(f"{name} is damaged: {ADVICE}")
        found.has_lost_checkpoint = True
        log = read_file(disk, log_name(number)) if log_name(number) in disk.names() else b""
        records = salvage_definitions(read_file(disk, name), log)
    return records


def _require_complete(disk: Disk, logs: list[int], start: int, found: RecoveryResult) -> None:
    """Check that the first needed log file exists: the checkpoint's own, or file 1."""
    if start == 0 and logs and logs[0] != 1:
        text = "there is no checkpoint, and the first log file is missing"
    elif start != 0 and start not in logs:
        text = f"{log_name(start)} is missing"
    else:
        return
    if not found.is_repair:
        raise CorruptionError(f"{text}: {ADVICE}")
    found.losses.append(text)
    if start == 0:
        found.has_lost_checkpoint = True
        found.last_block = max(0, first_block(read_file(disk, log_name(logs[0]))) - 1)


def _read_witnesses(disk: Disk, names: list[str], found: RecoveryResult) -> None:
    """Note the last block that was on disk, as the mark and the removal markers know it."""
    block = read_mark(disk)
    found.is_mark_damaged = block is None
    found.marked_block = block or 0
    found.synced_block = max([found.marked_block, *(block for _, block in removed_logs(names))])


def _check_end(found: RecoveryResult) -> None:
    """Check that the log reaches the last block that was on disk.

    If a log with a missing end is accepted, the missing numbers are not used again.
    """
    if found.synced_block <= found.last_block:
        return
    seen = f"the log was on disk up to block {found.synced_block}"
    text = f"{seen}, and ends with block {found.last_block}: later blocks are missing"
    if not found.is_repair and not found.accepts_lost_end:
        raise CorruptionError(f"{text}: {ADVICE}")
    found.losses.append(text)
    found.last_block = found.synced_block


def _tidy_up(disk: Disk, names: list[str], found: RecoveryResult, start: int) -> None:
    """Cut off a torn write, and remove incomplete files."""
    for name in names:
        if name.endswith(".new"):
            disk.remove(name)
    if found.torn is not None:
        number, at = found.torn
        if at == 0:
            _restore_or_remove(disk, number, start)
        else:
            _cut(disk, number, at)


def _write_indexes(disk: Disk, found: RecoveryResult) -> Iterator[None]:
    """Write the indexes of files that were read.

    A file of a replicated log may still grow after its leader has lost the lead.
    """
    if found.is_replicated:
        found.newest_index = found.indexes.pop(max(found.files, default=0), b"")
    for number, index in found.indexes.items():
        _write_index(disk, number, index)
        yield
    found.indexes = {}


def _cut(disk: Disk, number: int, at: int) -> None:
    file = disk.open(log_name(number))
    try:
        file.truncate(at)
        file.sync()
    finally:
        file.close()


def _write_index(disk: Disk, number: int, index: bytes) -> None:
    """Write the index of a file that was read, unless the disk is full."""
    try:
        write_index(disk, number, index)
    except OSError as fault:
        if not is_full(fault):
            raise


def _restore_or_remove(disk: Disk, number: int, start: int) -> None:
    """Give a newest file without a head a new one, or remove it if no checkpoint belongs to it."""
    if number != start:
        disk.remove(log_name(number))  # the next start of the log uses this number again
        return
    file = disk.open(log_name(number))
    try:
        file.truncate(0)
        file.write([encode_head(number)], 0)
        file.sync()
    finally:
        file.close()


def _report_damage(broker: Broker, found: RecoveryResult) -> None:
    """Tell every affected queue about the damage."""
    if not found.damage:
        return
    queues = {int(queue.ledger.id): queue for queue in broker.slots.queues if queue is not None}
    for damage in found.damage:
        for number in sorted(damage.queues()):
            if number in queues:
                queues[number].note_damage(CorruptionError(damage.reason(number)))
            elif number > broker.slots.last_id and not found.is_repair:
                raise CorruptionError(damage.refusal())  # no queue ever had this number


def _load_messages(
    broker: Broker, pages: PageReader, replay: Replay, found: RecoveryResult
) -> Iterator[None]:
    """Give every queue its remaining messages."""
    for at, queue in enumerate(broker.slots.queues):
        if at % STEP_OBJECTS == STEP_OBJECTS - 1:
            yield
        if queue is None or not queue.durable or isinstance(queue, Stream):
            continue
        log = replay.queues.get(int(queue.ledger.id))
        if log is not None:
            counts: dict[int, int] = {}
            yield from _load_queue(queue, log, pages, counts, found)
            for file, count in counts.items():
                found.live[file] = found.live.get(file, 0) + count
                if file not in found.missing:
                    found.messages += count
                elif count:
                    found.losses.append(_loss(queue, file, count))


def _load_queue(
    queue: Queue,
    log: QueueLog,
    pages: PageReader,
    counts: dict[int, int],
    found: RecoveryResult,
) -> Iterator[None]:
    """Give one queue its messages. If that fails, set them aside, and keep them in the log.

    Fill in `counts`: the number of its messages in each file.
    """
    try:
        queue.open_pages(pages)
        restoration = QueueRestoration(
            queue, log, found.replay.has_ended, found.missing, found.superseded
        )
        while restoration.restore_next():
            yield
        counts.update(restoration.finish())
    except Exception as fault:
        counts.update(set_aside_queue(queue, log))
        queue.open_pages(pages)
        place = f"queue '{queue.name}' in vhost '{queue.vhost}'"
        text = f"restoring its messages failed: {type(fault).__name__}: "
        found.unrestored[int(queue.ledger.id)] = f"{place}: {text}{fault}"
        queue.turn.note_fault(f"restoring the messages of {place}", fault)
        queue.note_damage(CorruptionError(f"{text}{public_reason(fault)}; they stay in the log"))


def _loss(queue: Queue, file: int, count: int) -> str:
    where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    return f"{where}: {count} of its messages cannot be read: {log_name(file)} is missing"


def _load_keys(broker: Broker, replay: Replay) -> Iterator[None]:
    """Give queues and exchanges the deduplication keys that they remembered."""
    targets: list[Target] = [queue for queue in broker.slots.queues if queue is not None]
    for vhost in broker.vhosts.values():
        targets.extend(vhost.exchanges.values())
    for target in targets:
        deduplication = target.deduplication
        if deduplication is not None and deduplication.durable:
            keys = replay.keys.pop(int(deduplication.id), None)
            if keys is not None:
                try:
                    deduplication.load(keys.pages, keys.rest())
                except Exception as fault:
                    what = f"restoring the deduplication keys of '{target.name}'"
                    broker.turn.note_fault(what, fault)
                yield
