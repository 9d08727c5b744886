"""Names of the files in a data directory:

0000000000000007.log          the records of the node, see `blocks`
0000000000000007.checkpoint   what held when that log file began, see `checkpoint`
0000000000000007.index        where the messages of that log file stand, once it is full
stream-12-4711.segment        messages of stream 12 from offset 4711 on, see `segments`
*.damaged-1234                what a repair took out of a file, and where it stood there
0000000000000008.repair       what a repair said
0000000000000007-0000000000000042.gone   that log file was removed when block 42 was on disk
reserve                       room for when there is none, see `space`
*.new                         being written; not yet anything
lock                          held by the node that uses the directory
"""

import re
from typing import Final

RESERVE: Final = "reserve"
_DIGITS: Final = 16
_SEGMENT: Final = re.compile(r"stream-(\d+)-(\d+)\.segment")


def log_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}.log"


def checkpoint_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}.checkpoint"


def index_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}.index"


def segment_name(stream: int, first_offset: int) -> str:
    return f"stream-{stream}-{first_offset}.segment"


def segments(names: list[str]) -> dict[int, list[int]]:
    """The first offsets of all segments, ascending, by stream."""
    found: dict[int, list[int]] = {}
    for name in names:
        match = _SEGMENT.fullmatch(name)
        if match is not None:
            found.setdefault(int(match[1]), []).append(int(match[2]))
    return {stream: sorted(firsts) for stream, firsts in found.items()}


def side_name(name: str, offset: int) -> str:
    """Where a repair puts bytes that it takes out of a file."""
    return f"{name}.damaged-{offset}"


def repair_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}.repair"


def gone_name(number: int, block: int) -> str:
    return f"{number:0{_DIGITS}d}-{block:0{_DIGITS}d}.gone"


def gone_logs(names: list[str]) -> list[tuple[int, int]]:
    """The log files that were removed: number, and the last block that was on disk then."""
    stems = [name.removesuffix(".gone") for name in names if name.endswith(".gone")]
    pairs = [stem.split("-") for stem in stems]
    sound = [pair for pair in pairs if len(pair) == 2 and all(map(str.isdigit, pair))]
    return [(int(number), int(block)) for number, block in sound]


def numbers(names: list[str], ending: str) -> list[int]:
    """The numbers of all files with this ending, ascending."""
    found = [name[: -len(ending)] for name in names if name.endswith(ending)]
    return sorted(int(stem) for stem in found if len(stem) == _DIGITS and stem.isdigit())
