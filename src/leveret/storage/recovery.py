"""Recovery at a start: from checkpoint and log files to the state of the broker.

The longest valid prefix of the log counts. Bytes after it in the last file are a write that was
torn when the node died: they are cut off and reported. Every other invalid range is damage
(`damage`). The affected queues are told, their unreadable messages are set aside, and the rest of
the node starts. If the affected queues cannot be known, the node does not start. Recovery deletes
nothing that it cannot explain: a damaged file stays, without an index, until `repair` has dealt
with it.

A log file is lost if the checkpoint lists it, it does not exist, and it has no removal marker. Its
index tells which messages stood in it: they are set aside and reported, and the rest of the node
starts. Without the index these messages are unknown, and the node does not start. A removal marker
names the last block that was on disk at the removal. If the log ends before this block, the disk
has lost synced data.
"""

from leveret.engine.backlog.page_reader import PageReader
from leveret.engine.broker import Broker
from leveret.engine.queues.queue import Queue
from leveret.engine.restore import apply_definition
from leveret.engine.streams.stream import Stream
from leveret.engine.target import Target
from leveret.engine.turns.retired_counts import Churn
from leveret.errors import CorruptionError
from leveret.journal.index import ENTRY_BYTES
from leveret.storage.block_search import find_block, has_later_block
from leveret.storage.blocks import (
    BLOCK_HEAD_BYTES,
    HEAD_BYTES,
    block_end,
    check_head,
    encode_head,
)
from leveret.storage.checkpoint import read_file, read_whole, write_index
from leveret.storage.damage import ADVICE, Damage, examine_damage, salvage_definitions
from leveret.storage.disk import Disk, DiskFile, is_full
from leveret.storage.file_names import checkpoint_name, index_name, log_name, numbers, removed_logs
from leveret.storage.queue_recovery import restore_queue
from leveret.storage.replay import Replay
from leveret.storage.segment_files import SegmentFiles
from leveret.storage.stream_recovery import restore_streams


class RecoveryResult:
    """The result of a recovery: what the data directory holds, and what is lost."""

    def __init__(self) -> None:
        self.files: dict[int, int] = {}  # sizes of the log files, including missing ones
        self.covered = 0  # files before this number are older than the checkpoint
        self.next_file = 1
        self.last_block = 0
        self.messages = 0
        self.cut_bytes = 0  # bytes of a torn write at the end of the log
        self.live: dict[int, int] = {}  # number of live messages, by log file
        self.totals: dict[int, int] = {}  # number of live and settled messages, by log file
        self.superseded: dict[int, set[int]] = {}  # offsets of messages with a later copy, by file
        self.damage: list[Damage] = []  # invalid ranges in the middle of the log
        self.is_repair = False  # accept any damage and missing files
        self.has_lost_delivery_marks = False  # some delivery marks were lost
        # The definitions are the readable part of a damaged checkpoint.
        self.has_lost_checkpoint = False
        self.replay = Replay()
        self.missing: set[int] = set()  # log files that should exist
        self.losses: list[str] = []  # error texts about missing files and lost blocks


def recover(
    disk: Disk, broker: Broker, pages: PageReader, segments: SegmentFiles
) -> RecoveryResult:
    """Build the broker's state from the data directory."""
    found = RecoveryResult()
    rebuild(disk, broker, pages, segments, found)
    return found


