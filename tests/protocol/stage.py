"""A broker without sockets or clock, and peers that feed it bytes.

A `Stage` replaces the runtime: it begins and ends turns, collects the output of the connections,
renews their credit and moves the time. A `Peer` is one connection with both of its ends: it sends
the frames of the test and decodes everything that comes back, with `tests.compat.wire`.

Nothing here catches exceptions: an exception of `Connection.feed` fails the test.
"""

from __future__ import annotations

import itertools
import struct
from typing import Final, cast

from leveret.amqp.closing import on_socket_lost
from leveret.amqp.connection import Connection
from leveret.amqp.connection_base import CREDIT_BYTES, AmqpFront, ConnectionLimits
from leveret.auth import Authenticator, SingleUserAuthenticator, is_loopback
from leveret.engine.broker import Broker
from leveret.engine.commands.consuming import refill
from leveret.engine.timer_queue import NEVER
from tests.compat import wire
from tests.compat.client import Content, Heartbeat, Method, Preamble

START_MS: Final = 1_700_000_000_000
CAPABILITIES: Final = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}

Event = Method | Heartbeat | Preamble


def method(channel: int, name: str, **fields: object) -> bytes:
    """A method frame; fields not given are zero, empty or false."""
    return wire.frame(wire.METHOD, channel, wire.method(name, fields))


def content(
    channel: int, body: bytes, properties: dict[str, object] | None = None, part_bytes: int = 4000
) -> bytes:
    """A content header frame and the body frames."""
    header = wire.frame(wire.HEADER, channel, wire.header(len(body), properties or {}))
    places = range(0, len(body), part_bytes)
    parts = [wire.frame(wire.BODY, channel, body[at : at + part_bytes]) for at in places]
    return header + b"".join(parts)


def publish(
    channel: int,
    key: str,
    body: bytes,
    properties: dict[str, object] | None = None,
    *,
    exchange: str = "",
    mandatory: bool = False,
) -> bytes:
    """A publish with its content."""
    head = method(channel, "basic.publish", exchange=exchange, routing_key=key, mandatory=mandatory)
    return head + content(channel, body, properties)


def start_ok(**changes: object) -> bytes:
    """Return connection.start-ok of guest with PLAIN, except for the given fields."""
    fields: dict[str, object] = {
        "client_properties": {"product": "stage", "capabilities": CAPABILITIES},
        "mechanism": "PLAIN",
        "response": b"\x00guest\x00guest",
        "locale": "en_US",
    }
    return method(0, "connection.start-ok", **(fields | changes))


def tune_ok(channel_max: int = 2047, frame_max: int = 131072, heartbeat_s: int = 0) -> bytes:
    return method(
        0,
        "connection.tune-ok",
        channel_max=channel_max,
        frame_max=frame_max,
        heartbeat=heartbeat_s,
    )


def opening(tune: bytes | None = None) -> bytes:
    """Return all frames that a client sends until its connection is open."""
    tune = tune_ok() if tune is None else tune
    return wire.PROTOCOL_HEADER + start_ok() + tune + method(0, "connection.open", virtual_host="/")


class Stage:
    """One broker, its peers and its time."""

    def __init__(
        self, limits: ConnectionLimits | None = None, authenticator: Authenticator | None = None
    ) -> None:
        self.now_ms = START_MS
        self.limits = limits or ConnectionLimits()
        self.broker = Broker(1)
        self.broker.begin_turn(self.now_ms)
        numbers = itertools.count(1)
        self.front = AmqpFront(
            self.broker,
            authenticator or SingleUserAuthenticator("guest", "guest"),
            self.limits,
            lambda: f"{next(numbers):022d}",
        )
        self.peers: dict[Connection, Peer] = {}

    def peer(self, host: str = "127.0.0.1") -> Peer:
        """Return a peer with an open socket that has sent nothing."""
        self.broker.begin_turn(self.now_ms)
        connection = Connection(self.front, f"{host}:1", is_loopback(host))
        peer = Peer(self, connection)
        self.peers[connection] = peer
        self.end_turn()
        return peer

    def opened(self, tune: bytes | None = None) -> Peer:
        """Return a peer with an open connection, after it has read the handshake."""
        peer = self.peer()
        peer.feed(opening(tune))
        peer.take()
        return peer

    def end_turn(self) -> None:
        """Carry out the effects, write the output and renew credit, as the runtime does."""
        broker = self.broker
        turn = broker.turn
        while True:
            broker.end_turn()
            broker.perform()
            if turn.dirty or turn.ended:
                continue
            self._flush()
            if turn.leaving:
                broker.begin_turn(self.now_ms)
            elif not turn.dirty and not self.front.dirty:
                return

    def _flush(self) -> None:
        dirty = self.front.dirty
        self.front.dirty = []
        for connection in dirty:
            peer = self.peers.get(cast(Connection, connection))
            if peer is None:
                connection.take_output()
                continue
            peer.flush()

    def advance(self, ms: int) -> None:
        """Move the time forward, and run all timers that become due."""
        target_ms = self.now_ms + ms
        while True:
            due_ms = self.broker.timers.next_due_ms()
            if due_ms == NEVER or due_ms > target_ms:
                break
            self.now_ms = max(self.now_ms, int(due_ms))
            self.broker.on_pulse(self.now_ms)
            self.end_turn()
        self.now_ms = target_ms
        self.broker.begin_turn(target_ms)

    def next_due_ms(self) -> int:
        """Return the time until the next timer; -1 for never."""
        due_ms = int(self.broker.timers.next_due_ms())
        return due_ms - self.now_ms if due_ms != NEVER else -1


