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

In a replicated log the checkpoint is a block of the log (`recovery_start`). A newest file whose
first block is not whole was never part of the log, and goes.
"""

from leveret.engine.backlog.page_reader import PageReader
from leveret.engine.broker import Broker
from leveret.engine.queues.queue import Queue
from leveret.engine.restore import apply_definition
from leveret.engine.streams.stream import Stream
from leveret.engine.target import Target
from leveret.engine.turns.retired_counts import Churn
from leveret.errors import CorruptionError
from leveret.journal.cluster_records import is_roll_block
from leveret.journal.index import ENTRY_BYTES
from leveret.storage.block_search import find_block, has_later_block
from leveret.storage.blocks import (
    BLOCK_HEAD_BYTES,
    HEAD_BYTES,
    block_end,
    check_head,
    encode_head,
    first_block,
)
from leveret.storage.checkpoint import read_file, read_whole, write_index
from leveret.storage.damage import ADVICE, Damage, examine_damage, salvage_definitions
from leveret.storage.disk import Disk, is_full
from leveret.storage.file_names import checkpoint_name, index_name, log_name, numbers, removed_logs
from leveret.storage.queue_recovery import restore_queue, set_aside_queue
from leveret.storage.recovery_start import RecoveryStart, find_start, replay_roll
from leveret.storage.replay import QueueLog, Replay
from leveret.storage.segment_files import SegmentFiles
from leveret.storage.stream_recovery import restore_streams
from leveret.storage.synced_mark import read_mark
from leveret.storage.unexplained_segments import require_explained


class RecoveryResult:
    """The result of a recovery: what the data directory holds, and what is lost."""

    def __init__(self) -> None:
        self.files: dict[int, int] = {}  # sizes of the log files, including missing ones
        self.covered = 0  # files before this number are older than the checkpoint
        self.next_file = 1
        self.last_block = 0
        self.messages = 0
        self.synced_block = 0  # a block that was on disk, as far as the directory tells
        self.is_mark_damaged = False  # the mark `synced` cannot be read
        self.cut_bytes = 0  # bytes of a torn write at the end of the log
        self.torn: tuple[int, int] | None = None  # file of the torn write, and where it begins
        self.indexes: dict[int, bytes] = {}  # indexes of files that were read, to be written
        self.is_replicated = False  # the node leads a cluster
        self.newest_index = b""  # the index of the newest file, which is not written yet
        self.live: dict[int, int] = {}  # number of live messages, by log file
        self.totals: dict[int, int] = {}  # number of live and settled messages, by log file
        self.superseded: dict[int, set[int]] = {}  # offsets of messages with a later copy, by file
        self.damage: list[Damage] = []  # invalid ranges in the middle of the log
        self.is_repair = False  # accept any damage and missing files
        # Report a missing end of the log instead of refusing it: nothing was ever synced.
        self.accepts_lost_end = False
        self.has_lost_delivery_marks = False  # some delivery marks were lost
        # The definitions are the readable part of a damaged checkpoint.
        self.has_lost_checkpoint = False
        self.replay = Replay()
        self.missing: set[int] = set()  # log files that should exist
        self.losses: list[str] = []  # error texts about missing files and lost blocks
        # Queues whose messages could not be restored and are set aside: error texts by number.
        self.unrestored: dict[int, str] = {}
        self.faults: list[str] = []  # error texts about definitions that could not be restored


def recover(
    disk: Disk,
    broker: Broker,
    pages: PageReader,
    segments: SegmentFiles,
    *,
    accepts_lost_end: bool = False,
    is_replicated: bool = False,
) -> RecoveryResult:
    """Build the broker's state from the data directory."""
    found = RecoveryResult()
    found.accepts_lost_end = accepts_lost_end
    found.is_replicated = is_replicated
    rebuild(disk, broker, pages, segments, found)
    return found


