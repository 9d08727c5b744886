"""`leveret perf` as a process: flags, progress, results, files, exit codes."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.testing import RunningBroker, broker


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker() as found:
        yield found


def perf(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "leveret", "perf", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_progress_figures_json_and_chart(server: RunningBroker, tmp_path: Path) -> None:
    chart, figures = tmp_path / "chart.html", tmp_path / "figures.json"
    flags = "--confirm 100 --prefetch 100 --rate 2000 --seconds 1.2 --interval 0.3"
    done = perf("--uri", server.url, *flags.split(), "--chart", str(chart), "--json", str(figures))
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert "2,000/s" in lines[0]
    assert lines[1].split()[:3] == ["time", "sent/s", "received/s"]
    assert sum(bool(re.match(r"\s+\d\.\d s ", line)) for line in lines) >= 3
    assert re.search(r"^latency +p50 .*p99\.9 .*max ", done.stdout, re.MULTILINE)
    found = json.loads(figures.read_text())
    assert found["received"] > 0
    assert found["load"]["rate"] == 2000
    assert found["load"]["password"] == "***"
    assert chart.read_text().startswith("<!doctype html>")


def test_json_on_stdout_is_alone_there(server: RunningBroker) -> None:
    done = perf("--uri", server.url, "--messages", "100", "--size", "16,1k", "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["sent"], found["received"]) == (100, 100)
    assert "received" in done.stderr


def test_topic_exchange_with_many_keys_and_queue_arguments(server: RunningBroker) -> None:
    words = "--exchange t --exchange-type topic --routing-key k.{1..20} --binding-key k.*"
    limits = "--queue-arg x-max-length=1000 --messages 200 --json -"
    done = perf("--uri", server.url, *words.split(), *limits.split())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["received"] == 200


def test_interrupt_ends_early_with_the_figures_so_far(server: RunningBroker) -> None:
    words = ["--uri", server.url, "--seconds", "50", "--rate", "100", "--interval", "0.2"]
    # A suite that runs in the background is started with interrupts ignored.
    program = (
        "import signal, sys; from leveret.cli.main import main; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); sys.exit(main(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "perf", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if re.match(r"\s+\d\.\d s ", line):
            break
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert re.search(r"^received +[1-9]", out, re.MULTILINE)
    assert [name for name in server.node.broker.vhost("/").queues if "perf" in name] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--queue-type stream", "consumers of a stream need a prefetch"),
        ("--size big", "'big' is not a size such as 16, 4k or 1MiB"),
        ("--variable-rate 100", "'100' is not RATE:SECONDS"),
        ("--queue-arg x", "--queue-arg 'x' is not KEY=VALUE"),
        ("--uri http://x", "http://x is not an amqp:// or amqps:// address"),
    ],
)
def test_wrong_flags_are_reported_in_one_line(words: str, said: str) -> None:
    done = perf(*words.split())
    assert done.returncode == 2
    assert done.stderr.splitlines() == [f"leveret perf: {said}"]


def test_missing_broker_is_reported_in_one_line() -> None:
    done = perf("--uri", "amqp://127.0.0.1:1", "--seconds", "1")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Connection refused" in done.stderr.splitlines()[-1]
