"""Bulk reads on a follower: what it answers from its own segments, and what the leader answers."""

from pathlib import Path

import pytest

from leveret.arrow.requests import COLUMNS
from leveret.runtime.follower_reads import StreamRange, parse_wanted, plan_read
from leveret.storage.file_names import segment_name

PATH = "/api/streams/%2F/or%2Fders/batches"
FOUND = StreamRange(number=7, stream_first=10, stream_end=100, user="guest")


def test_range_is_parsed_as_the_leader_parses_it() -> None:
    wanted = parse_wanted(f"{PATH}?from=5&to=9&columns=offset,body&max_bytes=3")
    assert wanted is not None
    assert (wanted.stream, wanted.first, wanted.end) == ("or/ders", 5, 9)
    assert (wanted.columns, wanted.bytes_max) == (["offset", "body"], 3)
    assert wanted.question == "/api/streams/%2F/or%2Fders/segments?from=5&to=5"
    wanted = parse_wanted(f"{PATH}?from=5")
    assert wanted is not None
    assert wanted.columns == list(COLUMNS)


@pytest.mark.parametrize(
    "target",
    [
        PATH,
        f"{PATH}?from=x",
        f"{PATH}?from=-1",
        f"{PATH}?from={'9' * 19}",
        f"{PATH}?from=1&from=2",
        f"{PATH}?from=1&to=",
        f"{PATH}?from=1&columns=nothing",
        f"{PATH}?from=1&columns=offset,offset",
        f"{PATH}/more?from=1",
        "/api/streams/%2F/orders?from=1",
        "/api/streams//batches?from=1",
        "/api/queues/%2F/orders/batches?from=1",
    ],
)
def test_other_requests_are_left_to_the_leader(target: str) -> None:
    assert parse_wanted(target) is None


@pytest.mark.parametrize(
    ("first", "end", "written_end", "segments"),
    [
        (10, 100, 100, [0, 40, 70]),
        (45, 60, 60, [40]),
        (45, 71, 71, [40, 70]),
        (99, 500, 100, [70]),  # a range may go beyond the end of the stream
        (45, 100, 99, None),  # this node is behind
        (9, 100, 100, None),  # retention has removed offset 9
        (100, 200, 100, None),  # an empty answer
        (101, 200, 100, None),
    ],
)
def test_read_is_planned_if_this_node_has_all_of_it(
    tmp_path: Path, first: int, end: int, written_end: int, segments: list[int] | None
) -> None:
    for start in (0, 40, 70):
        (tmp_path / segment_name(7, start)).write_bytes(b"x" * (start + 1))
    (tmp_path / segment_name(8, 50)).touch()
    wanted = parse_wanted(f"{PATH}?from={first}&to={end}&columns=offset")
    assert wanted is not None
    request = plan_read(wanted, FOUND, tmp_path, written_end)
    if segments is None:
        assert request is None
        return
    assert request is not None
    assert request.segments is not None
    assert (request.number, request.first, request.end) == (7, first, min(end, 100))
    assert [(part.first_offset, part.end) for part in request.segments] == [
        (start, start + 1) for start in segments
    ]


def test_read_of_a_stream_without_files_here_is_left_to_the_leader(tmp_path: Path) -> None:
    wanted = parse_wanted(f"{PATH}?from=20")
    assert wanted is not None
    assert plan_read(wanted, FOUND, tmp_path, 100) is None
    (tmp_path / segment_name(7, 21)).touch()
    assert plan_read(wanted, FOUND, tmp_path, 100) is None
