"""Repair of a data directory whose log is damaged, on a stopped node.

The first step changes nothing. It builds the state as a start would, accepts all damage, and checks
every block of every log file and every chunk of every segment. The result is a report: the damaged
bytes, the affected queues, and the number of lost messages of each queue.

The second step is safe against a crash at any moment. It copies the damaged bytes to side files,
writes a checkpoint with the remaining state, and finally rewrites the damaged files without those
bytes. Damaged bytes are never deleted. A queue whose definition is lost is declared again as
`leveret.rescued.…`, so that its messages can be reached.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from leveret.engine.broker import Broker
from leveret.engine.checkpoint import checkpoint_records
from leveret.engine.queues.queue import Queue
from leveret.journal.records import OFFSET_BITS, OFFSET_MASK
from leveret.storage.blocks import HEAD_BYTES, encode_head
from leveret.storage.checkpoint import read_file, write_checkpoint
from leveret.storage.damage import find_damaged_ranges
from leveret.storage.disk import Disk, DiskFile
from leveret.storage.file_names import (
    checkpoint_name,
    damaged_bytes_name,
    index_name,
    log_name,
    numbers,
    repair_name,
    segments_by_stream,
)
from leveret.storage.log_reader import LogReader
from leveret.storage.queue_recovery import QueueRestoration
from leveret.storage.raft_state import require_no_member
from leveret.storage.recovery import Recovery
from leveret.storage.recovery_result import RecoveryResult
from leveret.storage.segment_files import SegmentFiles
from leveret.storage.stream_recovery import restore_streams
from leveret.storage.unexplained_segments import find_damaged_chunks

RESCUED: Final = "leveret.rescued."
_ROOT: Final = "/"

Ranges = dict[str, list[tuple[int, int]]]  # damaged ranges by file name


@dataclass
class Loss:
    """The messages that a queue has lost, and why."""

    vhost: str
    queue: str
    messages: int = 0
    reasons: list[str] = field(default_factory=list)


@dataclass
class RepairReport:
    """The findings of a repair."""

    ranges: Ranges = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # files and blocks that should exist
    segments: list[str] = field(default_factory=list)  # damaged chunks, which cannot be repaired
    notes: list[str] = field(default_factory=list)  # findings that do not concern a single queue
    side_files: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # definitions that a start cannot restore

    @property
    def is_sound(self) -> bool:
        """True if there is nothing to repair in the log."""
        return not self.ranges and not self.missing

    @property
    def is_whole(self) -> bool:
        """True if nothing is lost or damaged, in the log and in the streams."""
        return self.is_sound and not self.segments and not self.losses and not self.faults

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        said = [
            f"{name}: damaged from byte {start} to {end}"
            for name, ranges in self.ranges.items()
            for start, end in ranges
        ]
        said.extend(self.missing)
        said.extend(self.segments)
        for loss in self.losses:
            said.append(f"queue {loss.queue} in vhost {loss.vhost}: {loss.messages} messages lost")
            said.extend(f"  {reason}" for reason in loss.reasons)
        said.extend(self.notes)
        said.extend(f"the damaged bytes are in {name}" for name in self.side_files)
        said.extend(f"a start reports: {fault}" for fault in self.faults)
        if self.is_whole:
            said.append("the log is sound")
        elif self.is_sound and not self.faults:
            said.append("the log needs no repair; readers skip the damaged messages above")
        return said


def repair(
    disk: Disk, *, dry_run: bool = False, prepare: Callable[[Broker], None] | None = None
) -> RepairReport:
    """Examine a data directory, and repair it unless `dry_run` is set.

    `prepare` is called with the broker before its state is built, to set up policies: they decide
    what some queues remember.
    """
    disk.prepare()
    try:
        if not dry_run:
            require_no_member(disk)
        report, broker, found = _examine(disk, prepare)
        if not dry_run and not report.is_sound:
            _mend(disk, report, broker, found)
        return report
    finally:
        disk.release()


def _examine(
    disk: Disk, prepare: Callable[[Broker], None] | None
) -> tuple[RepairReport, Broker, RecoveryResult]:
    look = ReadOnlyDisk(disk)
    broker = Broker(1)
    if prepare is not None:
        prepare(broker)
    pages = LogReader(look.read_at)
    found = RecoveryResult()
    found.is_repair = True
    Recovery(look, broker, pages, SegmentFiles(look), found).run()
    report = RepairReport(
        missing=found.losses, faults=[fault.partition("\n")[0] for fault in found.faults]
    )
    _find_ranges(disk, found, report)
    if found.has_lost_checkpoint or any(not damage.is_clear for damage in found.damage):
        _rescue(broker, pages, found, report)
    for queue in broker.slots.queues:
        if queue is not None and int(queue.ledger.id) not in found.unrestored:
            _find_loss(queue, report)
    for text in found.unrestored.values():
        report.faults.append(f"{text}; a repair keeps these messages")
    for stream, firsts in segments_by_stream(disk.names()).items():
        for first in firsts:
            report.segments.extend(find_damaged_chunks(disk, stream, first))
    return report, broker, found


def _find_ranges(disk: Disk, found: RecoveryResult, report: RepairReport) -> None:
    for number in sorted(set(found.files) - found.missing):
        ranges = find_damaged_ranges(read_file(disk, log_name(number)))
        if ranges:
            report.ranges[log_name(number)] = ranges
    if found.cut_bytes:
        _note_torn_end(disk, found, report)
    for damage in found.damage:
        if damage.start == damage.end:
            text = f"{log_name(damage.file)}: blocks before byte {damage.end} are missing"
            report.notes.append(text)
        elif not damage.is_clear:
            report.notes.append(f"{damage.place()}: its content is unknown")
    checkpoints = numbers(disk.names(), ".checkpoint")
    if found.has_lost_checkpoint and checkpoints:
        name = checkpoint_name(max(checkpoints))
        report.ranges[name] = [(0, len(read_file(disk, name)))]
        report.notes.append(
            f"{name} is damaged: definitions are those that can be read, and messages that were"
            " acked before it come back"
        )
    elif found.has_lost_checkpoint:
        report.notes.append(
            "the checkpoint is lost: only definitions that can be read are restored, and messages"
            " that were acked before the checkpoint come back"
        )


def _note_torn_end(disk: Disk, found: RecoveryResult, report: RepairReport) -> None:
    """Report a torn write at the end of the log. Alone it is not damage: a start cuts it off."""
    report.notes.append(f"the log ends in {found.cut_bytes} bytes of a torn write")
    name = log_name(max(found.files, default=0))
    is_only = list(report.ranges) == [name] and len(report.ranges[name]) == 1
    if is_only and not report.missing:
        start, end = report.ranges[name][0]
        if end - start == found.cut_bytes:
            del report.ranges[name]


def _rescue(broker: Broker, pages: LogReader, found: RecoveryResult, report: RepairReport) -> None:
    """Declare a queue for messages whose queue definition is lost, unless it was deleted."""
    known = {int(queue.ledger.id) for queue in broker.slots.queues if queue is not None}
    known.update(found.replay.deleted_queues())
    for number, log in sorted(found.replay.queues.items()):
        if number in known or not log.by_file:
            continue
        queue = broker.make_vhost(_ROOT).declare_queue(
            f"{RESCUED}{number}", durable=True, arguments={}
        )
        queue.ledger.id = number
        broker.slots.note_id(number)
        queue.open_pages(pages)
        QueueRestoration(queue, log, False, found.missing, found.superseded).restore_all()
        if queue.ready.count == 0 and not queue.damaged and len(queue.scheduled) == 0:
            broker.make_vhost(_ROOT).remove_queue(queue)
            continue
        report.notes.append(
            f"queue {queue.name} created for {queue.ready.count + len(queue.scheduled)} messages"
        )


def _find_loss(queue: Queue, report: RepairReport) -> None:
    """Count the messages of a queue in damaged bytes, and mark them as settled."""
    lost: set[int] = set()
    for run in queue.ready.damaged:
        lost.update(run.seqs[run.at :])
    for run in queue.ready.paged_runs():
        ranges = report.ranges.get(log_name(run.file), [])
        if ranges:
            both = zip(run.seqs[run.at :], run.offsets[run.at :], strict=True)
            lost.update(seq for seq, offset in both if _is_in(ranges, offset))
    for _, _, seq, position, _ in queue.scheduled.in_log.entries():
        ranges = report.ranges.get(log_name(position >> OFFSET_BITS), [])
        if _is_in(ranges, position & OFFSET_MASK):
            lost.add(seq)
    for seq in sorted(lost):
        queue.ledger.settled.add(seq)
        queue.ledger.returned.pop(seq, None)
    if lost or queue.damage:
        report.losses.append(Loss(queue.vhost, queue.name, len(lost), list(queue.damage)))


def _is_in(ranges: list[tuple[int, int]], offset: int) -> bool:
    return any(start <= offset < end for start, end in ranges)


def _mend(disk: Disk, report: RepairReport, broker: Broker, found: RecoveryResult) -> None:
    for name, ranges in report.ranges.items():
        data = read_file(disk, name)
        for start, end in ranges:
            side = damaged_bytes_name(name, start)
            _write(disk, side, data[start:end])
            report.side_files.append(side)
    segments = SegmentFiles(disk)
    # This time on the real disk. The examination has reported the findings.
    for _ in restore_streams(
        disk,
        broker,
        found.replay,
        segments,
        [],
        adopts=True,
        has_lost_checkpoint=found.has_lost_checkpoint,
        unexamined={},
    ):
        pass
    segments.close()
    next_file = found.next_file
    _write(disk, log_name(next_file), encode_head(next_file))
    kept = {
        number: _repaired_bytes(disk, report, log_name(number))
        for number in found.files
        if number not in found.missing
    }
    write_checkpoint(disk, next_file, kept, checkpoint_records(broker, found.last_block))
    for name, ranges in report.ranges.items():
        if name.endswith(".log"):
            _remove_ranges(disk, name, ranges)
    said = "".join(line + "\n" for line in report.lines())
    _write(disk, repair_name(next_file), said.encode())


def _repaired_bytes(disk: Disk, report: RepairReport, name: str) -> int:
    """Return the size that a log file has after the repair."""
    removed = sum(end - start for start, end in report.ranges.get(name, []))
    return len(read_file(disk, name)) - removed


def _remove_ranges(disk: Disk, name: str, ranges: list[tuple[int, int]]) -> None:
    """Write a log file without its damaged bytes.

    Its index is removed first, because the offsets change.
    """
    (number,) = numbers([name], ".log")
    if index_name(number) in disk.names():
        disk.remove(index_name(number))
        disk.sync_folder()
    data = read_file(disk, name)
    pieces = [encode_head(number)]
    at = HEAD_BYTES
    for start, end in ranges:
        pieces.append(data[at:start])
        at = end
    _write(disk, name, b"".join([*pieces, data[at:]]))


def _write(disk: Disk, name: str, data: bytes) -> None:
    file = disk.create(name + ".new")
    try:
        file.write([data], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(name + ".new", name)
    disk.sync_folder()


class ReadOnlyDisk(Disk):
    """A view of a disk that can be read and never changes."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def names(self) -> list[str]:
        return self._disk.names()

    def open(self, name: str) -> DiskFile:
        return ReadOnlyFile(read_file(self._disk, name), name)

    def create(self, name: str) -> DiskFile:
        return ReadOnlyFile(b"", name)

    def rename(self, name: str, to: str) -> None:
        """Do nothing."""

    def remove(self, name: str) -> None:
        """Do nothing."""

    def sync_folder(self) -> None:
        """Do nothing."""

    def read_at(self, number: int, offset: int, size: int) -> bytes:
        """Return bytes of a log file."""
        file = self._disk.open(log_name(number))
        try:
            return file.read(size, offset)
        finally:
            file.close()


class ReadOnlyFile(DiskFile):
    """A file in memory that ignores writes."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(-1, name)
        self._data = data

    def write(self, pieces: list[bytes] | list[memoryview], offset: int) -> None:
        """Do nothing."""

    def sync(self) -> None:
        """Do nothing."""

    def read(self, size: int, offset: int) -> bytes:
        return self._data[offset : offset + size]

    def size(self) -> int:
        return len(self._data)

    def truncate(self, size: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: no file is open."""
