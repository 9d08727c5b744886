"""A small synchronous AMQP 0-9-1 client for tests that must see every frame.

It hides nothing: any method can be sent with any fields in any state, raw bytes and frames too,
and whatever comes back is returned as a readable event. It keeps no opinion about what is legal,
never reconnects and starts no thread. Every wait has a deadline and raises `NoAnswerError` when it
passes. It shares no code with `leveret`; see `wire` for the values.

    connection = connect("127.0.0.1", 5672)
    channel = connection.channel()
    channel.call("queue.declare", queue="q", arguments={"x-message-ttl": ("I", 1000)})
    channel.publish("", "q", b"hello", {"headers": {"k": "v"}})
    message = channel.get("q")

Two habits of the client matter to the reader of a test: a close from the server is answered with
close-ok at once unless `answers_close` is false, and heartbeats are noted in `heartbeats_at_s`
instead of being returned by `receive`.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from tests.compat import wire

ANSWER_S: Final = 60.0
# How often a queue is asked for a message. Each question costs the broker a turn.
_ASK_AGAIN_S: Final = 0.01
CAPABILITIES: Final[dict[str, bool]] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


class NoAnswerError(Exception):
    """Nothing came before the deadline; the text says what was awaited."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as it came."""

    kind: int
    channel: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Content:
    """The content that followed a method: header, body and the sizes of its body frames."""

    size_bytes: int
    properties: dict[str, object]
    body: bytes
    frame_sizes: tuple[int, ...]

    @property
    def headers(self) -> wire.Table:
        return cast(wire.Table, self.properties.get("headers", {}))


@dataclass(frozen=True, slots=True)
class Method:
    """A method with its fields and, where it carries one, its whole content."""

    channel: int
    name: str
    fields: dict[str, object]
    content: Content | None = None

    @property
    def body(self) -> bytes:
        assert self.content is not None, f"{self.name} carries no content"
        return self.content.body

    @property
    def tag(self) -> int:
        return cast(int, self.fields["delivery_tag"])


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat frame."""

    channel: int


@dataclass(frozen=True, slots=True)
class Preamble:
    """A protocol header sent by the server in answer to a wrong one."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Closed:
    """The server closed the socket, `after_s` seconds from its opening."""

    after_s: float


Event = Method | Heartbeat | Preamble | Closed


@dataclass(frozen=True)
class Handshake:
    """What the client says while it connects; None takes over what the server offers."""

    user: str = "guest"
    password: str = "guest"
    virtual_host: str = "/"
    mechanism: str = "PLAIN"
    response: bytes | None = None
    capabilities: Mapping[str, bool] = field(default_factory=lambda: CAPABILITIES)
    heartbeat_s: int = 0
    frame_max: int | None = None
    channel_max: int | None = None
    header: bytes = wire.PROTOCOL_HEADER

    def credentials(self) -> bytes:
        """The mechanism's response: the one given, or that of PLAIN or AMQPLAIN."""
        if self.response is not None:
            return self.response
        if self.mechanism == "AMQPLAIN":
            return wire.table({"LOGIN": self.user, "PASSWORD": self.password})[4:]
        return f"\0{self.user}\0{self.password}".encode()


