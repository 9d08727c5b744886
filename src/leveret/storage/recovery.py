"""Starting again: from checkpoint and log files to the state of the broker.

The longest valid prefix of the log counts. Bytes behind it in the last file are a write that was
torn when the node died: they are cut off and reported. Anything else that does not fit is damage,
and the node does not start on it: nothing unexplained is ever deleted.
"""

from leveret.engine.broker import Broker
from leveret.engine.restore import define
from leveret.engine.runs import Pages
from leveret.errors import Corrupt
from leveret.journal.index import ENTRY_BYTES
from leveret.storage.blocks import (
    BLOCK_HEAD_BYTES,
    HEAD_BYTES,
    block_end,
    check_head,
    encode_head,
)
from leveret.storage.checkpoint import read_whole, write_index
from leveret.storage.disk import Disk, DiskFile, is_full
from leveret.storage.names import checkpoint_name, index_name, log_name, numbers
from leveret.storage.replay import Replay, later_block
from leveret.storage.restoring import restore


class Recovered:
    """What a start found."""

    def __init__(self) -> None:
        self.files: set[int] = set()  # log files that exist
        self.next_file = 1
        self.last_block = 0
        self.messages = 0
        self.cut_bytes = 0  # torn off the end of the log
        self.live: dict[int, int] = {}  # messages by log file
        self.totals: dict[int, int] = {}  # the same, with those that are gone
        self.superseded: dict[int, set[int]] = {}  # offsets of messages with a later copy, by file


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
    for number in logs:
        index = _read_index(disk, number) if number in indexed else None
        if index is not None and number < start:
            replay.read_index(index, number)
            found.totals[number] = len(index) // ENTRY_BYTES
            continue
        is_last = number == logs[-1]
        _read_file(disk, number, replay, found, is_old=number < start, is_last=is_last)
        index = replay.take_index()
        found.totals[number] = len(index) // ENTRY_BYTES
        _write_index(disk, number, index)
    found.files = set(logs)
    found.next_file = max([start, *logs, 0]) + 1
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
    disk: Disk, number: int, replay: Replay, found: Recovered, *, is_old: bool, is_last: bool
) -> None:
    """Take in one log file, block by block."""
    file = disk.open(log_name(number))
    try:
        data = file.read(file.size(), 0)
        try:
            check_head(data, number, log_name(number))
        except Corrupt:
            if not is_last or later_block(data, 0, found.last_block):
                raise
            _begin_again(file, data, number, found)
            return
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
    finally:
        file.close()


def _begin_again(file: DiskFile, data: bytes, number: int, found: Recovered) -> None:
    """The node died while this file was made: no block was ever written to it."""
    found.cut_bytes += len(data)
    file.truncate(0)
    file.write([encode_head(number)], 0)
    file.sync()


def _load(broker: Broker, pages: Pages, replay: Replay, found: Recovered) -> None:
    """Give every queue the messages that are left of it."""
    for queue in broker.slots.queues:
        if queue is None or not queue.durable:
            continue
        log = replay.queues.get(int(queue.ledger.id))
        if log is not None:
            queue.open_pages(pages)
            counts = restore(queue, log, replay.has_ended, found.superseded)
            for file, count in counts.items():
                found.live[file] = found.live.get(file, 0) + count
                found.messages += count
