"""An AMQP client: one connection with one channel, on the caller's event loop.

Content headers stay bytes: the client neither decodes nor encodes properties. A `ClientListener`
hears of deliveries, confirms and the loss of the connection. Calls are awaited one at a time. The
client does not reconnect: after `channel.close` outside a call, `connection.close` or
`basic.cancel` it is lost, and its owner opens a new one.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from leveret.amqp.methods import (
    BASIC_ACK,
    BASIC_CANCEL,
    BASIC_DELIVER,
    BASIC_NACK,
    BASIC_PUBLISH,
    BASIC_RETURN,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    CHANNEL_OPEN_OK,
    CONNECTION_BLOCKED,
    CONNECTION_CLOSE,
    CONNECTION_CLOSE_OK,
    CONNECTION_OPEN,
    CONNECTION_OPEN_OK,
    CONNECTION_START,
    CONNECTION_START_OK,
    CONNECTION_TUNE,
    CONNECTION_TUNE_OK,
    CONNECTION_UNBLOCKED,
    FRAME_BODY,
    FRAME_BYTES_MIN,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_OVERHEAD,
    PROTOCOL_HEADER,
)
from leveret.amqp.reader import MethodReader
from leveret.amqp.writer import MethodWriter
from leveret.amqp_client.uri import AmqpUri
from leveret.errors import ClosedByPeerError, ClosedError, LeveretError, system_reason
from leveret.wire.tables import Table, table_of

# Returns the addresses of a host that a connection may go to.
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

ANSWER_TIMEOUT_S: Final = 30.0  # for one call
CLOSE_TIMEOUT_S: Final = 2.0
UNREAD_S: Final = 60.0  # for a broker to read the rest after `close`; then its connection is cut
FRAME_BYTES_MAX: Final = 131_072
BODY_BYTES_MAX: Final = 512 << 20
# A peer that sends tiny frames without end must not hold the event loop: the client rests after so
# many frames of one read.
FRAMES_PER_READ: Final = 2_000
REST_S: Final = 0.002
UNREAD_BYTES_MAX: Final = 8 << 20  # sent, and not read by the peer; then the connection ends

_HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
_FRAME_HEAD_BYTES: Final = 7
_CHANNEL: Final = 1
_MANDATORY: Final = 1
_CLIENT_PROPERTIES: Final = table_of(
    {
        "product": "Leveret",
        "capabilities": {
            "basic.nack": True,
            "publisher_confirms": True,
            "consumer_cancel_notify": True,
            "connection.blocked": True,
            "authentication_failure_close": True,
        },
    }
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that a consumer received."""

    tag: int
    exchange: str
    routing_key: str
    redelivered: bool
    header: bytes  # content header, as received
    body: bytes


class ClientListener:
    """Receives the events of a client. Every method does nothing unless it is overridden."""

    def on_delivery(self, delivery: Delivery) -> None:
        """A message arrived."""

    def on_confirm(self, seq: int, multiple: bool, is_acked: bool) -> None:
        """The broker acked or nacked the publish of this number."""

    def on_returned(self, body: bytes) -> None:
        """A mandatory publish reached no queue; its confirm follows."""

    def on_writable(self) -> None:
        """`AmqpClient.is_writable` may be True again."""

    def on_lost(self, fault: Exception) -> None:
        """The connection is lost, for this reason."""


