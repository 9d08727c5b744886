"""Names of the files in a data directory:

0000000000000007.log          records of the node, see `blocks`
0000000000000007.checkpoint   state at the start of that log file, see `checkpoint`
0000000000000007.index        positions of the messages in that log file, once it is full
0000000000000007.settled      empty: in a cluster, all blocks before that log file are committed
stream-12-4711.segment        messages of stream 12 from offset 4711 on, see `segments`
*.damaged-1234                bytes that a repair took out of a file at that offset
0000000000000008.repair       report of a repair
0000000000000007-0000000000000042.gone   log file 7 was removed when block 42 was on disk
reserve                       disk space for a full disk, see `disk_space`
synced                        the last block that is known to be on disk, see `synced_mark`
raft                          term, vote and identity of a member of a cluster, see `raft_state`
*.copy                        file of another member's directory, see `directory_copy`
install                       the copied files that replace this directory, see `directory_copy`
*.unexplained-1234            bytes of a segment from that offset on that were set aside
*.new                         incomplete file, removed at the next start
lock                          locked by the node that uses the directory
"""

import re
from typing import Final

RESERVE: Final = "reserve"
SYNCED: Final = "synced"
RAFT: Final = "raft"
INSTALL: Final = "install"
COPY_ENDING: Final = ".copy"
_DIGITS: Final = 16
_SEGMENT: Final = re.compile(r"stream-(\d+)-(\d+)\.segment")


def log_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}.log"


def checkpoint_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}.checkpoint"


def index_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}.index"


def settled_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}.settled"


def segment_name(stream: int, first_offset: int) -> str:
    return f"stream-{stream}-{first_offset}.segment"


def segments_by_stream(names: list[str]) -> dict[int, list[int]]:
    """Return the first offsets of all segments, ascending, by stream."""
    found: dict[int, list[int]] = {}
    for name in names:
        match = _SEGMENT.fullmatch(name)
        if match is not None:
            found.setdefault(int(match[1]), []).append(int(match[2]))
    return {stream: sorted(firsts) for stream, firsts in found.items()}


def damaged_bytes_name(name: str, offset: int) -> str:
    """Return the name of the file that gets the bytes which a repair takes out."""
    return f"{name}.damaged-{offset}"


def unexplained_name(name: str, offset: int) -> str:
    """Return the name of the file that gets bytes which the log does not explain."""
    return f"{name}.unexplained-{offset}"


def repair_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}.repair"


def removal_marker_name(number: int, block: int) -> str:
    return f"{number:0{_DIGITS}d}-{block:0{_DIGITS}d}.gone"


def removed_logs(names: list[str]) -> list[tuple[int, int]]:
    """Return number and last synced block of each log file that was removed."""
    stems = [name.removesuffix(".gone") for name in names if name.endswith(".gone")]
    pairs = [stem.split("-") for stem in stems]
    sound = [pair for pair in pairs if len(pair) == 2 and all(map(str.isdigit, pair))]
    return [(int(number), int(block)) for number, block in sound]


def numbers(names: list[str], ending: str) -> list[int]:
    """Return the numbers of all files with this ending, ascending."""
    found = [name[: -len(ending)] for name in names if name.endswith(ending)]
    return sorted(int(stem) for stem in found if len(stem) == _DIGITS and stem.isdigit())
