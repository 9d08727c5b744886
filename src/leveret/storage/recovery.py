"""Starting again: from checkpoint and log files to the state of the broker.

The longest valid prefix of the log counts. Bytes behind it in the last file are a write that was
torn when the node died: they are cut off and reported. Anything else that does not fit is damage,
and the node does not start on it: nothing unexplained is ever deleted.

A log file that the checkpoint lists and that is not there, though nobody removed it, is a loss. Its
index tells which messages stood in it: they are set aside and reported, and everything else starts.
Without the index nobody can know, and the node does not start. A file that was removed tells up to
which block the log was on disk then: if it ends before that, the disk has forgotten what it synced.
"""

from leveret.engine.broker import Broker
from leveret.engine.queue import Queue
from leveret.engine.restore import define
from leveret.engine.runs import Pages
from leveret.errors import Corrupt
from leveret.storage.blocks import (
    BLOCK_HEAD_BYTES,
    HEAD_BYTES,
    block_end,
    check_head,
    encode_head,
)
from leveret.storage.checkpoint import read_whole, write_index
from leveret.storage.disk import Disk, DiskFile, is_full
from leveret.storage.names import checkpoint_name, gone_logs, index_name, log_name, numbers
from leveret.storage.replay import Replay, later_block
from leveret.storage.restoring import restore


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
        self.missing: set[int] = set()  # log files that should exist
        self.losses: list[str] = []  # what cannot be read for that, in words


def recover(disk: Disk, broker: Broker, pages: Pages) -> Recovered:
    """Build the broker's state from the data directory."""
    found = Recovered()
    replay = Replay()
    names = disk.names()
    for name in names:
        if name.endswith(".new"):
            disk.remove(name)
    checkpoints = numbers(names, ".checkpoint")
    start = checkpoints[-1] if checkpoints else 0
    if checkpoints:
        records = read_whole(disk, checkpoint_name(start), start)
        if records is None:
            raise Corrupt(f"the checkpoint before log file {start} is damaged")
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
            _note_size(disk, number, replay.files.get(number, 0), found)
        elif number in found.missing:
            raise Corrupt(f"{log_name(number)} is missing, and there is no index of it")
        else:
            is_last = number == logs[-1]
            _read_file(disk, number, replay, found, start, is_last=is_last)
            _write_index(disk, number, replay.take_index())
    _check_end(names, found)
    found.covered = start
    found.next_file = max(found.files, default=0) + 1
    broker.turn.is_restoring = True
    for table in replay.definitions:
        define(broker, table)
    broker.turn.is_restoring = False
    broker.end_turn()
    _load(broker, pages, replay, found)
    return found


def _require_complete(logs: list[int], start: int) -> None:
    """Without a checkpoint the log must go back to the first file, with one to its own."""
    if start == 0 and logs and logs[0] != 1:
        raise Corrupt("there is no checkpoint, and the log does not go back to its beginning")
    if start != 0 and start not in logs:
        raise Corrupt(f"{log_name(start)} is missing")


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
    except Corrupt:
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
        if is_last and not _has_head(data, number, found):
            found.cut_bytes += len(data)
            if _begin_again(disk, file, number, start):
                found.files[number] = HEAD_BYTES
            return
        check_head(data, number, log_name(number))
        at = HEAD_BYTES
        while at < len(data):
            block = found.last_block + 1
            if is_old:
                block = int.from_bytes(data[at + 8 : at + 16], "big")
            end = block_end(data, at, block)
            if end == 0:
                break
            replay.read(data, at + BLOCK_HEAD_BYTES, end, number, is_old)
            if not is_old:
                found.last_block = block
            at = end
        if at < len(data):
            if not is_last or is_old or later_block(data, at, found.last_block):
                raise Corrupt(f"{log_name(number)} is damaged at byte {at}")
            found.cut_bytes += len(data) - at
            file.truncate(at)
            file.sync()
        if at < replay.files.get(number, 0):
            raise Corrupt(_shorter(number, replay.files[number], at))
        found.files[number] = at
    finally:
        file.close()


def _has_head(data: bytes, number: int, found: Recovered) -> bool:
    """False where the node died while the newest file was made: no block was written to it."""
    try:
        check_head(data, number, log_name(number))
    except Corrupt:
        if later_block(data, 0, found.last_block):
            raise
        return False
    return True


def _begin_again(disk: Disk, file: DiskFile, number: int, start: int) -> bool:
    """The newest file has no head. One that a checkpoint counts on gets it; another goes."""
    if number != start:
        disk.remove(log_name(number))  # its number is used again: a full disk has no room for it
        return False
    file.truncate(0)
    file.write([encode_head(number)], 0)
    file.sync()
    return True


def _load(broker: Broker, pages: Pages, replay: Replay, found: Recovered) -> None:
    """Give every queue the messages that are left of it."""
    for queue in broker.slots.queues:
        if queue is None or not queue.durable:
            continue
        log = replay.queues.get(int(queue.ledger.id))
        if log is not None:
            queue.open_pages(pages)
            counts = restore(queue, log, pages, replay.has_ended, found.missing)
            for file, count in counts.items():
                found.live[file] = found.live.get(file, 0) + count
                if file not in found.missing:
                    found.messages += count
                elif count:
                    found.losses.append(_loss(queue, file, count))


def _loss(queue: Queue, file: int, count: int) -> str:
    where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    return f"{where}: {count} of its messages cannot be read: {log_name(file)} is missing"
