"""Opens a data directory as a follower: finds its blocks, their terms, and lost blocks.

The log of a follower is the newest run of log files without a gap. Only files from the newest start
on are read block by block. A start is one of these files:

    a file that begins with a settled ROLL block (it has the mark `.settled`)
    a file with a checkpoint, which the node wrote before it joined a cluster
    file 1

The ROLL record has the terms and the members before it. From older files only the head of the first
block is read.

Bytes after the last whole block are a torn write, unless something shows that they were synced: the
mark `synced`, a removal marker, the known commit index, or a valid block further away than one sync
reaches. A valid block close behind shows nothing, because a power loss in the middle of a sync can
keep a block and lose the one before it. If the bytes were synced, this member has lost blocks that
it may have acknowledged: it may not vote until a leader has sent them again. The log before them is
kept, unless it cannot be recovered any more (`needs_copy`).

`scan_blocks` changes nothing. `tidy_end` removes the invalid end that it found.
"""

from typing import Final

from leveret.errors import CorruptionError
from leveret.journal.cluster_records import find_roll
from leveret.journal.records import BLOCK, DEFINE, MEMBERS, STREAM, TRIM
from leveret.storage.block_reader import SLICE_BYTES, read_first_block
from leveret.storage.block_records import ROLL_EFFECT, BlockWalk, Effect, find_records
from leveret.storage.block_search import has_later_block
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES, encode_head
from leveret.storage.checkpoint import read_whole
from leveret.storage.disk import Disk, DiskFile
from leveret.storage.file_names import (
    checkpoint_name,
    index_name,
    log_name,
    numbers,
    removed_logs,
    segment_name,
    segments_by_stream,
    settled_name,
)
from leveret.storage.file_records import (
    decode_queue,
    decode_stream,
    decode_trim,
    listed_files,
)
from leveret.storage.synced_mark import SyncedMark, read_mark
from leveret.storage.unsynced_end import find_synced_end, write_unsynced_end

SYNC_BYTES_MAX: Final = 4 * 1024 * 1024  # most bytes of one sync, unless they are a single block
_BLOCK_BYTES_MIN: Final = BLOCK_HEAD_BYTES + 1


class LogFile:
    """A log file of a follower."""

    def __init__(self, number: int, first: int) -> None:
        self.number = number
        self.first = first  # its first block, or the next block of the log if it has none
        self.end = 0  # offset after its last block; 0: not known


class BlockScan:
    """The log of a follower, as its directory holds it."""

    def __init__(self) -> None:
        self.base_index = 0  # blocks up to this one are in no log file
        self.last_index = 0
        self.committed = 0  # the block that is known to be committed
        self.last_ms = 0  # time of the newest block
        # Term, and the first block that has it. Blocks of a single node have term 0.
        self.terms: list[tuple[int, int]] = [(0, 0)]
        # Block, and the encoded members from that block on. The first row is valid at the base. An
        # empty list: the members are not known.
        self.members: list[tuple[int, bytes]] = []
        self.files: list[LogFile] = []  # without a gap, oldest first
        self.start_records = b""  # the checkpoint at the start, from a ROLL block or its own file
        self.effects: list[Effect] = []  # effects of all blocks from the start on
        self.cut_bytes = 0  # bytes of a torn write at the end
        self.lost = ""  # why this member has lost blocks; empty: it has not
        self.needs_copy = False  # the log cannot be used: this node needs the leader's directory
        # Files after the last block, which `tidy_end` removes.
        self.extra_files: list[int] = []


def scan_blocks(disk: Disk, committed: int) -> BlockScan:
    """Read the log of a directory. `committed` is a block that is known to be committed.

    Raise NewerFormatError if a newer version has written the files.
    """
    scan = BlockScan()
    names = disk.names()
    witness = _find_witness(disk, names, committed)
    run = _find_run(numbers(names, ".log"))
    start = _find_start(disk, names, run)
    if start < 0:
        if run or witness or numbers(names, ".checkpoint"):
            return _needs_copy("the log has no beginning from which it can be recovered")
        return scan
    try:
        walk = _begin(disk, names, run, start, scan)
        for place in range(start, len(run)):
            if place > start:
                walk.file = run[place]
                scan.files.append(LogFile(run[place], int(walk.next_index)))
            if not _read_file(disk, walk, scan, witness, is_last=place == len(run) - 1):
                scan.extra_files = run[place + 1 :]
                break
    except (CorruptionError, FileNotFoundError) as fault:
        return _needs_copy(str(fault))
    _finish(disk, walk, scan, names)
    if scan.last_index < witness and not scan.lost:
        scan.lost = f"block {witness} was on disk, but the log ends with block {scan.last_index}"
    if not scan.files and (scan.lost or scan.last_index):
        return _needs_copy(scan.lost or "no block of the log is left")
    scan.committed = max(min(committed, scan.last_index), scan.base_index)
    hole = _file_hole(disk, names, scan) or _segment_hole(disk, names, scan)
    return _needs_copy(hole) if hole else scan


