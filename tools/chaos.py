"""Kills a broker again and again while it is published to, and counts what is left.

    python -m tools.chaos --kills 500 --seed 1

A `leveret serve` process gets `kill -9` at random moments and is started again on the same data.
Publishers, each with a connection and a queue of its own, keep a window of unconfirmed persistent
messages; every second queue is consumed and acked meanwhile. In the end everything that is left is
taken out, and for every queue it must hold that

- what was confirmed was delivered or is there (0 lost), and everything was published (0 invented),
- messages stand in the order in which their channel published them,
- one that is delivered again says so.
"""

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import IO, Final

from tests.compat.client import Closed, Connection, Event, Method, NoAnswer, connect

READY: Final = re.compile(r"leveret ready amqp=(127\.0\.0\.1):(\d+) ")
PUBLISHERS: Final = 4
WINDOW: Final = 64
PREFETCH: Final = 100
START_WITHIN_S: Final = 30.0
ENDED: Final = (NoAnswer, OSError)


class Server:
    """A broker process that comes and goes."""

    def __init__(self, data: Path, log: IO[str], flags: tuple[str, ...] = ()) -> None:
        self._data = data
        self._log = log
        self._flags = flags
        self._process: subprocess.Popen[str] | None = None
        self._is_up = threading.Condition()
        self._port = 0

    def start(self) -> None:
        command = [sys.executable, "-m", "leveret", "serve", "--data", str(self._data)]
        ports = ["--amqp-port", "0", "--http-port", "0"]
        self._process = subprocess.Popen(
            [*command, *ports, *self._flags], stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self._process.stdout is not None
        ready = READY.match(self._process.stdout.readline())
        if ready is None:
            self.kill()
            raise RuntimeError("the broker did not start")
        with self._is_up:
            self._port = int(ready[2])
            self._is_up.notify_all()

    def kill(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        with self._is_up:
            self._port = 0
        process.kill()
        process.wait()
        process.stdout.close()

    def stop(self) -> int:
        """End it politely; its exit code."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        process.terminate()
        code = process.wait(START_WITHIN_S)
        process.stdout.close()
        return code

    def connect(self) -> Connection:
        """A connection to the broker as soon as there is one."""
        with self._is_up:
            if not self._is_up.wait_for(lambda: self._port != 0, START_WITHIN_S):
                raise NoAnswer("the broker is gone")
            port = self._port
        return connect("127.0.0.1", port)


@dataclass
class Account:
    """What is known of one queue."""

    name: str
    arguments: dict[str, object] = field(default_factory=dict)  # of the queue
    issued: int = 0  # messages 1 to this one were published
    confirmed: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    delivered: list[tuple[int, bool]] = field(default_factory=list)  # number, redelivered
    left: list[tuple[int, bool]] = field(default_factory=list)  # what was there in the end

    def faults(self) -> list[str]:
        """What is wrong; nothing if all is well."""
        seen = [number for number, _ in [*self.delivered, *self.left]]
        known = set(seen)
        found: list[str] = []
        if lost := sorted(self.confirmed - known):
            found.append(f"{self.name}: {len(lost)} confirmed lost, such as {lost[:5]}")
        if invented := sorted(number for number in known if not 1 <= number <= self.issued):
            found.append(f"{self.name}: {len(invented)} invented, such as {invented[:5]}")
        fresh = [number for number, again in self.delivered if not again]
        if fresh != sorted(set(fresh)):
            found.append(f"{self.name}: delivered out of order or twice without saying so")
        left = [number for number, _ in self.left]
        if left != sorted(set(left)):
            found.append(f"{self.name}: what is left is out of order or there twice")
        return found

    def balance(self) -> int:
        """Confirmed messages that are nowhere, and messages from nowhere."""
        known = {number for number, _ in [*self.delivered, *self.left]}
        return len(self.confirmed - known) + len(known - set(range(1, self.issued + 1)))


class Publisher(threading.Thread):
    """Publishes to one queue, and keeps a window of unconfirmed messages."""

    def __init__(self, server: Server, account: Account, seed: int) -> None:
        super().__init__(name=f"publisher of {account.name}", daemon=True)
        self._server = server
        self._account = account
        self._rng = Random(seed)
        self.stopping = threading.Event()

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
            raise NoAnswer("the connection is gone")
        if not isinstance(event, Method) or event.name not in ("basic.ack", "basic.nack"):
            return
        last = base + event.tag
        settled = {n for n in waiting if n <= last} if event.fields["multiple"] else {last}
        waiting -= settled
        kept = self._account.confirmed if event.name == "basic.ack" else self._account.refused
        kept |= settled


class Consumer(threading.Thread):
    """Consumes and acks one queue."""

    def __init__(self, server: Server, account: Account) -> None:
        super().__init__(name=f"consumer of {account.name}", daemon=True)
        self._server = server
        self._account = account
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            with contextlib.suppress(*ENDED):
                self._consume()

    def _consume(self) -> None:
        account = self._account
        connection = self._server.connect()
        try:
            channel = connection.channel()
            channel.call("queue.declare", queue=account.name, durable=True)
            channel.call("basic.qos", prefetch_count=PREFETCH)
            channel.call("basic.consume", queue=account.name, consumer_tag="c")
            while not self.stopping.is_set():
                event = connection.receive(1, 0.5)
                if isinstance(event, Closed):
                    return
                if isinstance(event, Method) and event.name == "basic.deliver":
                    account.delivered.append(number_of(event))
                    connection.send(1, "basic.ack", delivery_tag=event.tag)
        finally:
            connection.drop()


def number_of(message: Method) -> tuple[int, bool]:
    number, _, _ = message.body.partition(b".")
    return int(number), bool(message.fields["redelivered"])


def drain(server: Server, account: Account) -> None:
    """Take out everything that is left."""
    connection = server.connect()
    channel = connection.channel()
    channel.call("queue.declare", queue=account.name, durable=True)
    while (message := channel.get(account.name)) is not None:
        account.left.append(number_of(message))
    connection.close()


@dataclass
class Outcome:
    """What a run of kills has shown."""

    kills: int
    published: int
    confirmed: int
    balance: int
    faults: list[str]


def run(data: Path, kills: int, seed: int, log: IO[str], flags: tuple[str, ...] = ()) -> Outcome:
    """Kill a broker so many times under load, then count."""
    rng = Random(seed)
    server = Server(data, log, flags)
    accounts = [Account(f"chaos-{number}") for number in range(PUBLISHERS)]
    threads: list[Publisher | Consumer] = [
        Publisher(server, account, seed + index) for index, account in enumerate(accounts)
    ]
    threads += [Consumer(server, account) for account in accounts[::2]]
    server.start()
    try:
        for thread in threads:
            thread.start()
        for _ in range(kills):
            time.sleep(rng.uniform(0.05, 0.8))
            server.kill()
            server.start()
        for thread in threads:
            thread.stopping.set()
        for thread in threads:
            thread.join(START_WITHIN_S)
        server.kill()
        server.start()
        for account in accounts:
            drain(server, account)
    finally:
        server.kill()
    return Outcome(
        kills,
        sum(account.issued for account in accounts),
        sum(len(account.confirmed) for account in accounts),
        sum(account.balance() for account in accounts),
        [fault for account in accounts for fault in account.faults()],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a broker under load, and count.")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.monotonic()))
    options = parser.parse_args()
    data = Path(tempfile.mkdtemp(prefix="leveret-chaos-"))
    with (data / "stderr").open("w+") as log:
        outcome = run(data / "data", options.kills, options.seed, log)
    print(f"seed {options.seed}: {outcome.kills} kills, {outcome.published} published,")
    print(f"{outcome.confirmed} confirmed, balance {outcome.balance}")
    for fault in outcome.faults:
        print(fault)
    if outcome.faults:
        print(f"data and log are kept in {data}")
        return 1
    shutil.rmtree(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
