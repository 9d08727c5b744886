"""`kill -9` in the middle of tasks and of shovels: nothing is lost; a redrive doubles nothing."""

import http.client
import json
import os
import re
import subprocess
import sys
import time
from base64 import b64encode
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pika
import pytest

from tests.compat.brokers import rabbitmq
from tools.ports import free_port
from tools.rabbitmq import SERVER

pytestmark = pytest.mark.compiled_only("tasks and shovels have one form, and tests/http in both")

MESSAGES = 3000
WAIT_S = 60.0
LOGIN = {"Authorization": "Basic " + b64encode(b"guest:guest").decode()}
READY = re.compile(r"leveret ready amqp=127\.0\.0\.1:(\d+) http=127\.0\.0\.1:(\d+)\n")


class Server:
    """A broker process that is killed and started again, on the same ports and directory."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.amqp_port = free_port()
        self.http_port = free_port()
        self.process: subprocess.Popen[str] | None = None
        self.kills = 0
        self.start()

    @property
    def uri(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.amqp_port}/%2F"

    def start(self) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
        ports = ["--amqp-port", str(self.amqp_port), "--http-port", str(self.http_port)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "leveret", "serve", "--data", str(self.data), *ports],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=clean,
        )
        assert self.process.stdout is not None
        assert READY.fullmatch(self.process.stdout.readline())

    def kill(self) -> None:
        assert self.process is not None
        self.kills += 1
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), LOGIN)
            text = connection.getresponse().read()
        finally:
            connection.close()
        return json.loads(text) if text else None

    def publish(self, queue: str, count: int, headers: dict[str, object]) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self.uri))
        channel = connection.channel()
        channel.tx_select()
        for number in range(count):
            properties = pika.BasicProperties(
                delivery_mode=2, message_id=str(number), headers=headers
            )
            channel.basic_publish("", queue, b"x" * (number % 2000), properties)
        channel.tx_commit()
        connection.close()

    def declare(self, *queues: str) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self.uri))
        channel = connection.channel()
        for queue in queues:
            channel.queue_declare(queue, durable=True)
        connection.close()

    def drain(self, queue: str) -> list[str]:
        return drained(self.uri, queue)


def drained(uri: str, queue: str) -> list[str]:
    """The message ids of all that is in a queue; it is taken."""
    connection = pika.BlockingConnection(pika.URLParameters(uri))
    channel = connection.channel()
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    found: list[str] = []
    if count:
        for _, properties, _ in channel.consume(queue, auto_ack=True, inactivity_timeout=WAIT_S):
            assert properties is not None, f"{len(found)} of {count} came"
            found.append(properties.message_id or "")
            if len(found) == count:
                break
    connection.close()
    return found


def test_a_redrive_killed_again_and_again_loses_and_doubles_nothing(
    tmp_path: Path, seed: int
) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    server = Server(tmp_path)
    try:
        server.declare("work", "dead")
        server.publish("dead", MESSAGES, {"x-first-death-queue": "work"})
        is_done = False
        while not is_done:
            order = {"kind": "redrive", "vhost": "/", "queue": "dead", "rate": 3000}
            task = server.ask("POST", "/api/tasks", order)
            assert "id" in task, task
            if server.kills < 6:
                time.sleep(rng.random() * 0.4)
                server.kill()
                server.start()
                continue
            until_s = time.monotonic() + WAIT_S
            while not is_done:
                assert time.monotonic() < until_s
                is_done = server.ask("GET", f"/api/tasks/{task['id']}")["state"] == "done"
        found = server.drain("work")
        assert server.drain("dead") == []
    finally:
        server.kill()
    assert Counter(found) == Counter(str(number) for number in range(MESSAGES))
    assert found == sorted(found, key=int)


def test_a_shovel_whose_ends_are_killed_loses_nothing(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    source = Server(tmp_path / "source")
    target = Server(tmp_path / "target")
    servers = [source, target]
    try:
        source.declare("from")
        target.declare("to")
        source.publish("from", MESSAGES, {})
        value = {
            "src-uri": "amqp://",
            "src-queue": "from",
            "dest-uri": target.uri,
            "dest-queue": "to",
            "src-prefetch-count": 50,
            "reconnect-delay": 0.1,
        }
        source.ask("PUT", "/api/parameters/shovel/%2F/s", {"value": value})
        for _ in range(6):
            time.sleep(rng.random() * 0.5)
            victim = rng.choice(servers)
            victim.kill()
            victim.start()
        until_s = time.monotonic() + WAIT_S
        while source.ask("GET", "/api/queues/%2F/from")["messages"]:
            assert time.monotonic() < until_s
            time.sleep(0.05)
        found = Counter(target.drain("to"))
    finally:
        for server in servers:
            server.kill()
    assert set(found) == {str(number) for number in range(MESSAGES)}
    print(f"{sum(found.values()) - MESSAGES} came twice")


@pytest.mark.skipif(not SERVER.exists(), reason="RabbitMQ is not installed")
def test_a_shovel_to_rabbitmq_and_back(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        with rabbitmq() as address:
            there = f"amqp://guest:guest@{address.host}:{address.port}/%2F"
            server.declare("from", "back")
            server.publish("from", 500, {"k": "v", "n": 5})
            way = {"src-uri": "amqp://", "src-queue": "from", "dest-uri": there, "dest-queue": "r"}
            server.ask("PUT", "/api/parameters/shovel/%2F/out", {"value": way})
            way = {"src-uri": there, "src-queue": "r", "dest-uri": "amqp://", "dest-queue": "back"}
            server.ask("PUT", "/api/parameters/shovel/%2F/in", {"value": way})
            until_s = time.monotonic() + WAIT_S
            while server.ask("GET", "/api/queues/%2F/back")["messages"] < 500:
                assert time.monotonic() < until_s, server.ask("GET", "/api/shovels")
                time.sleep(0.1)
            found = server.drain("back")
    finally:
        server.kill()
    assert found == [str(number) for number in range(500)]