def _needs_copy(reason: str) -> BlockScan:
    """Return the result for a directory that only a copy of the leader's can replace.

    Its files stay as they are.
    """
    scan = BlockScan()
    scan.needs_copy = True
    scan.lost = reason
    return scan


def _find_witness(disk: Disk, names: list[str], committed: int) -> int:
    """Return the newest block that was on disk, as the mark and the removal markers know it."""
    blocks = [block for _, block in removed_logs(names)]
    return max([read_mark(disk) or 0, committed, *blocks])


def _find_run(logs: list[int]) -> list[int]:
    """Return the log files at the end that follow each other without a gap."""
    run = logs[-1:]
    for number in reversed(logs[:-1]):
        if number != run[0] - 1:
            break
        run.insert(0, number)
    return run


def _find_start(disk: Disk, names: list[str], run: list[int]) -> int:
    """Return the place in the run of the newest file from which the log can be recovered.

    Return -1 if there is none. A ROLL block that was never settled is not a start: it may still be
    cut off, and chunks before it may be in the log only. A newer mark makes older ones needless.
    """
    checkpoints = numbers(names, ".checkpoint")
    settled = max(numbers(names, ".settled"), default=0)
    for place in range(len(run) - 1, -1, -1):
        number = run[place]
        if number in checkpoints or (number == 1 and not checkpoints):
            return place
        begin = read_first_block(disk, number)
        if begin and number <= settled and _maybe_roll(disk, number, begin) is not None:
            return place
    return -1


def _maybe_roll(disk: Disk, number: int, index: int) -> bytes | None:
    """Return the records of the ROLL block that begins a file; None if it is not whole."""
    file = disk.open(log_name(number))
    try:
        size = int.from_bytes(file.read(4, HEAD_BYTES), "big")
        data = file.read(BLOCK_HEAD_BYTES + size, HEAD_BYTES)
    finally:
        file.close()
    walk = BlockWalk(number, index, 0)
    if walk.read(data, HEAD_BYTES) != len(data) or not walk.effects:
        return None
    return data[BLOCK_HEAD_BYTES:] if walk.effects[0].kind == ROLL_EFFECT else None


def _begin(disk: Disk, names: list[str], run: list[int], start: int, scan: BlockScan) -> BlockWalk:
    """Note the facts in the start about older blocks; return the walk over the newer blocks."""
    number = run[start]
    next_index = read_first_block(disk, number)
    roll = _maybe_roll(disk, number, next_index) if next_index else None
    term = 0
    if roll is not None:
        found = find_roll(roll, 0, len(roll))
        scan.start_records = roll
        scan.terms = [(int(term), int(first)) for term, first in found.terms]
        if not scan.terms or scan.terms[0][1] == 1:
            scan.terms.insert(0, (0, 0))  # before the first block
        scan.members = [(0, found.members)]
        term = scan.terms[-1][0]
    elif checkpoint_name(number) in names:
        records = read_whole(disk, checkpoint_name(number), number)
        if records is None:
            raise CorruptionError(f"{checkpoint_name(number)} is damaged")
        scan.start_records = records
        blocks = find_records(records, BLOCK)
        next_index = int.from_bytes(blocks[0][:8], "big") + 1 if blocks else 1
    else:
        next_index = 1
    for older in run[:start]:
        first = read_first_block(disk, older)
        if first == 0:
            scan.files = []  # it cannot be read: the log begins after it
        else:
            scan.files.append(LogFile(older, first))
    scan.files.append(LogFile(number, next_index))
    return BlockWalk(number, next_index, term)


def _read_file(
    disk: Disk, walk: BlockWalk, scan: BlockScan, witness: int, *, is_last: bool
) -> bool:
    """Read the blocks of a file; return False if the log ends in it."""
    file = disk.open(log_name(int(walk.file)))
    try:
        size = file.size()
        at = HEAD_BYTES if file.read(HEAD_BYTES, 0) == encode_head(int(walk.file)) else 0
        scan.files[-1].end = HEAD_BYTES
        if at:
            at = _read_blocks(file, walk, size)
            scan.files[-1].end = at
        if at == size:
            return True
        rest = file.read(size - at, at)
    finally:
        file.close()
    last = int(walk.next_index) - 1
    if is_last and last >= witness and not has_later_block(rest[SYNC_BYTES_MAX:], 0, last):
        scan.cut_bytes = size - at
    else:
        scan.lost = f"{log_name(int(walk.file))} is damaged at byte {at}, after block {last}"
    return False


def _read_blocks(file: DiskFile, walk: BlockWalk, size: int) -> int:
    """Read blocks until one is not whole; return the end of the last one."""
    at = HEAD_BYTES
    wanted = SLICE_BYTES
    while size - at >= _BLOCK_BYTES_MIN:
        data = file.read(wanted, at)
        passed = int(walk.read(data, at))
        at += passed
        block = BLOCK_HEAD_BYTES + int.from_bytes(data[passed : passed + 4], "big")
        is_cut_off = len(data) - passed < max(block, _BLOCK_BYTES_MIN)
        if passed == 0 and (not is_cut_off or len(data) < wanted or block <= wanted):
            break
        wanted = max(SLICE_BYTES, block) if is_cut_off else SLICE_BYTES
    return at


