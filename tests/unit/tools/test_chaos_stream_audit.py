"""The audit of a stream reports each wrong row of a query, and no right one."""

from zlib import crc32

import pytest

from tools.chaos_cluster.stream_audit import HEAD_BYTES, Row, StreamAudit

BODIES = {(1, 1): b"1.1.1.0.0 one", (1, 2): b"1.2.1.0.0 two", (2, 1): b"2.1.1.0.0 other"}
SENT = {key: crc32(body) for key, body in BODIES.items()}
ALL = list(BODIES)


def rows(*keys: tuple[int, int], first: int = 0) -> list[Row]:
    """Return the rows of a stream with these messages."""
    return [(offset, BODIES[key][:HEAD_BYTES], SENT[key]) for offset, key in enumerate(keys, first)]


def faults_after(*queries: list[Row], confirmed: list[tuple[int, int]]) -> list[str]:
    audit = StreamAudit()
    for found in queries:
        audit.check(found, confirmed, SENT)
    return [fault.removeprefix(f"stream: query {len(queries)}: ") for fault in audit.faults]


def test_stream_that_grows_has_no_fault() -> None:
    audit = StreamAudit()
    audit.check([], [], SENT)
    audit.check(rows(*ALL[:2]), ALL[:1], SENT)
    audit.check(list(reversed(rows(*ALL))), ALL, SENT)  # Spark gives rows in any order
    assert (audit.faults, audit.queries, audit.rows) == ([], 3, 3)


def test_unconfirmed_message_may_be_there_or_not() -> None:
    assert faults_after(rows(*ALL[:1]), rows(*ALL[:2]), confirmed=ALL[:1]) == []


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (rows((1, 1)), "2 confirmed messages are missing: [(1, 2), (2, 1)]"),
        (rows(*ALL, first=1), "offset 0 is missing, or is there twice"),
        (rows(*ALL) + rows((2, 1), first=2), "offset 3 is missing, or is there twice"),
        (rows(*ALL, (2, 1)), "(2, 1) is at the offsets 2 and 3"),
        (rows((1, 2), (1, 1), (2, 1)), "(1, 1) is after number 2"),
        ([*rows(*ALL), (3, b"9.9.9.0.0 ", 1)], "offset 3 has a body that nobody sent: b'9.9.9.0"),
        ([*rows(*ALL), (3, b"?", 1)], "offset 3 has a body that nobody sent: b'?'"),
    ],
)
def test_wrong_stream_is_told(found: list[Row], fault: str) -> None:
    assert faults_after(found, confirmed=ALL)[0].startswith(fault)


def test_damaged_body_is_told() -> None:
    offset, head, crc = rows((1, 1))[0]
    assert "nobody sent" in faults_after([(offset, head, crc + 1)], confirmed=[])[0]


def test_offset_keeps_its_message_between_queries() -> None:
    before, after = rows((1, 1), (2, 1)), rows((2, 1), (1, 1))
    found = faults_after(before, after, confirmed=[])
    assert [fault.partition(" had ")[0] for fault in found] == ["offset 0", "offset 1"]


def test_later_query_has_no_fewer_messages() -> None:
    found = faults_after(rows(*ALL), rows(*ALL[:2]), confirmed=[])
    assert found == ["1 offsets are gone that a query had"]
