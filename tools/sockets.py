"""Measure many sockets: idle connections, and consumers that do not read: `make sockets`.

    python -m tools.sockets --idle 10000 --stalled 100

First the idle connections are opened, each with a channel. Then consumers subscribe and never read
again, while messages are published to their queues. At each step a well-behaved client publishes
and consumes `ROUND_TRIPS` messages; it must be served. The exit code is 1 if it is not, or if the
memory of a stalled consumer is above `STALLED_KB_MAX`.
"""

import argparse
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.compat.client import Connection
from tools.server import Server

ROUND_TRIPS: Final = 200
STALLED_BODY: Final = b"x" * 64_000
STALLED_MESSAGES: Final = 100  # for each consumer: 6.4 MB, more than a socket takes
# Credit, the buffer of the transport, and objects. Messages that wait in queues come on top.
STALLED_KB_MAX: Final = 2048
EXCHANGE: Final = "stalled"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--stalled", type=int, default=100)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = Path(tempfile.mkdtemp(prefix="leveret-sockets-"))
    with (folder / "stderr").open("w") as log:
        server = Server(folder / "data", log)
        server.start()
        try:
            is_well = _run(server, options.idle, options.stalled)
        finally:
            server.kill()
    shutil.rmtree(folder)
    return 0 if is_well else 1


def _run(server: Server, idle: int, stalled: int) -> bool:
    _report(server, "empty")
    before_mb = server.memory_mb()
    began_s = time.monotonic()
    connections = [_opened(server) for _ in range(idle)]
    opened_s = time.monotonic() - began_s
    each_kb = (server.memory_mb() - before_mb) * 1000 / max(1, idle)
    print(f"{idle} idle connections: {opened_s:.1f} s, {each_kb:.1f} kB each")
    _report(server, "idle")
    before_mb = server.memory_mb()
    connections += [_stalled(server, f"stalled-{number}") for number in range(stalled)]
    publisher = server.connect().channel()
    for _ in range(STALLED_MESSAGES):
        publisher.publish(EXCHANGE, "", STALLED_BODY, {"delivery_mode": 2})
    publisher.call("queue.declare", queue="stalled-0", passive=True, durable=True)
    each_kb = (server.memory_mb() - before_mb) * 1000 / max(1, stalled)
    print(f"{stalled} stalled consumers: {each_kb:.0f} kB each")
    _report(server, "stalled")
    for connection in connections:
        connection.drop()
    return each_kb <= STALLED_KB_MAX


def _opened(server: Server) -> Connection:
    connection = server.connect()
    connection.channel()
    return connection


def _stalled(server: Server, queue: str) -> Connection:
    """Return a connection with a consumer that never reads."""
    connection = server.connect()
    channel = connection.channel()
    channel.call("exchange.declare", exchange=EXCHANGE, type="fanout")
    channel.call("queue.declare", queue=queue, durable=True)
    channel.call("queue.bind", queue=queue, exchange=EXCHANGE)
    channel.call("basic.consume", queue=queue, no_ack=True)
    return connection


def _report(server: Server, state: str) -> None:
    """Let a well-behaved client send and receive messages, and print how long that takes."""
    connection = server.connect()
    channel = connection.channel()
    channel.call("queue.declare", queue="served", exclusive=True)
    began_s = time.monotonic()
    for _ in range(ROUND_TRIPS):
        channel.publish("", "served", b"hello")
        channel.get_soon("served")
    each_ms = (time.monotonic() - began_s) * 1000 / ROUND_TRIPS
    print(f"{state}: {server.memory_mb():.0f} MB, a message there and back takes {each_ms:.2f} ms")
    connection.close()


if __name__ == "__main__":
    sys.exit(main())
