"""Debian's amqp-tools: the C client library behind a few small commands."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.tools import require_program

Fresh = Callable[[str], str]
Run = Callable[..., subprocess.CompletedProcess[str]]
WAIT_S = 60


@pytest.fixture
def run(amqp_address: tuple[str, int]) -> Run:
    """Runs one of the tools against the broker, with the given input."""
    server = ["--server", amqp_address[0], "--port", str(amqp_address[1])]

    def run_tool(
        tool: str, *arguments: str, stdin: str = "", ok: bool = True
    ) -> subprocess.CompletedProcess[str]:
        command = [require_program(tool, "amqp-tools"), *server, *arguments]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, timeout=WAIT_S
        )
        assert (done.returncode == 0) == ok, f"{command}: {done.stdout}{done.stderr}"
        return done

    return run_tool


def test_declare_publish_get_delete(run: Run, fresh: Fresh) -> None:
    queue = fresh("tools")
    assert run("amqp-declare-queue", "-q", queue, "-d").stdout.strip() == queue
    run("amqp-publish", "-r", queue, "-p", "-C", "text/plain", "-H", "a: b", "-b", "hello")
    assert run("amqp-get", "-q", queue).stdout == "hello"
    assert run("amqp-get", "-q", queue, ok=False).returncode == 2  # the queue is empty
    assert run("amqp-delete-queue", "-q", queue).stdout.strip() == "0"


def test_delete_obeys_if_empty_and_if_unused(run: Run, fresh: Fresh) -> None:
    queue = fresh("kept")
    run("amqp-declare-queue", "-q", queue)
    run("amqp-publish", "-r", queue, "-b", "keeps it")
    assert "not empty" in run("amqp-delete-queue", "-q", queue, "--if-empty", ok=False).stderr
    assert run("amqp-delete-queue", "-q", queue, "--if-unused").stdout.strip() == "1"


def test_publish_lines_and_consume_them(run: Run, fresh: Fresh, tmp_path: Path) -> None:
    queue, seen = fresh("lines"), tmp_path / "seen"
    run("amqp-declare-queue", "-q", queue)
    run("amqp-publish", "-r", queue, "-l", stdin="one\ntwo\nthree\n")
    append = ["sh", "-c", f"cat >> {seen}; echo >> {seen}"]
    run("amqp-consume", "-q", queue, "-c", "3", "-p", "1", "--", *append)
    assert seen.read_text().split() == ["one", "two", "three"]
    assert run("amqp-get", "-q", queue, ok=False).returncode == 2


def test_large_body_through_the_c_library(run: Run, fresh: Fresh) -> None:
    queue = fresh("large")
    body = "0123456789abcdef" * 65536
    run("amqp-declare-queue", "-q", queue)
    run("amqp-publish", "-r", queue, stdin=body)
    assert run("amqp-get", "-q", queue).stdout == body


def test_errors_are_told(run: Run) -> None:
    assert "NOT_FOUND" in run("amqp-get", "-q", "clients.missing", ok=False).stderr
    assert "logging in" in run("amqp-get", "-q", "x", "--password", "wrong", ok=False).stderr
