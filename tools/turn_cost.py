"""Measure the CPU time of long steps: `python -m tools.turn_cost`.

The broker serves all clients from one loop, so nobody else is served during a turn. Each case sends
the input of one read, and prints the number of turns that it takes and the CPU time of the longest.
There is no socket and no log. The exit code is always 0: the numbers depend on the machine.
"""

import argparse
import gc
import sys
import time
from typing import Final

from leveret.build_info import form
from tests.protocol.stage import Peer, Stage, method, publish

QUEUES: Final = 10_000
MESSAGES: Final = 50_000
CONSUMERS: Final = 2_000
READ_BYTES: Final = 32_768
PORTION: Final = 1_000  # publishes of one read while a case is prepared


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    gc.disable()
    print(f"{form()} form")
    _measure("publish to a fanout of 10,000 queues", _with_fanout(), _PUBLISH)
    for step in ("ack", "nack, dropped", "nack, requeued", "recover", "channel.close"):
        _measure(f"{step} of 50,000 deliveries", _with_deliveries(), _SETTLEMENTS[step])
    _measure("connection.close with 10,000 exclusive queues", _with_exclusive(), _CLOSE)
    for name, frame in _FLOODS.items():
        _measure(f"32 KiB of {name}", _with_consumers(), frame * (READ_BYTES // len(frame)))
    return 0


_PUBLISH: Final = publish(1, "", b"x", exchange="f")
_CLOSE: Final = method(0, "connection.close")
_SETTLEMENTS: Final = {
    "ack": method(1, "basic.ack", multiple=True),
    "nack, dropped": method(1, "basic.nack", multiple=True),
    "nack, requeued": method(1, "basic.nack", multiple=True, requeue=True),
    "recover": method(1, "basic.recover", requeue=True),
    "channel.close": method(1, "channel.close"),
}
_FLOODS: Final = {
    "queue.declare, passive": method(1, "queue.declare", queue="q", passive=True),
    "queue.declare, new": method(1, "queue.declare", exclusive=True),
    "queue.purge": method(1, "queue.purge", queue="q"),
    "basic.get": method(1, "basic.get", queue="q"),
    "basic.qos with 2,000 consumers": method(1, "basic.qos", prefetch_count=1),
}


def _opened() -> Peer:
    peer = Stage().opened()
    peer.open_channel(1)
    peer.send(1, "queue.declare", queue="q")
    return peer


def _with_fanout() -> Peer:
    peer = _opened()
    peer.feed(method(1, "exchange.declare", exchange="f", type="fanout"))
    for number in range(QUEUES):
        name = f"q{number}"
        peer.feed(method(1, "queue.declare", queue=name))
        peer.feed(method(1, "queue.bind", queue=name, exchange="f"))
    return peer


def _with_deliveries() -> Peer:
    peer = _opened()
    peer.feed(method(1, "basic.consume", queue="q", consumer_tag="t"))
    for _ in range(0, MESSAGES, PORTION):
        peer.feed(publish(1, "q", b"x") * PORTION)
        peer.take_bytes()
    return peer


def _with_exclusive() -> Peer:
    peer = _opened()
    for number in range(QUEUES):
        peer.feed(method(1, "queue.declare", queue=f"q{number}", exclusive=True))
    return peer


def _with_consumers() -> Peer:
    peer = _opened()
    for number in range(CONSUMERS):
        peer.feed(method(1, "basic.consume", queue="q", consumer_tag=f"{number}"))
    return peer


def _measure(name: str, peer: Peer, data: bytes) -> None:
    """Send the bytes as one read, run the turns that follow, and print the longest."""
    stage = peer.stage
    connection = peer.connection
    turns_ms: list[float] = []
    while not turns_ms or connection.has_rest:
        began_s = time.process_time()
        stage.broker.begin_turn(stage.now_ms)
        if turns_ms:
            connection.go_on()
        else:
            connection.feed(data)
        stage.broker.end_turn()
        stage.broker.perform()
        connection.take_output()
        turns_ms.append((time.process_time() - began_s) * 1000)
        stage.end_turn()
    print(f"{name:46} {len(turns_ms):4} turns, the longest {max(turns_ms):7.2f} ms")


if __name__ == "__main__":
    sys.exit(main())