def rebuild(
    disk: Disk, broker: Broker, pages: PageReader, segments: SegmentFiles, found: RecoveryResult
) -> None:
    """Build the broker's state from the data directory, and fill in `found`."""
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
    indexed = set(numbers(names, ".index"))
    found.missing = set(replay.files).difference(
        logs, [number for number, _ in removed_logs(names)]
    )
    for number in sorted(found.missing.union(logs)):
        index = _read_index(disk, number) if number in indexed else None
        if index is not None and number < start:
            replay.read_index(index, number)
            found.totals[number] = len(index) // ENTRY_BYTES
            _note_size(disk, number, replay.files.get(number, 0), found)
        elif number in found.missing:
            _note_missing(number, found)
        else:
            is_last = number == logs[-1]
            _read_file(disk, number, replay, found, start, is_last=is_last)
            entries = replay.take_index()
            found.totals[number] = len(entries) // ENTRY_BYTES
            if number in found.files and not any(d.file == number for d in found.damage):
                found.indexes[number] = entries
    _check_end(found)
    found.covered = start
    found.next_file = max([start, *found.files]) + 1
    broker.turn.is_restoring = True
    for table in replay.definitions:
        apply_definition(broker, table)
    if broker.on_defined is not None:
        broker.on_defined()
    found.faults = list(broker.turn.faults)
    broker.turn.is_restoring = False
    broker.turn.churn = Churn()  # restored objects do not count as newly created
    broker.end_turn()
    replay.has_ended = replay.has_ended and not found.has_lost_delivery_marks
    _load_messages(broker, pages, replay, found)
    adopts = found.is_repair or found.accepts_lost_end
    unexamined = {} if adopts else require_explained(disk, broker, replay)
    _tidy_up(disk, names, found, start)
    _write_indexes(disk, found)
    found.losses += restore_streams(
        disk,
        broker,
        replay,
        segments,
        adopts=adopts,
        has_lost_checkpoint=found.has_lost_checkpoint,
        unexamined=unexamined,
    )
    _load_keys(broker, replay)
    _report_damage(broker, found)


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
    found.synced_block = max([block or 0, *(block for _, block in removed_logs(names))])


def _note_size(disk: Disk, number: int, listed: int, found: RecoveryResult) -> None:
    """Note the size of a file that was not read. A file shorter than listed is a loss."""
    found.files[number] = listed
    if number in found.missing:
        return
    file = disk.open(log_name(number))
    size = file.size()
    file.close()
    if size < listed:
        found.losses.append(_shorter(number, listed, size))
    else:
        found.files[number] = size


def _note_missing(number: int, found: RecoveryResult) -> None:
    """Note that a file is missing, and that its messages are unknown."""
    text = f"{log_name(number)} is missing, and it has no index"
    if not found.is_repair:
        raise CorruptionError(f"{text}: {ADVICE}")
    found.losses.append(text)


def _check_size(number: int, size: int, listed: int, found: RecoveryResult) -> None:
    """Note that a file is shorter than the checkpoint says."""
    if size < listed:
        if not found.is_repair:
            raise CorruptionError(f"{_shorter(number, listed, size)}: {ADVICE}")
        found.losses.append(_shorter(number, listed, size))


def _shorter(number: int, listed: int, size: int) -> str:
    return f"{log_name(number)} had {listed} bytes, and has {size}"


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


def _write_indexes(disk: Disk, found: RecoveryResult) -> None:
    """Write the indexes of files that were read.

    A file of a replicated log may still grow after its leader has lost its office.
    """
    if found.is_replicated:
        found.newest_index = found.indexes.pop(max(found.files, default=0), b"")
    for number, index in found.indexes.items():
        _write_index(disk, number, index)
    found.indexes = {}


def _cut(disk: Disk, number: int, at: int) -> None:
    file = disk.open(log_name(number))
    try:
        file.truncate(at)
        file.sync()
    finally:
        file.close()


def _read_index(disk: Disk, number: int) -> bytes | None:
    """Return the index of a log file; None if it is damaged, so that the file itself is read."""
    try:
        return read_whole(disk, index_name(number), number)
    except CorruptionError:
        return None


def _write_index(disk: Disk, number: int, index: bytes) -> None:
    """Write the index of a file that was read, unless the disk is full."""
    try:
        write_index(disk, number, index)
    except OSError as fault:
        if not is_full(fault):
            raise


