"""Plan bulk reads of streams that a follower answers from its own segments.

    client    GET /api/streams/{vhost}/{name}/batches?from=&to=
    leader    checks the login and the permission, and says which offsets the stream has
    follower  encodes the rows, if its segments have all of them

A follower writes the rows of a block to its segments when the block is committed. So a follower
shows no row that the leader would not show. If it lacks a row of the range, the leader answers. The
segments of a follower may begin at other offsets than those of the leader, and may change while
they are read. The read then breaks off, and the client reads the rest in another request.
"""

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote

import msgspec

from leveret.arrow.requests import COLUMNS, Request, SegmentPart
from leveret.engine.streams.stream import OFFSET_MAX
from leveret.storage.file_names import segment_name, segments_by_stream

_BATCHES: Final = "/batches"
_STREAMS: Final = "/api/streams/"
_DIGITS_MAX: Final = 18  # of a number in the query; the leader reads longer ones


class StreamRange(msgspec.Struct):
    """The part of the leader's answer about the segments of a stream that a follower needs."""

    number: int  # number of the stream in the log
    stream_first: int
    stream_end: int
    user: str  # the user whose share of the reads it uses


@dataclass(frozen=True)
class WantedRange:
    """The range that a client asks for."""

    path: str
    stream: str
    first: int
    end: int
    columns: list[str]
    bytes_max: int

    @property
    def question(self) -> str:
        """Return the target of the request that this node sends to the leader."""
        return f"{self.path.removesuffix(_BATCHES)}/segments?from={self.first}&to={self.first}"


def parse_wanted(target: str) -> WantedRange | None:
    """Parse the target of a request. None: it is not a bulk read, or not a valid one."""
    path, _, query = target.partition("?")
    parts = path.removeprefix(_STREAMS).split("/")
    if not path.startswith(_STREAMS) or len(parts) != 3 or not path.endswith(_BATCHES):
        return None
    given = parse_qs(query, keep_blank_values=True)
    if any(len(values) > 1 for values in given.values()):
        return None
    texts = {name: values[0] for name, values in given.items()}
    first = _number(texts, "from", -1)
    end = _number(texts, "to", OFFSET_MAX)
    bytes_max = _number(texts, "max_bytes", 0)
    columns = texts["columns"].split(",") if "columns" in texts else list(COLUMNS)
    if min(first, end, bytes_max) < 0 or not set(columns) <= set(COLUMNS):
        return None
    if len(set(columns)) != len(columns):
        return None
    stream = unquote(parts[1], errors="surrogateescape")
    return WantedRange(path, stream, first, end, columns, bytes_max)


def _number(texts: dict[str, str], name: str, default: int) -> int:
    """Return a number of the query; -1 if it is not a number."""
    text = texts.get(name)
    if text is None:
        return default
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else -1


def plan_read(
    wanted: WantedRange, found: StreamRange, folder: Path, written_end: int
) -> Request | None:
    """Return the read of a range. None: a part of it is not in the segments of this node.

    `written_end` is the end of the chunks that this node has written to the segments.
    """
    end = min(wanted.end, found.stream_end)
    if not found.stream_first <= wanted.first < end <= written_end:
        return None
    request = Request(
        wanted.stream, found.number, wanted.first, end, wanted.columns, wanted.bytes_max
    )
    request.segments = _parts(folder, found.number, wanted.first, end)
    return request if request.segments else None


def _parts(folder: Path, number: int, first: int, end: int) -> list[SegmentPart]:
    """Return the segments that hold a range, as they are in the folder now."""
    firsts = segments_by_stream(os.listdir(folder)).get(number, [])
    parts: list[SegmentPart] = []
    for start, following in pairwise([*firsts, OFFSET_MAX]):
        if start < end and following > first:
            path = folder / segment_name(number, start)
            try:
                parts.append(SegmentPart(str(path), start, path.stat().st_size))
            except FileNotFoundError:
                return []
    return parts if parts and parts[0].first_offset <= first else []
