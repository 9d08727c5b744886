"""Feed corrupted conversations to connections of one broker, beside a well-behaved one.

Each connection logs in, sends a conversation with some corrupted frames, and disconnects. Checks:

- the broker sends complete frames, and every close has the code of a protocol error;
- the well-behaved peer is served every few frames: its messages return unchanged and in order;
- after a disconnect nothing of the connection is left: no consumer, no exclusive queue, no reply
  address, no entry of the timer queue, and its output is dropped.

An exception of the broker escapes from here, with a note on how to repeat it.

As a module (`python -m tests.fuzz.driver SEED COUNT`) it prints a digest of each connection's
output. Both forms of Leveret must print the same.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Iterator
from random import Random
from typing import Final

from tests.compat import wire
from tests.compat.client import Method
from tests.fuzz.mutations import disordered, method_id, spoiled
from tests.protocol.conversations import (
    CONVERSATIONS,
    GREETING,
    GREETING_FRAMES,
    STRANGERS,
    Frames,
)
from tests.protocol.stage import Peer, Stage, method, publish, start_ok

SERVED_EVERY: Final = 20  # fuzzed frames between two messages of the well-behaved peer
STALE_MAX: Final = 64  # entries of the timer queue that need not be live
ERROR_CODES: Final = frozenset((403, 404, 405, 406, 501, 502, 503, 504, 505, 530, 540))
_CLOSES: Final = {struct.pack("!HH", 10, 50): "connection", struct.pack("!HH", 20, 40): "channel"}
_TALKS: Final = [*CONVERSATIONS.values()]
# In these conversations the client settles deliveries, so it must read in between.
_SETTLING: Final = [CONVERSATIONS[name] for name in ("consuming", "dying", "retrying")]
# Some conversations log in with the other mechanism.
_AMQPLAIN: Final = start_ok(
    mechanism="AMQPLAIN", response=wire.table({"LOGIN": "guest", "PASSWORD": "guest"})[4:]
)


class Steady:
    """The well-behaved peer: it publishes, consumes and acks, and must never be disturbed."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.peer = stage.opened()
        self.peer.open_channel(1, 2)
        self.peer.send(1, "queue.declare", queue="steady", exclusive=True)
        self.peer.send(1, "confirm.select")
        self.peer.send(2, "basic.consume", queue="steady", consumer_tag="steady")
        self.served = 0

    def serve(self) -> None:
        """Publish one message and receive it."""
        self.served += 1
        body = b"%d:" % self.served + bytes((self.served & 0xFF,)) * (self.served % 300)
        self.peer.feed(publish(1, "steady", body, {"message_id": str(self.served)}))
        delivery, confirm = self.peer.take()
        assert isinstance(delivery, Method)
        assert isinstance(confirm, Method)
        assert (delivery.name, delivery.tag, delivery.body) == (
            "basic.deliver",
            self.served,
            body,
        )
        assert delivery.fields["redelivered"] is False
        assert (confirm.name, confirm.tag) == ("basic.ack", self.served)
        self.peer.feed(method(2, "basic.ack", delivery_tag=self.served))
        assert not self.peer.received


