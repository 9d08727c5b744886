"""SIGTERM and SIGINT during recovery: the node ends at once, and nothing is lost."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pika
import pytest

from tests.serve.test_process import serving
from tests.serve.test_stop import waiting

MESSAGES = 300
TORN = b"\x00\x00\x01\x00 the beginning of a write"

# Sends itself a signal when something of recovery is about to be done.
STRUCK = """
import os, sys
is_struck = False
def strike(event, given):
    global is_struck
    if event == {event!r} and {name!r} in str(given[0]) and not is_struck:
        is_struck = True
        print("struck", flush=True)
        os.kill(os.getpid(), {number})
sys.addaudithook(strike)
from leveret.cli.main import main
sys.exit(main(["serve", "--data", {data!r}, "--amqp-port", "0", "--http-port", "0"]))
"""
# The signal, and before which event it comes; each between two steps of recovery.
POINTS = {
    "the first file is opened": (signal.SIGTERM, "open", "1.log"),
    "the second file is opened": (signal.SIGINT, "open", "2.log"),
    "the torn end is cut off": (signal.SIGTERM, "os.truncate", ""),
    "an index is begun": (signal.SIGINT, "open", ".index.new"),
    "an index is put in its place": (signal.SIGTERM, "os.rename", ".index.new"),
}


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with two log files that no checkpoint covers; the end of one is torn."""
    data = tmp_path_factory.mktemp("torn")
    for _ in range(2):
        with serving(data) as (process, ready):
            publish(int(ready[2]))
            process.kill()
            process.wait()
    logs = sorted(data.glob("*.log"))
    assert len(logs) >= 2
    with logs[-1].open("ab") as file:
        file.write(TORN)
    return data


def publish(port: int) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.queue_declare("kept", durable=True)
        channel.confirm_delivery()
        for _ in range(MESSAGES):
            channel.basic_publish("", "kept", b"", pika.BasicProperties(delivery_mode=2))


@pytest.mark.parametrize("point", POINTS)
def test_a_signal_during_recovery_ends_it_and_the_next_start_has_everything(
    tmp_path: Path, torn: Path, point: str
) -> None:
    data = tmp_path / "data"
    shutil.copytree(torn, data)
    number, event, name = POINTS[point]
    code = STRUCK.format(event=event, name=name, number=int(number), data=str(data))
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean,
    )
    # Neither was it ready, nor did it go on up to there and then stop.
    assert (done.returncode, done.stdout) == (0, "struck\n"), done.stderr
    assert "Traceback" not in done.stderr
    with serving(data) as (_, ready):
        assert waiting(int(ready[2])) == 2 * MESSAGES