def _read_file(
    disk: Disk, number: int, replay: Replay, found: RecoveryResult, start: int, *, is_last: bool
) -> None:
    """Replay one log file, block by block."""
    is_old = number < start
    file = disk.open(log_name(number))
    try:
        data = file.read(file.size(), 0)
        may_end = is_last and not is_old  # the end of the log may be torn
        if _has_head(data, number):
            at = HEAD_BYTES
        elif may_end and _is_torn(data, 0, found.last_block, found):
            found.cut_bytes += len(data)
            found.torn = (number, 0)
            if number == start:
                found.files[number] = HEAD_BYTES
            return
        else:
            at = 0
        last = 0 if is_old else found.last_block
        while at < len(data):
            block = last + 1 if not is_old else int.from_bytes(data[at + 8 : at + 16], "big")
            end = block_end(data, at, block) if at else 0
            if end == 0:
                if may_end and _is_torn(data, at, last, found):
                    found.cut_bytes += len(data) - at
                    found.torn = (number, at)
                    break
                at, last = _record_damage(data, at, last, number, replay, found, is_old)
                continue
            if is_roll_block(data, at + BLOCK_HEAD_BYTES, end):
                if not is_old:
                    replay_roll(data, at + BLOCK_HEAD_BYTES, end, replay)
            else:
                replay.read(data, at + BLOCK_HEAD_BYTES, end, number, is_old)
            last = block
            found.last_block = found.last_block if is_old else block
            at = end
        _check_size(number, at, replay.files.get(number, 0), found)
        if at == HEAD_BYTES and may_end and number != start:
            found.torn = (number, 0)  # the file was created, and never used
            return
        if not is_old:
            file.sync()  # the killed node may not have synced what was read here
        found.files[number] = at
    finally:
        file.close()


def _is_torn(data: bytes, at: int, last: int, found: RecoveryResult) -> bool:
    """Return True if invalid bytes are a write that was never finished, and not damage."""
    return last >= found.synced_block and not has_later_block(data, at, last)


def _has_head(data: bytes, number: int) -> bool:
    """Return True if the head is whole; raise CorruptionError if it names another file."""
    try:
        check_head(data, number, log_name(number))
    except CorruptionError:
        if data[:HEAD_BYTES] == encode_head(int.from_bytes(data[12:20], "big")):
            raise
        return False
    return True


def _record_damage(
    data: bytes,
    at: int,
    last: int,
    number: int,
    replay: Replay,
    found: RecoveryResult,
    is_old: bool,
) -> tuple[int, int]:
    """Record damage; return its end, and the number of the last block before that end."""
    highest = found.last_block if is_old else last + 1 + (len(data) - at) // BLOCK_HEAD_BYTES
    stop = find_block(data, at, last, highest)
    end = stop if stop >= 0 else len(data)
    damage = examine_damage(data, number, at, end, messages_only=is_old)
    before_next = last + damage.blocks
    if stop >= 0:
        before_next = int.from_bytes(data[end + 8 : end + 16], "big") - 1
        if before_next != last + damage.blocks and not (is_old and last == 0):
            damage.is_clear = False  # some blocks are missing without a trace
    if not damage.is_clear and not found.is_repair:
        raise CorruptionError(damage.refusal())
    for queue, seq, offset in damage.messages:
        replay.queue(queue).damaged[seq] = (number, offset)
    found.damage.append(damage)
    found.live[number] = found.live.get(number, 0) + 1  # keeps the damaged file
    if not is_old:
        found.last_block = before_next
        found.has_lost_delivery_marks = True
    return end, before_next


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
) -> None:
    """Give every queue its remaining messages."""
    for queue in broker.slots.queues:
        if queue is None or not queue.durable or isinstance(queue, Stream):
            continue
        log = replay.queues.get(int(queue.ledger.id))
        if log is not None:
            counts = _load_queue(queue, log, pages, replay, found)
            for file, count in counts.items():
                found.live[file] = found.live.get(file, 0) + count
                if file not in found.missing:
                    found.messages += count
                elif count:
                    found.losses.append(_loss(queue, file, count))


def _load_queue(
    queue: Queue, log: QueueLog, pages: PageReader, replay: Replay, found: RecoveryResult
) -> dict[int, int]:
    """Give one queue its messages. If that fails, set them aside, and keep them in the log."""
    try:
        queue.open_pages(pages)
        return restore_queue(queue, log, replay.has_ended, found.missing, found.superseded)
    except Exception as fault:
        counts = set_aside_queue(queue, log)
        queue.open_pages(pages)
        place = f"queue '{queue.name}' in vhost '{queue.vhost}'"
        text = f"restoring its messages failed: {type(fault).__name__}: {fault}"
        found.unrestored[int(queue.ledger.id)] = f"{place}: {text}"
        queue.turn.note_fault(f"restoring the messages of {place}", fault)
        queue.note_damage(CorruptionError(f"{text}; they stay in the log"))
        return counts


def _loss(queue: Queue, file: int, count: int) -> str:
    where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    return f"{where}: {count} of its messages cannot be read: {log_name(file)} is missing"


def _load_keys(broker: Broker, replay: Replay) -> None:
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
