"""Starting again: from checkpoint and log files to the state of the broker.

The longest valid prefix of the log counts. Bytes behind it in the last file are a write that was
torn when the node died: they are cut off and reported. Anything else that does not fit is damage
(`damage`): the queues concerned are told, what cannot be read of them is set aside, and everything
else starts. Where nobody can know who is concerned the node does not start. Nothing unexplained is
ever deleted: a damaged file stays, without an index, until `repair` has dealt with it.

A log file that the checkpoint lists and that is not there, though nobody removed it, is a loss. Its
index tells which messages stood in it: they are set aside and reported, and everything else starts.
Without the index nobody can know, and the node does not start. A file that was removed tells up to
which block the log was on disk then: if it ends before that, the disk has forgotten what it synced.
"""

from leveret.engine.backlog.page_reader import PageReader
from leveret.engine.broker import Broker
from leveret.engine.queues.queue import Queue
from leveret.engine.restore import define
from leveret.engine.streams.stream import Stream
from leveret.engine.target import Target
from leveret.engine.turns.retired_counts import Churn
from leveret.errors import CorruptionError
from leveret.journal.index import ENTRY_BYTES
from leveret.storage.blocks import (
    BLOCK_HEAD_BYTES,
    HEAD_BYTES,
    block_end,
    check_head,
    encode_head,
)
from leveret.storage.checkpoint import read_file, read_whole, write_index
from leveret.storage.damage import ADVICE, Damage, examine, salvage
from leveret.storage.disk import Disk, DiskFile, is_full
from leveret.storage.names import checkpoint_name, gone_logs, index_name, log_name, numbers
from leveret.storage.replay import Replay, find_block, later_block
from leveret.storage.restoring import restore
from leveret.storage.segment_files import SegmentFiles
from leveret.storage.streams import restore_streams


class Recovered:
    """What a start found."""

    def __init__(self) -> None:
        self.files: dict[int, int] = {}  # sizes of the log files that exist, or should
        self.covered = 0  # files before this one are covered by the checkpoint
        self.next_file = 1
        self.last_block = 0
        self.messages = 0
        self.cut_bytes = 0  # torn off the end of the log
        self.live: dict[int, int] = {}  # messages by log file
        self.totals: dict[int, int] = {}  # the same, with those that are gone
        self.superseded: dict[int, set[int]] = {}  # offsets of messages with a later copy, by file
        self.damage: list[Damage] = []  # in the middle of the log
        self.is_repair = False  # damage is taken in, whatever it is
        self.has_lost_marks = False  # nobody knows what was delivered
        self.has_lost_checkpoint = False  # its definitions are what a repair could read of it
        self.replay = Replay()
        self.missing: set[int] = set()  # log files that should exist
        self.losses: list[str] = []  # what cannot be read for that, in words


def recover(disk: Disk, broker: Broker, pages: PageReader, segments: SegmentFiles) -> Recovered:
    """Build the broker's state from the data directory."""
    found = Recovered()
    rebuild(disk, broker, pages, segments, found)
    return found


def rebuild(
    disk: Disk, broker: Broker, pages: PageReader, segments: SegmentFiles, found: Recovered
) -> None:
    """The same, into what the caller has prepared."""
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
    found.missing = set(replay.files).difference(logs, [number for number, _ in gone_logs(names)])
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
        define(broker, table)
    if broker.on_defined is not None:
        broker.on_defined()
    broker.turn.is_restoring = False
    broker.turn.churn = Churn()  # what is there again was not made now
    broker.end_turn()
    replay.has_ended = replay.has_ended and not found.has_lost_marks
    _load(broker, pages, replay, found)
    restore_streams(disk, broker, replay, segments, surveys=found.is_repair)
    _load_keys(broker, replay)
    _tell_queues(broker, found)


def _read_checkpoint(disk: Disk, start: int, found: Recovered) -> bytes:
    """Its records; for a repair those that can be told apart, if it is damaged."""
    name = checkpoint_name(start)
    try:
        records = read_whole(disk, name, start)
    except CorruptionError:
        records = None
    if records is None:
        if not found.is_repair:
            raise CorruptionError(f"{name} is damaged: {ADVICE}")
        found.has_lost_checkpoint = True
        records = salvage(read_file(disk, name), read_file(disk, log_name(start)))
    return records


def _require_complete(logs: list[int], start: int) -> None:
    """Without a checkpoint the log must go back to the first file, with one to its own."""
    if start == 0 and logs and logs[0] != 1:
        raise CorruptionError(
            "there is no checkpoint, and the log does not go back to its beginning"
        )
    if start != 0 and start not in logs:
        raise CorruptionError(f"{log_name(start)} is missing")


def _note_size(disk: Disk, number: int, listed: int, found: Recovered) -> None:
    """Keep the size of a file that was not read; one that has become shorter is a loss."""
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


def _note_missing(number: int, found: Recovered) -> None:
    """A file is missing, and nobody knows what stood in it."""
    text = f"{log_name(number)} is missing, and there is no index of it"
    if not found.is_repair:
        raise CorruptionError(f"{text}: {ADVICE}")
    found.losses.append(text)


def _check_size(number: int, size: int, listed: int, found: Recovered) -> None:
    """A file that was read has become shorter than a checkpoint says."""
    if size < listed:
        if not found.is_repair:
            raise CorruptionError(f"{_shorter(number, listed, size)}: {ADVICE}")
        found.losses.append(_shorter(number, listed, size))


def _shorter(number: int, listed: int, size: int) -> str:
    return f"{log_name(number)} had {listed} bytes, and has {size}"


