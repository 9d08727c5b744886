"""The thread that writes log lines: a full pipe blocks no caller, and dropped lines are counted."""

import fcntl
import os
import re
from collections.abc import Iterator

import pytest

from leveret.runtime.log_writer import WAITING_BYTES_MAX, LogWriter

LINE = "x" * 999 + "\n"
PIPE_BYTES = 4096
# One batch is being written, a second one waits; the rest is dropped.
LINES = 3 * WAITING_BYTES_MAX // len(LINE)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield reader, writer
    os.close(reader)


def read_until(reader: int, end: str) -> str:
    text = ""
    while not text.endswith(end):
        text += os.read(reader, 65_536).decode()
    return text


def _told(text: str) -> int:
    """Return how many lines were dropped, by the lines that tell of it."""
    return sum(int(number) for number in re.findall(r"(?m)^([0-9]+) dropped$", text))


def test_lines_that_nobody_reads_are_dropped_and_counted(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    log = LogWriter(writer, lambda count: f"{count} dropped\n")
    for _ in range(LINES):
        log.write(LINE)
    dropped = log.dropped
    assert 0 < dropped < LINES
    written, told, rest = 0, 0, ""
    while written + told < LINES:
        whole, end, rest = (rest + os.read(reader, 65_536).decode()).rpartition("\n")
        written += (whole + end).count(LINE)
        told += _told(whole + end)
    assert written + told == LINES
    assert told == dropped
    log.write("works again\n")
    assert read_until(reader, "again\n") == "works again\n"
    log.close()
    os.close(writer)


def test_lines_for_a_reader_that_is_gone_are_counted() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    log = LogWriter(writer, str)
    log.write(LINE)
    log.close()
    assert log.dropped == 1
    os.close(writer)


def test_a_descriptor_that_does_not_block_gets_every_line(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.set_blocking(writer, False)
    log = LogWriter(writer, str)
    for _ in range(100):
        log.write(LINE)
    log.write("end\n")
    assert read_until(reader, "end\n") == LINE * 100 + "end\n"
    log.close()
    os.close(writer)