class Peer:
    """Both ends of one connection."""

    def __init__(self, stage: Stage, connection: Connection) -> None:
        self.stage = stage
        self.connection = connection
        self._hung_up = False
        self.reads = True  # False: its socket is full, and the broker gets no credit
        self.received = bytearray()  # since the last `take` or `take_bytes`
        self._partial: dict[int, tuple[Method, int, dict[str, object], list[bytes]]] = {}

    # What the peer does

    def feed(self, data: bytes) -> None:
        """Send bytes, as one read of the broker."""
        self.stage.broker.begin_turn(self.stage.now_ms)
        self.connection.feed(data)
        self.stage.end_turn()
        while self.connection.has_rest:
            self.stage.broker.begin_turn(self.stage.now_ms)
            self.connection.go_on()
            self.stage.end_turn()

    def send(self, channel: int, name: str, **fields: object) -> list[Event]:
        """Send one method and return the answers."""
        self.feed(method(channel, name, **fields))
        return self.take()

    def open_channel(self, *numbers: int) -> None:
        for number in numbers:
            (answer,) = self.send(number, "channel.open")
            assert isinstance(answer, Method)
            assert answer.name == "channel.open-ok"

    def lose(self) -> None:
        """Lose the socket of the peer."""
        self.stage.peers.pop(self.connection, None)
        self.stage.broker.begin_turn(self.stage.now_ms)
        on_socket_lost(self.connection)
        self.stage.end_turn()

    # What the runtime does for it

    def flush(self) -> None:
        connection = self.connection
        for piece in connection.take_output():
            self.received += piece
        if connection.holds:
            return
        if connection.drop:
            self._hung_up = True
            self.stage.peers.pop(connection, None)
            on_socket_lost(connection)
        elif self.reads and connection.credit < CREDIT_BYTES:
            self._renew_credit()

    def _renew_credit(self) -> None:
        refill(self.stage.broker.slots, self.connection, CREDIT_BYTES)
        if self.connection.is_full:
            self.connection.go_on()

    def resume_reading(self) -> None:
        self.reads = True
        self.stage.broker.begin_turn(self.stage.now_ms)
        self._renew_credit()
        self.stage.end_turn()

    # What came back

    def hung_up(self) -> bool:
        """Whether the broker closed the socket."""
        return self._hung_up

    def take_bytes(self) -> bytes:
        data = bytes(self.received)
        self.received.clear()
        return data

    def take(self) -> list[Event]:
        """Return everything that came since the last call, with contents assembled."""
        data = self.take_bytes()
        if data.startswith(b"AMQP"):
            assert len(data) == 8
            return [Preamble(data)]
        events: list[Event] = []
        at = 0
        while at < len(data):
            kind, channel, size = struct.unpack_from("!BHI", data, at)
            stop = at + 7 + size
            assert data[stop] == wire.FRAME_END
            assert size + wire.FRAME_OVERHEAD_BYTES <= max(self.connection.frame_max, 8192)
            event = self._assemble(kind, channel, data[at + 7 : stop])
            if event is not None:
                events.append(event)
            at = stop + 1
        return events

    def _assemble(self, kind: int, channel: int, payload: bytes) -> Event | None:
        if kind == wire.HEARTBEAT:
            assert not payload
            return Heartbeat(channel)
        if kind == wire.METHOD:
            assert channel not in self._partial, "a method inside of a content"
            name, fields = wire.read_method(payload)
            found = Method(channel, name, fields)
            if name not in wire.CONTENT_METHODS:
                return found
            self._partial[channel] = (found, -1, {}, [])
            return None
        found, size, properties, parts = self._partial[channel]
        if kind == wire.HEADER:
            assert size == -1
            size, properties = wire.read_header(payload)
        else:
            assert kind == wire.BODY
            parts.append(payload)
        body = b"".join(parts)
        if len(body) < size:
            self._partial[channel] = (found, size, properties, parts)
            return None
        assert len(body) == size
        del self._partial[channel]
        whole = Content(size, properties, body, tuple(map(len, parts)))
        return Method(channel, found.name, found.fields, whole)

    def names(self) -> list[str]:
        """Return the names of the received events, in order."""
        return [name_of(event) for event in self.take()]


def name_of(event: Event) -> str:
    return event.name if isinstance(event, Method) else type(event).__name__.lower()


def closes(events: list[Event]) -> list[tuple[str, int, str]]:
    """Return level, code and text of the closes among events."""
    found = [e for e in events if isinstance(e, Method) and e.name.endswith(".close")]
    return [
        (e.name.partition(".")[0], cast(int, e.fields["reply_code"]), str(e.fields["reply_text"]))
        for e in found
    ]


def bodies(events: list[Event]) -> list[bytes]:
    """Return the bodies of the events that have one."""
    return [e.body for e in events if isinstance(e, Method) and e.content is not None]
