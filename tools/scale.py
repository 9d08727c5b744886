"""Measures nodes with many queues and many messages: time, memory, restart after kill -9.

    python -m tools.scale --queues 10000 --messages 1000000

There are two nodes, one after the other. The first gets durable queues, declared one by one over
one connection. The second gets persistent messages of 1 KiB in one queue, with confirms. Each is
killed when everything is confirmed, started again, and checked for completeness. Absolute figures
depend on the machine.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import pika
import pika.exceptions

from leveret import build_info
from leveret.errors import ClosedError
from leveret.perf.client import Client
from leveret.perf.confirms import Confirms
from leveret.perf.deliveries import Deliveries
from leveret.perf.load import Load
from leveret.perf.protocol import Publishes, Template
from tests.compat.client import Method
from tools.ports import HOST
from tools.server import Server

BODY_BYTES: Final = 1024
CONFIRM_WINDOW: Final = 2000
BURST: Final = 100
PREFETCH: Final = 400  # acks of 200 at once
QUEUE: Final = "scale"
SILENT_S: Final = 30.0  # without a confirm or a delivery: something is wrong


@dataclass(frozen=True)
class Queues:
    """The cost of many queues."""

    count: int
    declare_s: float
    before_mb: float
    memory_mb: float
    restart_s: float
    restart_cpu_s: float
    restarted_mb: float
    found: int


@dataclass(frozen=True)
class Messages:
    """The cost of many waiting messages."""

    count: int
    publish_s: float
    publish_cpu_s: float
    before_mb: float
    memory_mb: float
    restart_s: float
    restart_cpu_s: float
    restarted_mb: float
    drain_s: float
    drain_cpu_s: float
    drained_mb: float
    found: int


def measure_queues(data: Path, count: int, log: IO[str]) -> Queues:
    """Declare queues, kill, start, and check each."""
    server = Server(data, log)
    server.start()
    try:
        before_mb = server.memory_mb()
        started_s = time.monotonic()
        declare(server.port, count)
        declare_s = time.monotonic() - started_s
        memory_mb = server.memory_mb()
        server.kill()
        server.start()
        restarted_mb = server.memory_mb()
        found = count_queues(server.port, count)
        return Queues(
            count,
            declare_s,
            before_mb,
            memory_mb,
            server.start_s,
            server.start_cpu_s,
            restarted_mb,
            found,
        )
    finally:
        server.kill()


def declare(port: int, count: int) -> None:
    """Declare queues one by one, over one pika connection."""
    with pika.BlockingConnection(parameters(port)) as connection:
        channel = connection.channel()
        for number in range(count):
            channel.queue_declare(f"{QUEUE}.{number}", durable=True)
        # A definition is answered before it is synced; the confirm of a message comes after both.
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)
        channel.basic_publish("", f"{QUEUE}.0", b"", persistent)


def count_queues(port: int, count: int) -> int:
    """Return how many of the queues exist."""
    found = 0
    with pika.BlockingConnection(parameters(port)) as connection:
        channel = connection.channel()
        for number in range(count):
            try:
                channel.queue_declare(f"{QUEUE}.{number}", passive=True)
                found += 1
            except pika.exceptions.ChannelClosedByBroker:
                channel = connection.channel()
    return found


def parameters(port: int) -> pika.ConnectionParameters:
    return pika.ConnectionParameters(HOST, port, heartbeat=0)


def measure_messages(data: Path, count: int, log: IO[str]) -> Messages:
    """Publish, kill, start, and drain."""
    server = Server(data, log)
    server.start()
    try:
        before_mb = server.memory_mb()
        publish_s, publish_cpu_s = _timed(server, publish, count)
        memory_mb = server.memory_mb()
        server.kill()
        server.start()
        restarted_mb = server.memory_mb()
        found = waiting_in(server)
        drain_s, drain_cpu_s = _timed(server, drain, found)
        return Messages(
            count,
            publish_s,
            publish_cpu_s,
            before_mb,
            memory_mb,
            server.start_s,
            server.start_cpu_s,
            restarted_mb,
            drain_s,
            drain_cpu_s,
            server.memory_mb(),
            found,
        )
    finally:
        server.kill()


def _timed(server: Server, work: Callable[[Load, int], None], count: int) -> tuple[float, float]:
    """Measure time and broker CPU of some work."""
    cpu_s = server.cpu_s()
    started_s = time.monotonic()
    work(load_of(server), count)
    return time.monotonic() - started_s, server.cpu_s() - cpu_s


def load_of(server: Server) -> Load:
    return Load(
        host=HOST,
        port=server.port,
        sizes=(BODY_BYTES,),
        persistent=True,
        confirm_window=CONFIRM_WINDOW,
        burst=BURST,
        prefetch=PREFETCH,
    )


def publish(load: Load, count: int) -> None:
    """Publish messages and wait for all confirms."""
    confirms = Confirms(CONFIRM_WINDOW, BURST)
    client = Client(load, confirms)
    client.declare(QUEUE, load)
    client.select_confirms()
    publishes = Publishes(Template("", True, {}, False), [QUEUE], [BODY_BYTES], True, BURST)
    left = count
    while left or confirms.unsettled():
        more = min(left, int(confirms.allowed()))
        if more:
            client.send(publishes.block(more, time.monotonic_ns()))
            confirms.sent += more
            left -= more
        else:
            _read(client)
    client.close()
    if confirms.nacked:
        raise ClosedError(f"{int(confirms.nacked)} messages were refused")


def drain(load: Load, count: int) -> None:
    """Consume and ack messages."""
    deliveries = Deliveries(PREFETCH, load.sample_every)
    client = Client(load, deliveries)
    client.consume(QUEUE, load)
    while deliveries.received < count:
        _read(client)
        acks = deliveries.take_acks()
        if acks:
            client.send(acks)
    client.close()


def waiting_in(server: Server) -> int:
    """Return the number of waiting messages."""
    connection = server.connect()
    answer = connection.channel().call("queue.declare", queue=QUEUE, passive=True)
    connection.close()
    assert isinstance(answer, Method)
    count = answer.fields["message_count"]
    assert isinstance(count, int)
    return count


def _read(client: Client) -> None:
    deadline_s = time.monotonic() + SILENT_S
    while not client.read():
        if time.monotonic() > deadline_s:
            raise ClosedError(f"nothing came for {SILENT_S:.0f} s")


def report_queues(found: Queues) -> str:
    return "\n".join(
        (
            f"{found.count:>10,} durable queues",
            f"{found.declare_s:>10.1f} s to declare them over one connection",
            f"{found.memory_mb:>10.0f} MB of memory (idle {found.before_mb:.0f})",
            f"{found.restart_s:>10.2f} s from start to ready after kill -9 "
            f"({found.restart_cpu_s:.2f} s of CPU)",
            f"{found.restarted_mb:>10.0f} MB of memory then",
            f"{found.count - found.found:>10,} queues missing",
        )
    )


def report_messages(found: Messages) -> str:
    return "\n".join(
        (
            f"{found.count:>10,} waiting messages of {BODY_BYTES:,} bytes",
            f"{found.count / found.publish_s:>10,.0f} /s published and confirmed",
            f"{found.publish_cpu_s * 1e6 / found.count:>10.2f} µs of CPU for each",
            f"{found.memory_mb:>10.0f} MB of memory (idle {found.before_mb:.0f})",
            f"{found.restart_s:>10.2f} s from start to ready after kill -9 "
            f"({found.restart_cpu_s:.2f} s of CPU)",
            f"{found.restarted_mb:>10.0f} MB of memory then",
            f"{found.count / found.drain_s:>10,.0f} /s drained by one consumer, acks of 200",
            f"{found.drain_cpu_s * 1e6 / found.count:>10.2f} µs of CPU for each",
            f"{found.drained_mb:>10.0f} MB of memory at the end",
            f"{found.count - found.found:>10,} messages missing",
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure many queues and many messages.")
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args()
    data = Path(tempfile.mkdtemp(prefix="leveret-scale-"))
    missing = 0
    print(build_info.describe())
    try:
        with (data / "stderr").open("w") as log:
            if options.queues:
                queues = measure_queues(data / "queues", options.queues, log)
                print(report_queues(queues))
                missing += queues.count - queues.found
            if options.messages:
                messages = measure_messages(data / "messages", options.messages, log)
                print(report_messages(messages))
                missing += messages.count - messages.found
    finally:
        shutil.rmtree(data)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