class Fuzz:
    """One broker under test."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.stage = Stage()
        self.steady = Steady(self.stage)
        self.exchanges = set(self.stage.broker.vhost("/").exchanges)
        self.frames = 0  # corrupted or displaced frames fed to a live connection
        self.connections = 0
        self.reached: set[bytes] = (
            set()
        )  # methods whose corrupted form was fed to a live connection
        self.closes: dict[tuple[str, int], int] = {}  # how often the broker sent each close

    def run(self, frames: int) -> None:
        """Run until this many corrupted frames were fed."""
        while self.frames < frames:
            self.connection()

    def connection(self) -> bytes:
        """Run one connection from login to disconnect, and return the bytes it received."""
        self.connections += 1
        try:
            return self._connection(Random(f"{self.seed}.{self.connections}"))
        except BaseException as fault:
            fault.add_note(
                f"LEVERET_FUZZ_SEED={self.seed}, connection {self.connections},"
                f" {self.frames} spoiled frames before it"
            )
            raise

    def _connection(self, rng: Random) -> bytes:
        peer = self.stage.peer()
        output = b""
        for frame, original in _script(rng):
            is_spoiled = frame is not original
            if is_spoiled:
                self.frames += 1
                if original is not None and method_id(frame) == method_id(original):
                    self.reached.add(method_id(frame))
                if self.frames % SERVED_EVERY == 0:
                    self.steady.serve()
            _feed(rng, peer, frame)
            output += self._read(peer)
            if peer.hung_up():
                break
            if peer.connection.state > 4 and rng.random() < 0.7:
                break
        if rng.random() < 0.1:
            self.stage.advance(rng.choice((1, 100, 600, 5_000, 20_000)))
            output += self._read(peer)
        if not peer.hung_up():
            peer.lose()
        self._check_nothing_left(peer)
        return output

    def _read(self, peer: Peer) -> bytes:
        """Check the output of the broker, frame by frame."""
        data = peer.take_bytes()
        if data.startswith(b"AMQP"):
            assert data == wire.PROTOCOL_HEADER
            return data
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at + 3 : at + 7], "big")
            assert data[at + 7 + size] == wire.FRAME_END
            level = _CLOSES.get(data[at + 7 : at + 11]) if data[at] == wire.METHOD else None
            if level is not None:
                self._note_close(level, int.from_bytes(data[at + 11 : at + 13], "big"))
            at += size + 8
        assert at == len(data)
        return data

    def _note_close(self, level: str, code: int) -> None:
        assert code in ERROR_CODES, f"{level} closed with {code}"
        key = (level, code)
        self.closes[key] = self.closes.get(key, 0) + 1

    def _check_nothing_left(self, peer: Peer) -> None:
        """Check that nothing of a closed connection is left. Then delete its shared objects."""
        stage = self.stage
        broker = stage.broker
        vhost = broker.vhost("/")
        turn = broker.turn
        assert not peer.connection.channels
        assert not peer.connection.exclusive_queues
        assert not (turn.dirty or turn.leaving or turn.doomed or turn.late)
        assert not (turn.deliveries or turn.confirms or turn.ended)
        assert not stage.front.dirty
        assert not vhost.replies
        for queue in list(vhost.queues.values()):
            if queue.name != "steady":
                assert not queue.consumers
                assert queue.unacked == 0
                assert queue.owner is None
                vhost.remove_queue(queue)
        for name in set(vhost.exchanges) - self.exchanges:
            if name in vhost.exchanges:  # it may be deleted together with another one
                vhost.delete_exchange(name, if_unused=False)
        stage.end_turn()
        assert list(vhost.queues) == ["steady"]
        assert not vhost.holding
        assert set(vhost.exchanges) == self.exchanges
        assert sum(queue is not None for queue in broker.slots.queues) == 1
        assert len(vhost.sources) == 0
        assert len(broker.timers._heap) <= STALE_MAX


def _feed(rng: Random, peer: Peer, frame: bytes) -> None:
    """Feed a frame, sometimes in two parts."""
    if rng.random() < 0.05 and len(frame) > 1:
        at = rng.randrange(1, len(frame))
        peer.feed(frame[:at])
        if not peer.hung_up():
            peer.feed(frame[at:])
    else:
        peer.feed(frame)


def _script(rng: Random) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield frames to feed, each with its original: the same object if the frame is unchanged.

    Most corrupted frames end their channel or connection. Therefore few frames are corrupted
    before one in the middle, and many after it.
    """
    if rng.random() < 0.06:
        yield from _spoiled_greeting(rng)
        return
    talk, displaced = _talk(rng)
    first = rng.randrange(len(talk))
    at_once = 0
    if not displaced and talk not in _SETTLING:
        at_once = first
    opening = GREETING + b"".join(talk[:at_once])
    yield opening, opening
    for at, frame in enumerate(talk):
        if at < at_once:
            continue
        if at == first or (at > first and rng.random() < 0.5):
            yield spoiled(rng, frame), frame
        elif at in displaced:
            yield frame, None
        else:
            yield frame, frame


def _talk(rng: Random) -> tuple[Frames, set[int]]:
    talk = rng.choice(_TALKS)
    if rng.random() < 0.15:
        return [talk[0], *rng.sample(STRANGERS, 3)], set()
    if rng.random() < 0.25:
        return disordered(rng, talk)
    return talk, set()


def _spoiled_greeting(rng: Random) -> Iterator[tuple[bytes, bytes | None]]:
    header = wire.PROTOCOL_HEADER
    yield (bytes(rng.randbytes(8)), None) if rng.random() < 0.05 else (header, header)
    start, *rest = GREETING_FRAMES
    greeting = [rng.choice((start, _AMQPLAIN)), *rest]
    first = rng.randrange(len(greeting))
    for at, frame in enumerate(greeting):
        yield (spoiled(rng, frame), frame) if at == first else (frame, frame)


def digests(seed: int, count: int) -> list[str]:
    """Return a digest of the bytes that each of `count` connections received."""
    fuzz = Fuzz(seed)
    return [hashlib.sha256(fuzz.connection()).hexdigest()[:16] for _ in range(count)]


def main() -> None:
    from leveret import build_info

    print("compiled" if build_info.is_compiled() else "interpreted")
    print("\n".join(digests(int(sys.argv[1]), int(sys.argv[2]))))


if __name__ == "__main__":
    main()