def _check_end(names: list[str], found: Recovered) -> None:
    """Whoever removed a file knew that the log was on disk up to some block."""
    synced = max([block for _, block in gone_logs(names)], default=0)
    if synced > found.last_block:
        seen = f"the log was on disk up to block {synced}"
        found.losses.append(f"{seen}, and ends with block {found.last_block}")


def _read_index(disk: Disk, number: int) -> bytes | None:
    """The index of a log file; None where it is damaged: the file itself is read then."""
    try:
        return read_whole(disk, index_name(number), number)
    except CorruptionError:
        return None


def _write_index(disk: Disk, number: int, index: bytes) -> None:
    """Keep the index of a file that was read, if there is room for it."""
    try:
        write_index(disk, number, index)
    except OSError as fault:
        if not is_full(fault):
            raise


def _read_file(
    disk: Disk, number: int, replay: Replay, found: Recovered, start: int, *, is_last: bool
) -> None:
    """Take in one log file, block by block."""
    is_old = number < start
    file = disk.open(log_name(number))
    try:
        data = file.read(file.size(), 0)
        may_end = is_last and not is_old  # the end of the log may be torn
        if _has_head(data, number):
            at = HEAD_BYTES
        elif may_end and not later_block(data, 0, found.last_block):
            found.cut_bytes += len(data)
            if _begin_again(disk, file, number, start):
                found.files[number] = HEAD_BYTES
            return
        else:
            at = 0
        last = 0 if is_old else found.last_block
        while at < len(data):
            block = last + 1 if not is_old else int.from_bytes(data[at + 8 : at + 16], "big")
            end = block_end(data, at, block) if at else 0
            if end == 0:
                if may_end and not later_block(data, at, last):
                    found.cut_bytes += len(data) - at
                    file.truncate(at)
                    file.sync()
                    break
                at, last = _pass_over(data, at, last, number, replay, found, is_old)
                continue
            replay.read(data, at + BLOCK_HEAD_BYTES, end, number, is_old)
            last = block
            found.last_block = found.last_block if is_old else block
            at = end
        _check_size(number, at, replay.files.get(number, 0), found)
        if not is_old:
            file.sync()  # a killed node may not have come to it, and others rely on what was read
        found.files[number] = at
    finally:
        file.close()


def _has_head(data: bytes, number: int) -> bool:
    """Whether the head is whole; Corrupt if it is that of another file."""
    try:
        check_head(data, number, log_name(number))
    except CorruptionError:
        if data[:HEAD_BYTES] == encode_head(int.from_bytes(data[12:20], "big")):
            raise
        return False
    return True


def _pass_over(
    data: bytes, at: int, last: int, number: int, replay: Replay, found: Recovered, is_old: bool
) -> tuple[int, int]:
    """Take in damage: where it ends, and the number of the last block before that."""
    highest = found.last_block if is_old else last + 1 + (len(data) - at) // BLOCK_HEAD_BYTES
    stop = find_block(data, at, last, highest)
    end = stop if stop >= 0 else len(data)
    damage = examine(data, number, at, end, messages_only=is_old)
    before_next = last + damage.blocks
    if stop >= 0:
        before_next = int.from_bytes(data[end + 8 : end + 16], "big") - 1
        if before_next != last + damage.blocks and not (is_old and last == 0):
            damage.is_clear = False  # blocks are missing that left no trace
    if not damage.is_clear and not found.is_repair:
        raise CorruptionError(damage.refusal())
    for queue, seq, offset in damage.messages:
        replay.queue(queue).damaged[seq] = (number, offset)
    found.damage.append(damage)
    found.live[number] = found.live.get(number, 0) + 1  # whatever it was, the file is kept
    if not is_old:
        found.last_block = before_next
        found.has_lost_marks = True
    return end, before_next


def _begin_again(disk: Disk, file: DiskFile, number: int, start: int) -> bool:
    """The newest file has no head. One that a checkpoint counts on gets it; another goes."""
    if number != start:
        disk.remove(log_name(number))  # its number is used again: a full disk has no room for it
        return False
    file.truncate(0)
    file.write([encode_head(number)], 0)
    file.sync()
    return True


def _tell_queues(broker: Broker, found: Recovered) -> None:
    """Every queue that is concerned knows why."""
    if not found.damage:
        return
    queues = {int(queue.ledger.id): queue for queue in broker.slots.queues if queue is not None}
    for damage in found.damage:
        for number in sorted(damage.queues()):
            if number in queues:
                queues[number].note_damage(CorruptionError(damage.reason(number)))
            elif number > broker.slots.last_id and not found.is_repair:
                raise CorruptionError(damage.refusal())  # a number that no queue ever had


def _load(broker: Broker, pages: PageReader, replay: Replay, found: Recovered) -> None:
    """Give every queue the messages that are left of it."""
    for queue in broker.slots.queues:
        if queue is None or not queue.durable or isinstance(queue, Stream):
            continue
        log = replay.queues.get(int(queue.ledger.id))
        if log is not None:
            queue.open_pages(pages)
            counts = restore(queue, log, replay.has_ended, found.missing, found.superseded)
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
    """Let queues and exchanges remember what they knew."""
    targets: list[Target] = [queue for queue in broker.slots.queues if queue is not None]
    for vhost in broker.vhosts.values():
        targets.extend(vhost.exchanges.values())
    for target in targets:
        deduplication = target.deduplication
        if deduplication is not None and deduplication.durable:
            keys = replay.keys.pop(int(deduplication.id), None)
            if keys is not None:
                deduplication.load(keys.pages, keys.rest())