class Connection:
    """One TCP connection and the events that came on it, sorted by channel."""

    def __init__(self, host: str, port: int, *, answer_s: float = ANSWER_S) -> None:
        self.socket = socket.create_connection((host, port), timeout=answer_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.opened_at_s = time.monotonic()
        self.answer_s = answer_s
        self.answers_close = True
        self.frame_max = 4096
        self.channel_max = 0
        self.server_properties: wire.Table = {}
        self.heartbeats_at_s: list[float] = []
        self.ended: Method | Closed | None = None
        self._held: bytearray | None = None
        self._buffer = bytearray()
        self._inboxes: dict[int, deque[Event]] = {}
        self._partial: dict[int, _Partial] = {}

    # --- connecting ---

    def handshake(self, options: Handshake | None = None) -> Event:
        """Plays the client's part up to connection.open; returns open-ok or what came instead."""
        options = options or Handshake()
        start = self.start(options.header)
        if not is_method(start, "connection.start"):
            return start
        self.start_ok(options)
        tune = self.receive(0)
        if not is_method(tune, "connection.tune"):
            return tune
        self.tune_ok(cast(Method, tune), options)
        self.send(0, "connection.open", virtual_host=options.virtual_host)
        return self.receive(0)

    def start(self, header: bytes = wire.PROTOCOL_HEADER) -> Event:
        """Sends the protocol header and returns the first event."""
        self.send_bytes(header)
        event = self.receive(0)
        if isinstance(event, Method) and event.name == "connection.start":
            self.server_properties = cast(wire.Table, event.fields["server_properties"])
        return event

    def start_ok(self, options: Handshake) -> None:
        self.send(
            0,
            "connection.start-ok",
            client_properties={"product": "compat", "capabilities": dict(options.capabilities)},
            mechanism=options.mechanism,
            response=options.credentials(),
            locale="en_US",
        )

    def tune_ok(self, tune: Method, options: Handshake) -> None:
        offered = cast("dict[str, int]", tune.fields)
        frame_max = offered["frame_max"] if options.frame_max is None else options.frame_max
        channel_max = offered["channel_max"] if options.channel_max is None else options.channel_max
        self.frame_max, self.channel_max = frame_max, channel_max
        self.send(
            0,
            "connection.tune-ok",
            channel_max=channel_max,
            frame_max=frame_max,
            heartbeat=options.heartbeat_s,
        )

    def channel(self, number: int = 1) -> Channel:
        """Opens a channel."""
        channel = Channel(self, number)
        opened = channel.call("channel.open")
        if not is_method(opened, "channel.open-ok"):
            raise NoAnswerError(f"channel {number} did not open: {opened}")
        return channel

    def close(self) -> Event:
        """Closes politely and returns what the server answered."""
        self.send(0, "connection.close", reply_code=200, reply_text="bye")
        try:
            return self.await_event(0, lambda event: is_method(event, "connection.close-ok"))
        finally:
            self.drop()

    def drop(self) -> None:
        """Closes the socket without a word."""
        self.socket.close()

    # --- sending ---

    def send_bytes(self, data: bytes) -> None:
        """Sends raw bytes. A socket that the server closed is seen by `receive`, not here."""
        if self._held is not None:
            self._held += data
            return
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    @contextlib.contextmanager
    def one_write(self) -> Iterator[None]:
        """Hold back all bytes sent inside, and send them at the end in one write.

        The broker reads them at once. So no time passes for it between the first method and the
        last, however busy the machine is.
        """
        self._held = bytearray()
        try:
            yield
        finally:
            data, self._held = bytes(self._held), None
            self.send_bytes(data)

    def send_frame(self, kind: int, channel: int, payload: bytes) -> None:
        self.send_bytes(wire.frame(kind, channel, payload))

    def send(self, channel: int, name: str, **fields: object) -> None:
        """Sends one method; fields not given are zero, empty or false."""
        self.send_frame(wire.METHOD, channel, wire.method(name, fields))

    # --- receiving ---

    def read_frame(self, timeout_s: float | None = None) -> Frame | Preamble | Closed:
        """The next frame as it came, whatever its channel."""
        deadline_s = time.monotonic() + (self.answer_s if timeout_s is None else timeout_s)
        while True:
            frame = self._take_frame()
            if frame is not None:
                return frame
            if not self._read_more(deadline_s):
                return Closed(time.monotonic() - self.opened_at_s)

    def _take_frame(self) -> Frame | Preamble | None:
        if self._buffer[:4] == b"AMQP" and len(self._buffer) >= 8:
            data = bytes(self._buffer[:8])
            del self._buffer[:8]
            return Preamble(data)
        if len(self._buffer) < 7:
            return None
        kind, channel, size = struct.unpack_from("!BHI", self._buffer)
        if len(self._buffer) < size + wire.FRAME_OVERHEAD_BYTES:
            return None
        payload = bytes(self._buffer[7 : 7 + size])
        assert self._buffer[7 + size] == wire.FRAME_END, "the server sent a bad frame end"
        del self._buffer[: size + wire.FRAME_OVERHEAD_BYTES]
        return Frame(kind, channel, payload)

    def _read_more(self, deadline_s: float) -> bool:
        """Reads what is there; false when the socket is at its end."""
        wait_s = deadline_s - time.monotonic()
        poll = select.poll()  # select() takes no descriptor over 1023
        poll.register(self.socket, select.POLLIN)
        if wait_s < 0 or not poll.poll(wait_s * 1000):
            raise NoAnswerError("no frame came before the deadline")
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionResetError:
            return False
        self._buffer += data
        return bool(data)

    def read_event(self, timeout_s: float | None = None) -> Event:
        """The next event of any channel, heartbeats included, contents put together."""
        deadline_s = time.monotonic() + (self.answer_s if timeout_s is None else timeout_s)
        while True:
            frame = self.read_frame(max(0.0, deadline_s - time.monotonic()))
            if not isinstance(frame, Frame):
                return frame
            event = self._assemble(frame)
            if event is not None:
                return event

    def _assemble(self, frame: Frame) -> Event | None:
        if frame.kind == wire.HEARTBEAT:
            return Heartbeat(frame.channel)
        if frame.kind == wire.METHOD:
            name, fields = wire.read_method(frame.payload)
            if name not in wire.CONTENT_METHODS:
                return Method(frame.channel, name, fields)
            self._partial[frame.channel] = _Partial(name, fields)
            return None
        partial = self._partial[frame.channel]
        if frame.kind == wire.HEADER:
            partial.size_bytes, partial.properties = wire.read_header(frame.payload)
        else:
            partial.body += frame.payload
            partial.frame_sizes.append(len(frame.payload))
        if len(partial.body) < partial.size_bytes:
            return None
        del self._partial[frame.channel]
        return partial.method(frame.channel)

    def receive(self, channel: int, timeout_s: float | None = None) -> Event:
        """The next event of a channel; the end of the connection counts for every channel."""
        deadline_s = time.monotonic() + (self.answer_s if timeout_s is None else timeout_s)
        while True:
            inbox = self._inboxes.get(channel)
            if inbox:
                return inbox.popleft()
            if self.ended is not None:
                return self.ended
            self._sort(self.read_event(max(0.0, deadline_s - time.monotonic())))

    def await_event(
        self, channel: int, wanted: Callable[[Event], bool], timeout_s: float | None = None
    ) -> Event:
        """The next wanted event of a channel, or its close, or the connection's end."""
        while True:
            event = self.receive(channel, timeout_s)
            if wanted(event) or is_end(event):
                return event

    def _sort(self, event: Event) -> None:
        if isinstance(event, Heartbeat):
            self.heartbeats_at_s.append(time.monotonic() - self.opened_at_s)
            return
        if isinstance(event, Closed):
            self.ended = event
            return
        if isinstance(event, Method) and event.name == "connection.close":
            self.ended = event
            if self.answers_close:
                self.send(0, "connection.close-ok")
            return
        number = event.channel if isinstance(event, Method) else 0
        if is_method(event, "channel.close") and self.answers_close:
            self.send(number, "channel.close-ok")
        self._inboxes.setdefault(number, deque()).append(event)

    def await_closed(self, timeout_s: float | None = None) -> Closed:
        """Waits until the server has closed the socket; what comes before is dropped."""
        deadline_s = time.monotonic() + (self.answer_s if timeout_s is None else timeout_s)
        while True:
            event = self.read_event(max(0.0, deadline_s - time.monotonic()))
            if isinstance(event, Closed):
                return event


class Channel:
    """One channel: calls with their replies, and the other events that came meanwhile."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        # What came while a reply was awaited: deliveries, returns, confirms, cancels; in order.
        self.events: list[Event] = []

    def send(self, name: str, **fields: object) -> None:
        self.connection.send(self.number, name, **fields)

    def call(self, name: str, **fields: object) -> Event:
        """Sends a method and returns its reply, or the close that came instead."""
        self.send(name, **fields)
        return self.reply(name)

    def reply(self, name: str, timeout_s: float | None = None) -> Event:
        """The reply to a method sent before; other events are kept in `events`."""
        replies = {f"{name}-ok", "basic.get-empty" if name == "basic.get" else ""}
        while True:
            event = self.connection.receive(self.number, timeout_s)
            if is_end(event) or (isinstance(event, Method) and event.name in replies):
                return event
            self.events.append(event)

    def next(self, timeout_s: float | None = None) -> Event:
        """The next event: one kept by `call`, else one still to come."""
        if self.events:
            return self.events.pop(0)
        return self.connection.receive(self.number, timeout_s)

    def take(self) -> list[Event]:
        """The events kept so far."""
        events, self.events = self.events, []
        return events

    def sync(self) -> list[Event]:
        """Makes a round trip that changes nothing; returns what came until its reply.

        The close that answers an earlier method is among what is returned.
        """
        answer = self.call("exchange.declare", exchange="amq.direct", type="direct", passive=True)
        return [*self.take(), *([answer] if is_end(answer) else [])]

    def quiet(self, wait_ms: int) -> bool:
        """Whether nothing comes on this channel for a while; a broker held up is quiet too."""
        try:
            self.events.append(self.next(wait_ms / 1000))
        except NoAnswerError:
            return True
        return False

    def idle(self, wait_ms: int) -> bool:
        """Whether nothing comes on this channel for a while in which the broker is at work.

        A round trip ends each half of the wait. So the broker has had a turn for everything that
        was due in the first half, and the second half to send it, also if it was held up before.
        """
        for _ in range(2):
            if not self.quiet(wait_ms // 2):
                return False
            came = self.sync()  # it takes what is in `events`
            self.events += came
            if self.events:
                return False
        return True

    def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes = b"",
        properties: Mapping[str, object] | None = None,
        **flags: object,
    ) -> None:
        """Publishes a message in one write: method, header, and body frames of frame_max."""
        self.connection.send_bytes(
            wire.frame(
                wire.METHOD,
                self.number,
                wire.method(
                    "basic.publish", {"exchange": exchange, "routing_key": routing_key, **flags}
                ),
            )
            + self.content_frames(body, properties or {})
        )

    def content_frames(self, body: bytes, properties: Mapping[str, object]) -> bytes:
        """The header and body frames of a content, ready to be sent."""
        step = self.connection.frame_max - wire.FRAME_OVERHEAD_BYTES
        frames = [wire.frame(wire.HEADER, self.number, wire.header(len(body), properties))]
        frames += [
            wire.frame(wire.BODY, self.number, body[at : at + step])
            for at in range(0, len(body), step)
        ]
        return b"".join(frames)

    def get(self, queue: str, *, no_ack: bool = True) -> Method | None:
        """One message by basic.get, or None from an empty queue; a close raises."""
        answer = self.call("basic.get", queue=queue, no_ack=no_ack)
        if not isinstance(answer, Method) or is_end(answer):
            raise NoAnswerError(f"basic.get was answered by {answer}")
        return answer if answer.name == "basic.get-ok" else None

    def get_soon(self, queue: str, *, no_ack: bool = True, wait_s: float = ANSWER_S) -> Method:
        """One message by basic.get, asked for until it is there."""
        deadline_s = time.monotonic() + wait_s
        while True:
            message = self.get(queue, no_ack=no_ack)
            if message is not None:
                return message
            if time.monotonic() > deadline_s:
                raise NoAnswerError(f"no message in {queue} after {wait_s} s")
            time.sleep(_ASK_AGAIN_S)


@dataclass(slots=True)
class _Partial:
    """A content on its way."""

    name: str
    fields: dict[str, object]
    size_bytes: int = 1 << 64
    properties: dict[str, object] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    frame_sizes: list[int] = field(default_factory=list)

    def method(self, channel: int) -> Method:
        content = Content(
            self.size_bytes, self.properties, bytes(self.body), tuple(self.frame_sizes)
        )
        return Method(channel, self.name, self.fields, content)


def connect(host: str, port: int, options: Handshake | None = None) -> Connection:
    """An open connection; `NoAnswerError` when the server does not open it."""
    connection = Connection(host, port)
    opened = connection.handshake(options)
    if not is_method(opened, "connection.open-ok"):
        connection.drop()
        raise NoAnswerError(f"the connection was not opened: {opened}")
    return connection


def is_method(event: Event, *names: str) -> bool:
    """Whether an event is one of the named methods."""
    return isinstance(event, Method) and event.name in names


def is_end(event: Event) -> bool:
    """Whether an event ends its channel or the whole connection."""
    return isinstance(event, Closed) or is_method(event, "channel.close", "connection.close")