def _finish(disk: Disk, walk: BlockWalk, scan: BlockScan, names: list[str]) -> None:
    """Fill in the results of the walk."""
    scan.last_index = int(walk.next_index) - 1
    scan.last_ms = int(walk.last_ms)
    scan.terms += [(int(term), int(first)) for term, first in walk.terms]
    scan.effects = walk.effects
    first = scan.files[0].first
    scan.base_index = max(first - 1, scan.terms[0][1])
    if scan.base_index == 0 and scan.last_index and not any(f <= 1 and t for t, f in scan.terms):
        # A single node wrote block 1, on top of a checkpoint that its followers do not have.
        scan.base_index = 1
    for effect in scan.effects:
        if effect.kind == MEMBERS:
            scan.members.append((int(effect.index), read_effect(disk, effect)))
    scan.members = [(max(index, scan.base_index), data) for index, data in scan.members]
    newest = scan.files[-1]
    if newest.first > scan.last_index and checkpoint_name(newest.number) not in names:
        scan.extra_files.insert(0, newest.number)  # no block of the file is whole
        del scan.files[-1]


def _file_hole(disk: Disk, names: list[str], scan: BlockScan) -> str:
    """Describe the first log file that the start needs and that is missing or too short.

    Return an empty text if all are there.
    """
    gone = [number for number, _ in removed_logs(names)]
    for number, size in listed_files(scan.start_records).items():
        if log_name(number) in names:
            file = disk.open(log_name(number))
            found = file.size()
            file.close()
            if found < size:
                return f"{log_name(number)} has {found} bytes instead of {size}"
        elif number not in gone:
            return f"{log_name(number)} is missing"
    return ""


def _segment_hole(disk: Disk, names: list[str], scan: BlockScan) -> str:
    """Describe the first segment of a stream that is missing or too short at the start.

    Return an empty text if all are there.
    """
    firsts = segments_by_stream(names)
    trims = [read_effect(disk, effect) for effect in scan.effects if effect.kind == TRIM]
    defined = [read_effect(disk, effect) for effect in scan.effects if effect.kind == DEFINE]
    deleted = [number for op, number, _ in map(decode_queue, defined) if op == "queue-"]
    for payload in find_records(scan.start_records, STREAM):
        stream, first, segment, end, _, next_offset = decode_stream(payload)
        kept = [t for t in map(decode_trim, trims) if t[0] == stream]
        first = max([first, *(offset for _, offset in kept)])
        found = firsts.get(stream, [])
        if next_offset == 0 or segment < first or stream in deleted:
            continue  # the stream is empty or deleted, or retention has dropped this segment
        name = segment_name(stream, segment)
        size = 0
        if segment in found:
            file = disk.open(name)
            size = file.size()
            file.close()
        if size < end:
            return f"{name} has {size} bytes instead of {end}"
        if found[0] > first:
            return f"the segment of stream {stream} with offset {first} is missing"
    return ""


def read_effect(disk: Disk, effect: Effect) -> bytes:
    """Return the payload of an effect's record."""
    file = disk.open(log_name(int(effect.file)))
    try:
        return file.read(int(effect.size), int(effect.at))
    finally:
        file.close()


def tidy_end(disk: Disk, scan: BlockScan) -> None:
    """Remove the invalid end of the log. Write the rest again if it may not have been synced.

    If blocks are lost, the caller has noted that in the file `raft` before this call.
    """
    if scan.needs_copy:
        return
    disk.sync_folder()
    lower_mark(disk, scan.last_index)
    remove_newest(disk, scan.extra_files)
    if not scan.files:
        return
    newest = scan.files[-1]
    remove_index(disk, newest.number)
    file = disk.open(log_name(newest.number))
    try:
        if file.read(HEAD_BYTES, 0) != encode_head(newest.number):
            file.truncate(0)
            file.write([encode_head(newest.number)], 0)
        elif file.size() != newest.end:
            file.truncate(newest.end)
        file.sync()
    finally:
        file.close()
    synced = find_synced_end(disk, newest.number, newest.end)
    for _ in write_unsynced_end(disk, newest.number, synced, newest.end):
        pass


def lower_mark(disk: Disk, block: int) -> None:
    """Lower the mark `synced` to this block, before the log is cut after it."""
    if (read_mark(disk) or 0) > block:
        mark = SyncedMark(disk)
        mark.open()
        mark.note(block)
        mark.close()


def remove_newest(disk: Disk, files: list[int]) -> None:
    """Remove log files at the end of the log. A crash never leaves a gap before one of them."""
    for number in reversed(files):
        if settled_name(number) in disk.names():
            disk.remove(settled_name(number))
            disk.sync_folder()
        disk.remove(log_name(number))
        remove_index(disk, number)
        disk.sync_folder()


def remove_index(disk: Disk, number: int) -> None:
    """Remove the index of a log file, because the file is changed or removed."""
    if index_name(number) in disk.names():
        disk.remove(index_name(number))
        disk.sync_folder()
