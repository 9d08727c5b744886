"""Backup, restore and repair of a `leveret serve` process under load, by the commands."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest
from typer.testing import CliRunner

from leveret.cli.app import make_app
from tests.compat.client import Closed, Connection, Method, connect
from tools.chaos.actor import ENDED

pytestmark = pytest.mark.compiled_only(
    "the command line has one form, and tests/simulation has backup and repair in both"
)

READY = re.compile(r"leveret ready amqp=(127\.0\.0\.1):(\d+) http=(127\.0\.0\.1:\d+)\n")
BODY = b"x" * 2000
HELD = 10  # messages that a consumer has in flight at least


def number_of(message: Method) -> tuple[int, bool]:
    number, _, _ = message.body.partition(b".")
    return int(number), bool(message.fields["redelivered"])


class Process:
    """A broker process."""

    def __init__(self, process: subprocess.Popen[str], amqp_port: int, url: str) -> None:
        self.process = process
        self.amqp_port = amqp_port
        self.url = url

    def connect(self) -> Connection:
        return connect("127.0.0.1", self.amqp_port)


@contextmanager
def serving(data: Path) -> Iterator[Process]:
    command = [sys.executable, "-m", "leveret", "serve", "--data", str(data)]
    with subprocess.Popen(
        [*command, "--amqp-port", "0", "--http-port", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            ready = READY.fullmatch(process.stdout.readline())
            assert ready is not None
            yield Process(process, int(ready[2]), f"http://guest:guest@{ready[3]}")
        finally:
            process.kill()


def ctl(*words: str, code: int = 0) -> str:
    """Run a command in this process, because a start takes half a second."""
    clean = {key: None for key in os.environ if key.startswith("LEVERET_")}
    done = CliRunner().invoke(make_app("ctl"), ["ctl", *words], env=clean, catch_exceptions=False)
    assert done.exit_code == code, done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


class Publisher(threading.Thread):
    """Publishes numbered persistent messages, some hundred unconfirmed at a time."""

    def __init__(self, broker: Process, queue: str) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._queue = queue
        self.issued = 0
        self.confirmed = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        connection = self._broker.connect()
        with contextlib.suppress(*ENDED):
            self._publish(connection)
        connection.drop()

    def _publish(self, connection: Connection) -> None:
        channel = connection.channel()
        channel.call("confirm.select")
        while not self.stopping.is_set():
            while self.issued - self.confirmed < 200:
                self.issued += 1
                body = b"%d." % self.issued + BODY
                channel.publish("", self._queue, body, {"delivery_mode": 2})
            event = connection.receive(1)
            if isinstance(event, Method) and event.name == "basic.ack":
                self.confirmed = max(self.confirmed, event.tag)
            elif isinstance(event, Closed):
                return


class Consumer(threading.Thread):
    """Takes messages of a queue and acks them, the last few excepted: it is never empty."""

    def __init__(self, broker: Process, queue: str) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._queue = queue
        self.taken = 0  # messages up to this one were acked
        self.stopping = threading.Event()

    def run(self) -> None:
        connection = self._broker.connect()
        with contextlib.suppress(*ENDED):
            self._consume(connection)
        connection.drop()

    def _consume(self, connection: Connection) -> None:
        channel = connection.channel()
        channel.call("basic.qos", prefetch_count=50)
        channel.call("basic.consume", queue=self._queue, consumer_tag="c")
        held: list[Method] = []
        while not self.stopping.is_set():
            event = connection.receive(1, 0.5)
            if isinstance(event, Method) and event.name == "basic.deliver":
                held.append(event)
                if len(held) > HELD:
                    oldest = held.pop(0)
                    self.taken = number_of(oldest)[0]
                    connection.send(1, "basic.ack", delivery_tag=oldest.tag)
            elif isinstance(event, Closed):
                return


def declare(broker: Process, *names: str) -> None:
    connection = broker.connect()
    channel = connection.channel()
    for name in names:
        channel.call("queue.declare", queue=name, durable=True)
    connection.close()


def drained(broker: Process, queue: str) -> list[int]:
    connection = broker.connect()
    channel = connection.channel()
    found: list[int] = []
    while (message := channel.get(queue)) is not None:
        assert message.body.endswith(b"." + BODY)
        found.append(number_of(message)[0])
    connection.close()
    return found


def wait_for(threads: list[Publisher], least: int) -> None:
    deadline = time.monotonic() + 60
    while any(thread.confirmed < least for thread in threads):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def check_backup(found: list[int], confirmed: int, issued: int, taken: int) -> None:
    """Check that the backup has all confirmed unacked messages, in order, and no others."""
    if not found:  # the consumer was as fast as the publisher
        assert confirmed <= taken
        return
    assert found == sorted(set(found))
    assert found[-1] <= issued
    assert found[-1] >= confirmed
    assert found[0] <= taken + 1
    assert found == list(range(found[0], found[-1] + 1))


def test_backup_under_load_holds_one_moment(tmp_path: Path) -> None:
    file = tmp_path / "node.backup"
    of_queue = tmp_path / "queue.backup"
    with serving(tmp_path / "data") as broker:
        declare(broker, "kept", "worked")
        publishers = [Publisher(broker, "kept"), Publisher(broker, "worked")]
        consumer = Consumer(broker, "worked")
        threads: list[Publisher | Consumer] = [*publishers, consumer]
        for thread in threads:
            thread.start()
        marks = []
        for command in (
            ["backup", str(file), "--url", broker.url],
            ["backup", str(of_queue), "--queue", "worked", "--url", broker.url],
        ):
            wait_for(publishers, max(publisher.confirmed for publisher in publishers) + 500)
            confirmed = [publisher.confirmed for publisher in publishers]
            ctl(*command)
            marks.append((confirmed, [p.issued for p in publishers], consumer.taken))
        for thread in threads:
            thread.stopping.set()
        broker.process.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join(60)

    confirmed, issued, taken = marks[0]
    ctl("restore", str(file), "--data", str(tmp_path / "restored"))
    with serving(tmp_path / "restored") as broker:
        listed = {q["name"]: q for q in json.loads(ctl("queues", "--json", "--url", broker.url))}
        assert listed["kept"]["messages_damaged"] == 0
        kept = drained(broker, "kept")
        assert kept[0] == 1
        check_backup(kept, confirmed[0], issued[0], 0)
        check_backup(drained(broker, "worked"), confirmed[1], issued[1], taken)

        confirmed, issued, taken = marks[1]
        words = ["restore", str(of_queue), "--queue", "worked", "--url", broker.url]
        ctl(*words)
        assert "not empty" in ctl(*words, code=1)
        ctl(*words, "--into", "copied")
        worked = drained(broker, "worked")
        check_backup(worked, confirmed[1], issued[1], taken)
        assert drained(broker, "copied") == worked


def test_kill_during_a_backup_leaves_nothing_behind(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data) as broker:
        declare(broker, "kept")
        publisher = Publisher(broker, "kept")
        publisher.start()
        wait_for([publisher], 3000)
        words = ["ctl", "backup", str(tmp_path / "b"), "--url", broker.url]
        backup = subprocess.Popen(
            [sys.executable, "-m", "leveret", *words],
            stderr=subprocess.PIPE,
            text=True,
        )
        names = set(os.listdir(data))
        deadline = time.monotonic() + 60
        while set(os.listdir(data)) == names and time.monotonic() < deadline:
            time.sleep(0.001)  # the roll is what a backup does to the directory
        broker.process.kill()
        _, said = backup.communicate(timeout=60)
        publisher.stopping.set()
        publisher.join(60)
        confirmed = publisher.confirmed
    if backup.returncode:
        assert len(said.splitlines()) == 1
        assert os.listdir(tmp_path) == ["data"]
    endings = {name.partition(".")[2] for name in os.listdir(data)}
    assert endings <= {"", "log", "index", "checkpoint", "checkpoint.new", "index.new"}
    with serving(data) as broker:
        found = drained(broker, "kept")
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= confirmed


def test_restored_queue_is_declared_and_bound_as_it_was(tmp_path: Path) -> None:
    file = str(tmp_path / "q.backup")
    with serving(tmp_path / "data") as broker:
        connection = pika.BlockingConnection(pika.ConnectionParameters(port=broker.amqp_port))
        channel = connection.channel()
        arguments = {"x-max-priority": 3, "x-dead-letter-exchange": "dlx"}
        channel.queue_declare("q", durable=True, arguments=arguments)
        channel.exchange_declare("ex", "topic", durable=True)
        channel.queue_bind("q", "ex", "a.#")
        for number in range(20):
            properties = pika.BasicProperties(
                delivery_mode=1 + number % 2, priority=number % 3, headers={"n": number}
            )
            channel.basic_publish("ex", "a.b", b"%d" % number, properties)
        held = [channel.basic_get("q") for _ in range(3)]
        before = json.loads(ctl("queues", "--json", "--url", broker.url))[0]
        said = json.loads(ctl("backup", file, "--queue", "q", "--url", broker.url, "--json"))
        assert (said["messages"], said["unreadable"]) == (20, 0)
        channel.queue_delete("q")
        ctl("restore", file, "--queue", "q", "--url", broker.url)
        after = json.loads(ctl("queues", "--json", "--url", broker.url))[0]
        for name in ("name", "type", "durable", "auto_delete", "arguments"):
            assert before[name] == after[name]
        assert after["messages_ready"] == 20
        channel.basic_publish("ex", "a.c", b"new")
        order = sorted(range(20), key=lambda n: (-(n % 3), n))
        found = []
        while (message := channel.basic_get("q", auto_ack=True))[0] is not None:
            found.append((message[0].routing_key, message[1].headers, message[2]))
        assert found[:-1] == [("a.b", {"n": n}, b"%d" % n) for n in order]
        assert found[-1][2] == b"new"
        assert len(held) == 3
        connection.close()


def test_wrong_use_is_one_line(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"something else" * 100)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thing").touch()
    with serving(tmp_path / "data") as broker:
        declare(broker, "q")
        file = str(tmp_path / "b")
        ctl("backup", file, "--url", broker.url)
        for words, part in (
            (["backup", file, "--url", broker.url, "--password", "no"], "Login failed"),
            (["backup", file, "--queue", "none", "--url", broker.url], "Not Found"),
            (["restore", str(other), "--data", str(tmp_path / "new")], "not a backup"),
            (["restore", file, "--data", str(tmp_path / "full")], "not empty"),
            (["restore", file, "--data", str(tmp_path / "data")], "in use"),
            (["restore", file, "--queue", "q", "--url", broker.url], "not the backup of a queue"),
            (["repair", "--data", str(tmp_path / "data")], "in use"),
            (["repair", "--data", str(tmp_path / "nowhere")], "no such directory"),
            (["repair", "--data", str(tmp_path / "full")], "not the data directory of a node"),
            (["dump", str(tmp_path / "nothing.log")], "No such file"),
        ):
            said = ctl(*words, code=1)
            assert len(said.splitlines()) == 1, said
            assert part in said
    assert not (tmp_path / "new").exists()
    assert os.listdir(tmp_path / "full") == ["thing"]


def test_damage_is_listed_and_repaired(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data) as broker:
        connection = pika.BlockingConnection(pika.ConnectionParameters(port=broker.amqp_port))
        channel = connection.channel()
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)
        for name in ("hurt", "well"):
            channel.queue_declare(name, durable=True)
            for number in range(5):
                channel.basic_publish("", name, f"{name}-{number}".encode(), persistent)
        connection.close()
        broker.process.kill()
    log = data / "0000000000000001.log"
    content = bytearray(log.read_bytes())
    content[content.index(b"hurt-2")] ^= 1
    log.write_bytes(content)
    with serving(data) as broker:
        table = ctl("queues", "--url", broker.url)
        assert re.search(r"hurt +classic +4 +0 +0 +1 ", table)
        assert re.search(r"well +classic +5 +0 +0 +0 ", table)
        assert "/ hurt: 0000000000000001.log is damaged from byte" in table
        broker.process.send_signal(signal.SIGTERM)
        assert broker.process.wait(60) == 0
    assert "doubtful=true" in ctl("dump", str(log))
    assert "hurt in vhost /: 1 messages lost" in ctl(
        "repair", "--data", str(data), "--dry-run", code=1
    )
    assert "hurt in vhost /: 1 messages lost" in ctl("repair", "--data", str(data))
    for _ in range(2):
        with serving(data) as broker:
            listed = json.loads(ctl("queues", "--json", "--url", broker.url))
            counts = [(q["messages"], q["messages_damaged"], q["damage"]) for q in listed]
            assert counts == [(4, 0, []), (5, 0, [])]
            broker.process.kill()
    assert ctl("repair", "--data", str(data), "--dry-run").splitlines()[-1] == "the log is sound"
    (side,) = data.glob("*.damaged-*")
    assert "message" in ctl("dump", str(side))
