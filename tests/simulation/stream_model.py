"""A load with streams among the queues, and readers that record everything they have seen.

It checks more than `storage_model`:

- A reader sees a message when its block is synced, not before. A message that was seen counts as
  confirmed.
- An offset never has another message than the one that was seen there.
- Readers get offsets without gaps, except where a stream has deleted its oldest messages.
- Cursors are where the acks before the last block have moved them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, cast

from leveret.engine.streams.stream import Stream
from tests.compat.client import Method
from tests.protocol.stage import method
from tests.simulation.storage_model import Load, Streamed, offset_of
from tests.simulation.storage_stage import StorageStage

STREAMS: Final[dict[str, dict[str, object]]] = {
    "log": {},
    "log-small": {"x-stream-max-segment-size-bytes": 600},
    "log-limited": {"x-stream-max-segment-size-bytes": 500, "x-max-length-bytes": 1500},
    "log-limited-aged": {"x-stream-max-segment-size-bytes": 900, "x-max-age": "4s"},
}
PASSING_STREAMS: Final = ("passing-log", "passing-log-limited")
READ_CHANNEL: Final = 4
PREFETCH: Final = 5


class Following:
    """A reader of the model."""

    def __init__(self, stream: str, life: int, cursor: str, next_offset: int) -> None:
        self.stream = stream
        self.life = life
        self.cursor = cursor
        self.next_offset = next_offset
        self.sent: list[int] = []
        self.settled: set[int] = set()

    def settle(self, offset: int) -> int:
        """Return where the cursor may be now, or -1 if the first message is not settled."""
        self.settled.add(offset)
        count = 0
        while count < len(self.sent) and self.sent[count] in self.settled:
            count += 1
        return self.sent[count - 1] + 1 if count else -1


class StreamLoad(Load):
    """Random commands with streams among them."""

    def __init__(self, rng: Random, sizes: tuple[int, ...] = (0, 1, 20, 200)) -> None:
        super().__init__(rng, sizes)
        # By life of the stream and offset: the body, and the moment of the disk when it was seen.
        self.seen: dict[tuple[int, int], tuple[bytes, int]] = {}
        self._life = 0
        self._taken_in: dict[tuple[int, int], int] = {}  # the block of each message, at most
        self._readers: dict[str, Following] = {}
        self._held: list[tuple[int, str, int]] = []  # delivery tag, consumer, offset
        self._tags = 0

    def begin(self, stage: StorageStage) -> None:
        self._readers = {}
        self._held = []
        self._taken_in = {}
        super().begin(stage)
        self.client.peer.open_channel(READ_CHANNEL)
        self.client.call(READ_CHANNEL, "basic.qos", prefetch_count=PREFETCH)

    def define_streams(self) -> None:
        for name, arguments in STREAMS.items():
            self._make(name, arguments)
        for name in ("log-small", "log-limited"):
            self._call("queue.bind", queue=name, exchange="fan")

    def define(self) -> None:
        super().define()
        self.define_streams()

    def _make(self, name: str, arguments: dict[str, object]) -> None:
        if name not in self.state.streams:
            self._life += 1
            self.state.streams[name] = Streamed(self._life)
        self._call(
            "queue.declare",
            queue=name,
            durable=True,
            arguments={"x-queue-type": "stream", **arguments},
        )

    def stream_actions(self) -> list[tuple[Callable[[], None], int]]:
        return [
            (self.append, 16),
            (self.append_many, 2),
            (self.follow, 2),
            (self.unfollow, 1),
            (self.settle_read, 10),
            (self.declare_stream, 1),
            (self.delete_stream, 1),
        ]

    def actions(self) -> list[tuple[Callable[[], None], int]]:
        return [*super().actions(), *self.stream_actions()]

    # Steps

    def _append(self, name: str, body: bytes) -> None:
        stream = self.state.streams[name]
        # The block that is being filled, or one that is taken while this publish is handled.
        self._taken_in[(stream.life, len(stream.bodies))] = self.stage.store.log.taken_block + 1
        stream.bodies.append(body)

    def append(self) -> None:
        name = self.rng.choice(sorted(self.state.streams))
        self._serial += 1
        body = self._new("").body
        self._append(name, body)
        mode = self.rng.choice((1, 2))
        block = self.stage.store.log.taken_block + 1
        number = self.client.publish(name, body, self._properties(mode))
        self._blocks[number] = block  # transient ones are kept too
        self._note()

    def _properties(self, mode: int) -> dict[str, object]:
        headers: dict[str, object] = {"k": self.rng.randrange(3)}
        return {"delivery_mode": mode} if self.rng.random() < 0.5 else {"headers": headers}

    def append_many(self) -> None:
        for _ in range(self.rng.randrange(2, 20)):
            self.append()

    def publish_to_all(self) -> None:
        self._serial += 1
        body = self._new("plain").body
        self._copy_to_all(body)
        for name in ("log-small", "log-limited"):
            self._append(name, body)
        self._publish("", body, "fan")

    def declare_stream(self) -> None:
        name = self.rng.choice(PASSING_STREAMS)
        limited: dict[str, object] = {
            "x-max-length-bytes": 1000,
            "x-stream-max-segment-size-bytes": 400,
        }
        self._make(name, limited if "limited" in name else {})

    def delete_stream(self) -> None:
        name = self.rng.choice(PASSING_STREAMS)
        if name in self.state.streams:
            del self.state.streams[name]
            gone = [tag for tag, reader in self._readers.items() if reader.stream == name]
            for tag in gone:
                del self._readers[tag]
            self._held = [held for held in self._held if held[1] not in gone]
            self._call("queue.delete", queue=name)

    def follow(self) -> None:
        if len(self._readers) >= 4:
            return
        name = self.rng.choice(sorted(self.state.streams))
        stream = self.state.streams[name]
        cursor = self.rng.choice(("", "a", "b"))
        offset = self.rng.choice(("first", "next", self.rng.randrange(len(stream.bodies) + 2)))
        arguments: dict[str, object] = {"x-stream-offset": offset}
        if cursor:
            arguments["x-stream-cursor"] = cursor
        start = {"first": 0, "next": len(stream.bodies)}.get(str(offset), offset)
        start = stream.cursors.get(cursor, start)
        assert isinstance(start, int)
        self._tags += 1
        tag = f"reader-{self._tags}"
        first = self._queue(name).first_offset
        self._readers[tag] = Following(name, stream.life, cursor, max(start, int(first)))
        answers = self.client.call(
            READ_CHANNEL, "basic.consume", queue=name, consumer_tag=tag, arguments=arguments
        )
        assert [answer.name for answer in answers] == ["basic.consume-ok"]
        self._note()

    def unfollow(self) -> None:
        if self._readers:
            tag = self.rng.choice(sorted(self._readers))
            self.client.call(READ_CHANNEL, "basic.cancel", consumer_tag=tag)
            self._note()
            del self._readers[tag]
            self._held = [held for held in self._held if held[1] != tag]

    def settle_read(self) -> None:
        """Settle one delivery, in any order and in any way."""
        if not self._held:
            return
        tag, consumer, offset = self._held.pop(self.rng.randrange(len(self._held)))
        reader = self._readers[consumer]
        name = self.rng.choice(("basic.ack", "basic.ack", "basic.nack", "basic.reject"))
        fields: dict[str, object] = {} if name == "basic.ack" else {"requeue": False}
        if reader.cursor:
            self._move_cursor(reader, offset)
        self.client.peer.feed(method(READ_CHANNEL, name, delivery_tag=tag, **fields))
        self._note()

    def _move_cursor(self, reader: Following, offset: int) -> None:
        at = reader.settle(offset)
        cursors = self.state.streams[reader.stream].cursors
        if at > cursors.get(reader.cursor, -1):
            cursors[reader.cursor] = at

    # What was seen

    def _queue(self, name: str) -> Stream:
        queue = self.stage.broker.vhost("/").queues[name]
        assert isinstance(queue, Stream)
        return queue

    def _note(self) -> None:
        super()._note()
        deliveries = self.client.deliveries
        self.client.deliveries = []
        for message in deliveries:
            self._see(message)

    def _see(self, message: Method) -> None:
        tag = cast(str, message.fields["consumer_tag"])
        reader = self._readers[tag]
        stream = self.state.streams[reader.stream]
        offset = offset_of(message)
        if offset != reader.next_offset:
            assert reader.next_offset < offset <= self._queue(reader.stream).first_offset
        reader.next_offset = offset + 1
        assert message.body == stream.bodies[offset]
        seen = self.seen.setdefault((stream.life, offset), (message.body, self.stage.disk.moment))
        assert seen[0] == message.body
        block = self._taken_in.get((stream.life, offset), 0)
        assert block <= self.stage.store.log.committed_block, "seen before it was on disk"
        self.floors.append((self.stage.disk.moment, block))
        self._held.append((message.tag, tag, offset))
        reader.sent.append(offset)

    def forget_after(self, moment: int) -> None:
        """Forget everything that was seen after the loss of power at this moment of the disk."""
        self.seen = {at: seen for at, seen in self.seen.items() if seen[1] <= moment}

    def check_seen(self) -> None:
        """Check after a crash that every message that was seen is at its offset."""
        lives = {stream.life: stream for stream in self.state.streams.values()}
        for (life, offset), (body, _) in self.seen.items():
            if life in lives:
                assert lives[life].bodies[offset] == body
        self.seen = {at: (body, 0) for at, (body, _) in self.seen.items()}
