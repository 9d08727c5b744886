"""The engine as a client sees it: one broker, one connection, and a short method for each command.

Tests cannot subclass compiled classes, so they drive the engine through the real AMQP front,
without sockets (`tests.protocol.stage`).
"""

from __future__ import annotations

from typing import cast

from leveret.engine.queues.queue import Queue
from tests.compat import wire
from tests.compat.client import Method
from tests.protocol.stage import Event, Peer, Stage, closes, method, publish


class Client:
    """A connection with channels 1 to 3 open."""

    def __init__(self, stage: Stage | None = None) -> None:
        self.stage = stage or Stage()
        self.peer: Peer = self.stage.opened()
        self.peer.open_channel(1, 2, 3)

    def other(self) -> Client:
        """A second connection to the same broker."""
        return Client(self.stage)

    # Commands

    def send(self, name: str, *, on: int = 1, **fields: object) -> list[Event]:
        """Send any method. Return the frames that came back."""
        return self.peer.send(on, name, **fields)

    def queue(self, name: str, **arguments: object) -> Queue:
        """Declare a queue. `x_max_length=2` is the argument x-max-length."""
        durable = arguments.get("x_queue_type") in ("quorum", "stream")
        table = {key.replace("_", "-"): value for key, value in arguments.items()}
        events = self.send("queue.declare", queue=name, durable=durable, arguments=table)
        assert names(events) == ["queue.declare-ok"], events
        return self.stage.broker.vhost("/").queues[name]

    def publish(
        self, key: str, *bodies: str, exchange: str = "", on: int = 1, **properties: object
    ) -> list[Event]:
        """Publish messages in one turn. Return the frames that came back."""
        frames = [publish(on, key, b.encode(), properties, exchange=exchange) for b in bodies]
        self.peer.feed(b"".join(frames))
        return self.peer.take()

    def consume(
        self,
        queue: str,
        tag: str = "t",
        *,
        on: int = 1,
        prefetch: int = 0,
        no_ack: bool = False,
        **arguments: object,
    ) -> list[Event]:
        """Subscribe. Return the frames that came back, without consume-ok."""
        self.send("basic.qos", on=on, prefetch_count=prefetch)
        table = {key.replace("_", "-"): value for key, value in arguments.items()}
        events = self.send(
            "basic.consume", on=on, queue=queue, consumer_tag=tag, no_ack=no_ack, arguments=table
        )
        assert names(events)[:1] == ["basic.consume-ok"], events
        return events[1:]

    def get(self, queue: str, *, on: int = 1, no_ack: bool = True) -> Method | None:
        (event,) = self.send("basic.get", on=on, queue=queue, no_ack=no_ack)
        assert isinstance(event, Method)
        return event if event.name == "basic.get-ok" else None

    def drain(self, queue: str) -> list[str]:
        """Return the bodies of all ready messages."""
        bodies: list[str] = []
        while (found := self.get(queue)) is not None:
            bodies.append(found.body.decode())
        return bodies

    def ack(self, tag: int, *, on: int = 1, multiple: bool = False) -> list[Event]:
        return self.send("basic.ack", on=on, delivery_tag=tag, multiple=multiple)

    def nack(
        self, tag: int, *, on: int = 1, multiple: bool = False, requeue: bool = True
    ) -> list[Event]:
        return self.send("basic.nack", on=on, delivery_tag=tag, multiple=multiple, requeue=requeue)

    def reject(self, tag: int, *, on: int = 1, requeue: bool = True) -> list[Event]:
        return self.send("basic.reject", on=on, delivery_tag=tag, requeue=requeue)

    def advance(self, ms: int) -> list[Event]:
        self.stage.advance(ms)
        return self.peer.take()

    def exists(self, queue: str) -> bool:
        return queue in self.stage.broker.vhost("/").queues


# Reading what came back


def names(events: list[Event]) -> list[str]:
    return [event.name for event in events if isinstance(event, Method)]


def got(events: list[Event]) -> list[str]:
    """Return deliveries as `consumer:body`, redelivered ones with a `!`."""
    return [
        f"{event.fields['consumer_tag']}:{event.body.decode()}"
        + ("!" if event.fields["redelivered"] else "")
        for event in events
        if isinstance(event, Method) and event.name == "basic.deliver"
    ]


def headers(event: Method | None) -> dict[str, object]:
    """Return the header table of a message, without types."""
    assert event is not None and event.content is not None
    return cast("dict[str, object]", wire.plain(event.content.headers))


def deaths(event: Method | None) -> list[tuple[object, object, object]]:
    """Return x-death as (queue, reason, count), newest first."""
    entries = cast("list[dict[str, object]]", headers(event).get("x-death", []))
    return [(entry["queue"], entry["reason"], entry["count"]) for entry in entries]


def refusal(events: list[Event]) -> tuple[str, int, str]:
    """Return the one close among the frames: level, code, text."""
    (found,) = closes(events)
    return found


__all__ = ["Client", "deaths", "got", "headers", "method", "names", "publish", "refusal"]
