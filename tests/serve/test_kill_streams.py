"""Repeated `kill -9` of a broker while clients publish to streams and read them."""

import contextlib
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from leveret.testing.cluster import wait_until
from tests.compat.client import Closed, Connection, Event, Method, NoAnswerError
from tools.chaos.actor import ENDED
from tools.server import START_WITHIN_S, Server

pytestmark = pytest.mark.compiled_only(
    "both forms write the same bytes, and tests/simulation lets both lose their power anywhere"
)

KILLS = 8
WINDOW = 64  # unconfirmed messages
STREAMS: tuple[dict[str, object], ...] = (
    {"x-queue-type": "stream"},
    {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 200_000},
)


@dataclass
class Account:
    """What is known of one stream."""

    name: str
    arguments: dict[str, object]
    issued: int = 0  # messages 1 to this one were published
    confirmed: set[int] = field(default_factory=set)


class Publisher(threading.Thread):
    """Publishes to one stream, and keeps a window of unconfirmed messages."""

    def __init__(self, server: Server, account: Account, seed: int) -> None:
        super().__init__(name=f"publisher of {account.name}", daemon=True)
        self._server = server
        self._account = account
        self._rng = Random(seed)
        self.stopping = threading.Event()

    def known(self) -> Collection[int]:
        return self._account.confirmed

    def run(self) -> None:
        while not self.stopping.is_set():
            with contextlib.suppress(*ENDED):
                self._publish()

    def _publish(self) -> None:
        """Publish until the connection ends. Message numbers go on over connections."""
        account = self._account
        connection = self._server.connect()
        try:
            channel = connection.channel()
            given = account.arguments
            channel.call("queue.declare", queue=account.name, durable=True, arguments=given)
            channel.call("confirm.select")
            base = account.issued
            waiting: set[int] = set()
            while not self.stopping.is_set():
                while len(waiting) < WINDOW:
                    account.issued += 1
                    waiting.add(account.issued)
                    body = b"%d." % account.issued + b"x" * self._rng.choice((0, 10, 1000, 20_000))
                    channel.publish("", account.name, body, {"delivery_mode": 2})
                self._take(connection.receive(1), base, waiting)
        finally:
            connection.drop()

    def _take(self, event: Event, base: int, waiting: set[int]) -> None:
        """Take in one confirm."""
        if isinstance(event, Closed):
            raise NoAnswerError("the connection is gone")
        if not isinstance(event, Method) or event.name not in ("basic.ack", "basic.nack"):
            return
        last = base + event.tag
        settled = {n for n in waiting if n <= last} if event.fields["multiple"] else {last}
        waiting -= settled
        if event.name == "basic.ack":
            self._account.confirmed |= settled


class Follower(threading.Thread):
    """Follows a stream over all its ends, and remembers which message it saw at which offset."""

    def __init__(self, server: Server, account: Account) -> None:
        super().__init__(name=f"follower of {account.name}", daemon=True)
        self._server = server
        self._account = account
        self.seen: dict[int, int] = {}
        self.faults: list[str] = []
        self.stopping = threading.Event()

    def known(self) -> Collection[int]:
        return self.seen

    def run(self) -> None:
        while not self.stopping.is_set():
            with contextlib.suppress(*ENDED):
                self._follow()

    def _follow(self) -> None:
        connection = self._server.connect()
        try:
            begin_reading(connection, self._account, len(self.seen))
            while not self.stopping.is_set():
                event = connection.receive(1, 0.5)
                if isinstance(event, Closed):
                    return
                if isinstance(event, Method) and event.name == "basic.deliver":
                    self._see(event)
                    connection.send(1, "basic.ack", delivery_tag=event.tag)
        finally:
            connection.drop()

    def _see(self, message: Method) -> None:
        offset = offset_of(message)
        if offset != len(self.seen):
            self.faults.append(f"offset {offset} came where {len(self.seen)} was awaited")
        self.seen[offset] = number_of(message)


def begin_reading(connection: Connection, account: Account, offset: int) -> None:
    channel = connection.channel()
    arguments = account.arguments
    channel.call("queue.declare", queue=account.name, durable=True, arguments=arguments)
    channel.call("basic.qos", prefetch_count=200)
    begin = {"x-stream-offset": ("l", offset)}
    answer = channel.call("basic.consume", queue=account.name, consumer_tag="f", arguments=begin)
    if not isinstance(answer, Method) or answer.name != "basic.consume-ok":
        raise NoAnswerError("the broker is gone")


def number_of(message: Method) -> int:
    return int(message.body.partition(b".")[0])


def offset_of(message: Method) -> int:
    assert message.content is not None
    offset = message.content.headers["x-stream-offset"].value
    assert isinstance(offset, int)
    return offset


def read_all(server: Server, account: Account) -> list[tuple[int, int]]:
    """Offsets and numbers of as many messages as the broker says there are."""
    connection = server.connect()
    begin_reading(connection, account, 0)
    declared = connection.channel(2).call("queue.declare", queue=account.name, passive=True)
    assert isinstance(declared, Method)
    found: list[tuple[int, int]] = []
    while len(found) < int(str(declared.fields["message_count"])):
        event = connection.receive(1)
        assert isinstance(event, Method) and event.name == "basic.deliver", event
        found.append((offset_of(event), number_of(event)))
        connection.send(1, "basic.ack", delivery_tag=event.tag)
    connection.close()
    return found


def wait_for_more_than(count: int, threads: list[Publisher | Follower]) -> None:
    """Wait until each thread has more messages than that: confirmed ones, or ones that it saw."""
    wait_until(lambda: all(len(thread.known()) > count for thread in threads), f"{count} messages")


def run_kills(server: Server, threads: list[Publisher | Follower], rng: Random) -> None:
    server.start()
    for thread in threads:
        thread.start()
    for kill in range(1, KILLS + 1):
        wait_for_more_than(kill, threads)
        time.sleep(rng.uniform(0.0, 0.3))  # the kill comes at any moment
        server.kill()
        server.start()
    for thread in threads:
        thread.stopping.set()
    for thread in threads:
        thread.join(START_WITHIN_S)
    server.kill()
    server.start()


def test_kills_lose_no_confirmed_message_and_change_no_offset(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    with (tmp_path / "stderr").open("w+") as log:
        server = Server(tmp_path / "data", log)
        accounts = [Account(f"stream-{n}", dict(given)) for n, given in enumerate(STREAMS)]
        publishers = [Publisher(server, account, seed + 1) for account in accounts]
        followers = [Follower(server, account) for account in accounts]
        try:
            run_kills(server, [*publishers, *followers], Random(seed))
            for account, follower in zip(accounts, followers, strict=True):
                check(account, follower, read_all(server, account))
        finally:
            server.kill()
        log.seek(0)
        said = log.read()
    assert "Traceback" not in said, said


def check(account: Account, follower: Follower, found: list[tuple[int, int]]) -> None:
    print(f"{account.name}: {len(found)} there, {len(account.confirmed)} confirmed")
    numbers = [number for _, number in found]
    assert [offset for offset, _ in found] == list(range(len(found)))
    assert account.confirmed <= set(numbers)
    assert len(account.confirmed) > KILLS
    assert numbers == sorted(set(numbers))
    assert follower.faults == []
    assert len(follower.seen) > KILLS
    assert [numbers[offset] for offset in follower.seen] == list(follower.seen.values())