class AmqpClient(asyncio.Protocol):
    """One connection with one channel."""

    def __init__(
        self, uri: AmqpUri, name: str, listener: ClientListener, resolve: Resolver | None = None
    ) -> None:
        self._uri = uri
        self._resolve = resolve  # None: every address of the host will do
        self._name = name
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unread = b""  # the start of a frame that is not complete; during a rest, frames too
        self._is_paused = False  # the listener takes no more deliveries
        self._rest: asyncio.TimerHandle | None = None
        self._frame_bytes_max = FRAME_BYTES_MAX
        self._is_lost = False
        self._is_full = False  # the write buffer of the transport is full
        self._is_blocked = False  # the broker sent connection.blocked
        # The methods that answer the running call, and its result.
        self._expected: tuple[int, ...] = ()
        self._answer: asyncio.Future[MethodReader] | None = None
        # The message that is being received: method, content header, start of the body.
        self._method: MethodReader | None = None
        self._header: bytes | None = None
        self._body = bytearray()  # a list of tiny parts would take many times the memory
        self._missing_bytes = 0
        self.server_properties: Table = {}
        self._received_s = self._loop.time()
        self._heartbeat: asyncio.TimerHandle | None = None

    async def connect(self) -> None:
        """Log in and open the channel. Raise ConnectionError, TimeoutError or ClosedError."""
        uri = self._uri
        where = f"{uri.host}:{uri.port}"
        try:
            async with asyncio.timeout(uri.timeout_s):
                await self._connect()
                await self._shake_hands()
        except TimeoutError as fault:
            raise TimeoutError(f"{where}: {system_reason(fault)}") from fault
        except OSError as fault:
            raise ConnectionError(f"{where}: {system_reason(fault)}") from fault
        await self.open_channel()

    async def _connect(self) -> None:
        """Connect to the first address of the host that answers."""
        uri = self._uri
        context = uri.ssl_context()
        server = uri.query.get("server_name_indication", uri.host) if context else None
        hosts = [uri.host] if self._resolve is None else await self._resolve(uri.host, uri.port)
        for number, host in enumerate(hosts, start=1):
            try:
                await self._loop.create_connection(
                    lambda: self, host, uri.port, ssl=context, server_hostname=server
                )
                return
            except OSError:
                if number == len(hosts) or self._is_lost:
                    raise

    async def _shake_hands(self) -> None:
        uri = self._uri
        self._write(PROTOCOL_HEADER)
        start = await self._wait_for(CONNECTION_START)
        start.short()  # version of the protocol
        self.server_properties = start.table()
        secret = f"\0{uri.user}\0{uri.password}".encode()
        properties: Table = {**_CLIENT_PROPERTIES, **table_of({"connection_name": self._name})}
        start_ok = MethodWriter(CONNECTION_START_OK).table(properties).short_string("PLAIN")
        self._send(start_ok.long_string(secret).short_string("en_US"), 0)
        tune = await self._wait_for(CONNECTION_TUNE)
        tune.short()
        self._frame_bytes_max = min(tune.long() or FRAME_BYTES_MAX, FRAME_BYTES_MAX)
        if self._frame_bytes_max < FRAME_BYTES_MIN:
            raise ClosedError(f"the broker takes frames of {self._frame_bytes_max} bytes only")
        offered_s = tune.short()
        heartbeat_s = min(offered_s, uri.heartbeat_s) if offered_s and uri.heartbeat_s else 0
        tune_ok = MethodWriter(CONNECTION_TUNE_OK).short(_CHANNEL).long(self._frame_bytes_max)
        self._send(tune_ok.short(heartbeat_s), 0)
        opened = MethodWriter(CONNECTION_OPEN).short_string(uri.vhost).short_string("").octet(0)
        self._send(opened, 0)
        await self._wait_for(CONNECTION_OPEN_OK)
        if heartbeat_s:
            self._on_heartbeat(heartbeat_s)

    async def open_channel(self) -> None:
        await self.call(MethodWriter(CHANNEL_OPEN).short_string(""), CHANNEL_OPEN_OK)

    async def call(self, method: MethodWriter, *answers: int) -> MethodReader:
        """Send a method and wait for one of its answers. Raise ClosedError or TimeoutError."""
        self._send(method, _CHANNEL)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await self._wait_for(*answers)

    async def _wait_for(self, *methods: int) -> MethodReader:
        if self._is_lost:
            raise ClosedError("the connection is closed")
        assert self._answer is None
        self._expected = methods
        self._answer = self._loop.create_future()
        try:
            return await self._answer
        finally:
            self._answer = None

    async def close(self) -> None:
        """Send connection.close, wait a little for the answer, and close the socket."""
        if not self._is_lost:
            method = MethodWriter(CONNECTION_CLOSE).short(200).short_string("").short(0).short(0)
            self._send(method, 0)
            with contextlib.suppress(TimeoutError, LeveretError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._wait_for(CONNECTION_CLOSE_OK)
            if self._transport is not None and self._transport.get_write_buffer_size():
                # The socket stays open until the broker has read everything, but not without end.
                self._loop.call_later(UNREAD_S, self._transport.abort)
        self._end(None)

    @property
    def is_writable(self) -> bool:
        """False while the broker or the socket takes no publishes.

        `ClientListener.on_writable` tells when that ends. A lost connection counts as writable, so
        that nobody waits for it.
        """
        return self._is_lost or not (self._is_full or self._is_blocked)

    @property
    def is_lost(self) -> bool:
        """True if the connection has ended."""
        return self._is_lost

    def send(self, method: MethodWriter) -> None:
        """Send a method that has no answer. End the connection if the peer reads nothing."""
        self._send(method, _CHANNEL)
        if self._is_full and not self._is_lost and self._transport is not None:
            if self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
                self._end(ClosedError("the broker does not read what it is sent"))

    def publish(
        self, exchange: str, routing_key: str, header: bytes, body: bytes, mandatory: bool
    ) -> None:
        """Publish a message. On a lost connection this does nothing."""
        method = (
            MethodWriter(BASIC_PUBLISH).short(0).short_string(exchange).short_string(routing_key)
        )
        method.octet(_MANDATORY if mandatory else 0)
        frames = [_frame(FRAME_METHOD, _CHANNEL, method.payload())]
        frames.append(_frame(FRAME_HEADER, _CHANNEL, header))
        most = self._frame_bytes_max - FRAME_OVERHEAD
        parts = [body[at : at + most] for at in range(0, len(body), most)]
        frames.extend(_frame(FRAME_BODY, _CHANNEL, part) for part in parts)
        self._write(b"".join(frames))

    def _send(self, method: MethodWriter, channel: int) -> None:
        self._write(_frame(FRAME_METHOD, channel, method.payload()))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._is_lost:
            self._transport.write(data)

    def pause(self) -> None:
        """Stop reading from the socket."""
        self._is_paused = True
        self._start_or_stop_reading()

    def resume(self) -> None:
        """Read from the socket again."""
        self._is_paused = False
        self._received_s = self._loop.time()
        self._start_or_stop_reading()

    def _start_or_stop_reading(self) -> None:
        transport = self._transport
        if transport is None or self._is_lost:
            return
        is_wanted = not self._is_paused and self._rest is None
        if is_wanted and not transport.is_reading():
            transport.resume_reading()
        elif not is_wanted and transport.is_reading():
            transport.pause_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transport is no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ClosedError(f"the connection was lost{f': {exc}' if exc else ''}"))

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._listener.on_writable()

    def data_received(self, data: bytes) -> None:
        self._received_s = self._loop.time()
        if self._rest is not None:  # TLS may hand over what it had read before
            self._unread += data
            return
        self._read(self._unread + data if self._unread else data)

    def _read(self, data: bytes) -> None:
        """Handle frames until one is incomplete, or there were many: then rest, and go on."""
        try:
            self._unread = data[self._read_frames(data) :]
        except LeveretError as fault:
            self._end(fault)

    def _on_rested(self) -> None:
        self._rest = None
        if not self._is_lost:
            self._read(self._unread)
            self._start_or_stop_reading()

    def _on_heartbeat(self, interval_s: int) -> None:
        """Send a heartbeat, and end if the broker sent nothing for two intervals.

        This runs twice in each interval.
        """
        if self._is_lost:
            return
        is_reading = self._transport is not None and self._transport.is_reading()
        if is_reading and self._loop.time() - self._received_s > 2 * interval_s:
            self._end(ClosedError("the broker is silent: no heartbeat came"))
            return
        self._write(_HEARTBEAT)
        self._heartbeat = self._loop.call_later(interval_s / 2, self._on_heartbeat, interval_s)

    def _end(self, fault: Exception | None) -> None:
        """Close the socket. Tell the listener the fault, if there is one."""
        if self._is_lost:
            return
        self._is_lost = True
        for timer in (self._heartbeat, self._rest):
            if timer is not None:
                timer.cancel()
        if self._transport is not None:
            self._transport.abort() if fault is not None else self._transport.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(fault or ClosedError("the connection is closed"))
        if fault is not None:
            self._listener.on_lost(fault)

    def _read_frames(self, data: bytes) -> int:
        """Handle complete frames. Return the index of the first one that is left."""
        at = 0
        count = 0
        while len(data) - at >= _FRAME_HEAD_BYTES and not self._is_lost:
            if count == FRAMES_PER_READ:
                self._rest = self._loop.call_later(REST_S, self._on_rested)
                self._start_or_stop_reading()
                break
            count += 1
            kind = data[at]
            size = int.from_bytes(data[at + 3 : at + 7], "big")
            if size > self._frame_bytes_max or kind not in (
                FRAME_METHOD,
                FRAME_HEADER,
                FRAME_BODY,
                FRAME_HEARTBEAT,
            ):
                raise ClosedError("the broker does not speak AMQP 0-9-1")
            stop = at + _FRAME_HEAD_BYTES + size
            if stop >= len(data):
                break
            if data[stop] != FRAME_END:
                raise ClosedError("the broker sent a broken frame")
            self._on_frame(kind, data[at + _FRAME_HEAD_BYTES : stop])
            at = stop + 1
        return at

    def _on_frame(self, kind: int, payload: bytes) -> None:
        if kind == FRAME_METHOD:
            self._on_method(int.from_bytes(payload[:4], "big"), MethodReader(payload))
        elif kind == FRAME_HEADER:
            if self._header is not None:  # further messages would extend the body without end
                raise ClosedError("the broker sent a message inside another one")
            self._header = payload
            self._missing_bytes = int.from_bytes(payload[4:12], "big")
            if self._missing_bytes > BODY_BYTES_MAX:
                raise ClosedError("the broker sent a message that is too large")
            self._on_content(b"")
        elif kind == FRAME_BODY:
            if not payload:  # without end, it would hold memory and the loop
                raise ClosedError("the broker sent an empty part of a message")
            self._missing_bytes -= len(payload)
            self._on_content(payload)

    def _on_content(self, part: bytes) -> None:
        """Add a part to the body. Give the message to the listener if all of it is here."""
        if self._missing_bytes > 0:
            self._body += part
            return
        method, header, body = self._method, self._header, part
        if self._body:
            body = bytes(self._body) + part
            self._body = bytearray()
        self._method = self._header = None
        if method is None or header is None or self._missing_bytes < 0:
            raise ClosedError("the broker sent content that belongs to no method")
        if method.data[:4] == BASIC_RETURN.to_bytes(4, "big"):
            self._listener.on_returned(body)
            return
        _short_text(method)  # the consumer tag
        tag = method.longlong()
        redelivered = method.bit()
        exchange, routing_key = _short_text(method), _short_text(method)
        self._listener.on_delivery(Delivery(tag, exchange, routing_key, redelivered, header, body))

    def _on_method(self, method: int, reader: MethodReader) -> None:
        if method in (BASIC_DELIVER, BASIC_RETURN):
            self._method = reader
        elif method in (BASIC_ACK, BASIC_NACK):
            seq = reader.longlong()
            self._listener.on_confirm(seq, reader.bit(), method == BASIC_ACK)
        elif method in self._expected and self._answer is not None and not self._answer.done():
            self._answer.set_result(reader)
        elif method == CHANNEL_CLOSE:
            self._send(MethodWriter(CHANNEL_CLOSE_OK), _CHANNEL)
            self._on_channel_closed(ClosedByPeerError(reader.short(), reader.short_string()))
        elif method == CONNECTION_CLOSE:
            self._send(MethodWriter(CONNECTION_CLOSE_OK), 0)
            self._end(ClosedByPeerError(reader.short(), reader.short_string()))
        elif method == BASIC_CANCEL:
            self._end(ClosedError("the broker cancelled the consumer: is the queue deleted?"))
        elif method == CONNECTION_BLOCKED:
            self._is_blocked = True
        elif method == CONNECTION_UNBLOCKED:
            self._is_blocked = False
            self._listener.on_writable()

    def _on_channel_closed(self, fault: ClosedByPeerError) -> None:
        """Fail the running call, after which a new channel may be opened; else end the client."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(fault)
        else:
            self._end(fault)


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    head = bytes((kind, channel >> 8, channel & 0xFF)) + len(payload).to_bytes(4, "big")
    return head + payload + bytes((FRAME_END,))


def _short_text(reader: MethodReader) -> str:
    """Return a short string; bytes that are not UTF-8 survive, so that names can be passed on."""
    size = reader.octet()
    at = reader.at
    reader.at = at + size
    return reader.data[at : at + size].decode("utf-8", "surrogateescape")