def rebuild(
    disk: Disk, broker: Broker, pages: PageReader, segments: SegmentFiles, found: RecoveryResult
) -> None:
    """Build the broker's state from the data directory, and fill in `found`."""
    replay = found.replay
    names = disk.names()
    for name in names:
        if name.endswith(".new"):
            disk.remove(name)
    checkpoints = numbers(names, ".checkpoint")
    start = checkpoints[-1] if checkpoints else 0
    if checkpoints:
        records = _read_checkpoint(disk, start, found)
        replay.read(records, 0, len(records), 0, False)
        found.last_block = replay.last_block
    logs = numbers(names, ".log")
    _require_complete(logs, start)
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
                _write_index(disk, number, entries)
    _check_end(names, found)
    found.covered = start
    found.next_file = max([start, *found.files]) + 1
    broker.turn.is_restoring = True
    for table in replay.definitions:
        apply_definition(broker, table)
    if broker.on_defined is not None:
        broker.on_defined()
    broker.turn.is_restoring = False
    broker.turn.churn = Churn()  # restored objects do not count as newly created
    broker.end_turn()
    replay.has_ended = replay.has_ended and not found.has_lost_delivery_marks
    _load_messages(broker, pages, replay, found)
    restore_streams(disk, broker, replay, segments, surveys=found.is_repair)
    _load_keys(broker, replay)
    _report_damage(broker, found)


def _read_checkpoint(disk: Disk, start: int, found: RecoveryResult) -> bytes:
    """Return the records of the checkpoint. A repair takes the readable part of a damaged one."""
    name = checkpoint_name(start)
    try:
        records = read_whole(disk, name, start)
    except CorruptionError:
        records = None
    if records is None:
        if not found.is_repair:
            raise CorruptionError(f"{name} is damaged: {ADVICE}")
        found.has_lost_checkpoint = True
        records = salvage_definitions(read_file(disk, name), read_file(disk, log_name(start)))
    return records


def _require_complete(logs: list[int], start: int) -> None:
    """Raise if the first needed log file is missing: the checkpoint's own, or file 1."""
    if start == 0 and logs and logs[0] != 1:
        raise CorruptionError("there is no checkpoint, and the first log file is missing")
    if start != 0 and start not in logs:
        raise CorruptionError(f"{log_name(start)} is missing")


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


def _check_end(names: list[str], found: RecoveryResult) -> None:
    """Check that the log reaches the last block that a removal marker names."""
    synced = max([block for _, block in removed_logs(names)], default=0)
    if synced > found.last_block:
        seen = f"the log was on disk up to block {synced}"
        found.losses.append(f"{seen}, and ends with block {found.last_block}")


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
        elif may_end and not has_later_block(data, 0, found.last_block):
            found.cut_bytes += len(data)
            if _restore_or_remove(disk, file, number, start):
                found.files[number] = HEAD_BYTES
            return
        else:
            at = 0
        last = 0 if is_old else found.last_block
        while at < len(data):
            block = last + 1 if not is_old else int.from_bytes(data[at + 8 : at + 16], "big")
            end = block_end(data, at, block) if at else 0
            if end == 0:
                if may_end and not has_later_block(data, at, last):
                    found.cut_bytes += len(data) - at
                    file.truncate(at)
                    file.sync()
                    break
                at, last = _record_damage(data, at, last, number, replay, found, is_old)
                continue
            replay.read(data, at + BLOCK_HEAD_BYTES, end, number, is_old)
            last = block
            found.last_block = found.last_block if is_old else block
            at = end
        _check_size(number, at, replay.files.get(number, 0), found)
        if not is_old:
            file.sync()  # the killed node may not have synced what was read here
        found.files[number] = at
    finally:
        file.close()


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


def _restore_or_remove(disk: Disk, file: DiskFile, number: int, start: int) -> bool:
    """Deal with a newest file that has no head: restore it or remove it.

    A file that belongs to the checkpoint gets a new head; any other file is removed. Return True if
    the file was kept.
    """
    if number != start:
        disk.remove(log_name(number))  # the next start of the log uses this number again
        return False
    file.truncate(0)
    file.write([encode_head(number)], 0)
    file.sync()
    return True


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
            queue.open_pages(pages)
            counts = restore_queue(queue, log, replay.has_ended, found.missing, found.superseded)
            for file, count in counts.items():
                found.live[file] = found.live.get(file, 0) + count
                if file not in found.missing:
                    found.messages += count
                elif count:
                    found.losses.append(_loss(queue, file, count))


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
                deduplication.load(keys.pages, keys.rest())
