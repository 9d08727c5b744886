"""The part of a connection that channels and handlers use: login, permissions, output buffer.

`ConnectionBase` knows the peer, the limits that were negotiated, the user and the vhost, and it
collects output. `ConnectionState` adds the state machine and `Connection` reads the input.

Frames are appended to one `BytesWriter` for the whole turn. A body over `BIG_BODY_BYTES` is kept as
a separate piece, so that it is never copied. `take_output` returns all pieces.

    frame = type:u8 channel:u16 size:u32 payload CE

`AmqpFront` holds the objects that all connections of a node share.
"""

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64, u8

from leveret.amqp.methods import FRAME_BODY, FRAME_BYTES_BEFORE_LOGIN, FRAME_END, FRAME_OVERHEAD
from leveret.amqp.writer import MethodWriter, signed16
from leveret.auth import CONFIGURE, READ, WRITE, Authenticator, Refusal, User
from leveret.auth.certificates import TlsPeer
from leveret.engine.broker import Broker
from leveret.engine.commands.dead_letter import counted_header
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.message import COUNTED, REDELIVERED, Message
from leveret.engine.turns.session import Consumer, Outlet
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import AccessRefusedError, LeveretError

# Smaller bodies are cheaper to copy than to write as separate pieces.
BIG_BODY_BYTES: Final = 16384

# Bytes that may be delivered before the peer must have read: this bounds the work of one turn.
CREDIT_BYTES: Final = 262_144

# Events that `AmqpFront.on_event` is told.
OPENED: Final = "connection opened"
CLOSED: Final = "connection closed"
GONE_EARLY: Final = "connection ended before it was opened"

_DELIVER: Final = b"\x00\x3c\x00\x3c"


class ConnectionLimits:
    """Limits that the broker offers to every connection or imposes on it. All are settings."""

    def __init__(self) -> None:
        self.channel_max: i64 = 2047
        self.frame_max: i64 = 131_072
        self.heartbeat_s: i64 = 60
        self.handshake_ms: i64 = 10_000  # time in which a peer must open its connection
        self.refusal_ms: i64 = 3_000  # delay before the socket of a refused login is closed
        self.sockets_end: i64 = 0  # sockets must have descriptors below this; 0: no limit
        self.close_ms: i64 = 10_000  # time in which a peer must answer a close
        self.message_bytes_max: i64 = 134_217_728
        self.unfinished_bytes_max: i64 = 268_435_456  # of one connection
        self.consumer_timeout_ms: i64 = 1_800_000
        self.backlog: i64 = (
            2000  # ready messages of a queue with consumers that pause its publishers
        )


class AmqpFront:
    """State that all AMQP connections of a node share."""

    def __init__(
        self,
        broker: Broker,
        authenticator: Authenticator,
        limits: ConnectionLimits,
        token: Callable[[], str],
    ) -> None:
        self.broker = broker
        self.authenticator = authenticator
        self.audit = authenticator.audit
        self.quotas = authenticator.quotas
        self.limits = limits
        self.token = token  # makes 22 random characters, for names that the broker chooses
        self.server_properties: dict[str, object] = {}
        self.dirty: list[ConnectionBase] = []  # connections with output, or to be closed
        self.alarms: list[
            str
        ] = []  # resources that are short; publishers are blocked while there are any
        self.on_event: Callable[[str, ConnectionBase, str], None] = (
            _ignore  # event, connection, reason
        )


def _ignore(event: str, connection: "ConnectionBase", why: str) -> None:
    """Ignore the event: the default while no listener is set."""


class ConnectionBase(Outlet):
    """One connection, as its channels and handlers see it."""

    def __init__(self, front: AmqpFront, peer: str, is_loopback: bool) -> None:
        super().__init__()
        self.front = front
        self.peer = peer  # host:port, for logs
        self.host = peer.rpartition(":")[0].strip("[]")
        self.is_loopback = is_loopback
        self.tls: TlsPeer | None = None  # facts of the TLS session; None without TLS
        self.credit = CREDIT_BYTES
        # Agreed with the peer
        self.frame_max: i64 = FRAME_BYTES_BEFORE_LOGIN
        self.channel_max: i64 = 0
        self.heartbeat_s: i64 = 0
        self.mechanism = ""  # SASL mechanism of the login
        self.user: User | None = None
        self.vhost: Vhost | None = None
        self.client_properties: dict[str, object] = {}
        self.wants_cancel_notify = False
        self.wants_blocked_notify = False
        self.wants_failure_close = False
        # Publishing and flow
        self.has_published = False
        self.is_blocked = False  # the peer was told that publishing is blocked
        self.routes: i64 = 0  # number of routes that its channels cache
        self.unfinished_bytes: i64 = 0  # held in incomplete messages and open transactions
        # Output
        self.end_reason = ""  # why the connection ends; empty while unknown
        self.drop = False  # close the socket after the output is written
        self.is_silent = False  # close at once: a peer without heartbeats reads no goodbye
        self.sent_ms: i64 = 0
        self.sent_bytes: i64 = 0
        self.sent_count: i64 = 0  # number of `take_output` calls with output
        self._is_dirty = False
        self._writer = BytesWriter()
        self._pieces: list[bytes | memoryview] = []

    def mark(self) -> None:
        """Note that this connection has output or must be closed at the end of the turn."""
        if not self._is_dirty:
            self._is_dirty = True
            self.front.dirty.append(self)

    def take_output(self) -> list[bytes | memoryview]:
        """Return and forget all pending output, in order."""
        self._is_dirty = False
        pieces = self._pieces
        if len(self._writer) != 0:
            pieces.append(self._writer.getvalue())
            self._writer.truncate(0)
        if pieces:
            self._pieces = []
            self.sent_ms = self.front.broker.turn.now_ms
            self.sent_count += 1
            for piece in pieces:
                self.sent_bytes += len(piece)
        return pieces

    def send_raw(self, data: bytes) -> None:
        self._writer.write(data)
        self.mark()

    def send(self, channel: i64, method: MethodWriter) -> None:
        """Append a method frame."""
        payload = method.payload()
        writer = self._writer
        writer.append(1)
        write_i16_be(writer, signed16(channel))
        write_i32_be(writer, i32(len(payload)))
        writer.write(payload)
        writer.append(FRAME_END)
        if not self._is_dirty:
            self.mark()

    def send_content(self, channel: i64, header: bytes, body: bytes) -> None:
        """Append a content header and the body, in frames of at most `frame_max` bytes."""
        writer = self._writer
        number = signed16(channel)
        writer.append(2)
        write_i16_be(writer, number)
        write_i32_be(writer, i32(len(header)))
        writer.write(header)
        writer.append(FRAME_END)
        size: i64 = len(body)
        if size > BIG_BODY_BYTES or size > self.frame_max - FRAME_OVERHEAD:
            self._send_big(number, body, size)
        elif size != 0:
            writer.append(3)
            write_i16_be(writer, number)
            write_i32_be(writer, i32(size))
            writer.write(body)
            writer.append(FRAME_END)

    def _send_big(self, number: i16, body: bytes, size: i64) -> None:
        """Append body frames as separate pieces, without a copy of the body."""
        most = self.frame_max - FRAME_OVERHEAD
        writer = self._writer
        view = memoryview(body)
        at: i64 = 0
        while at < size:
            part = min(size - at, most)
            writer.append(FRAME_BODY)
            write_i16_be(writer, number)
            write_i32_be(writer, i32(part))
            self._pieces.append(writer.getvalue())
            writer.truncate(0)
            self._pieces.append(body if part == size else view[at : at + part])
            writer.append(FRAME_END)
            at += part

    def send_delivery(self, channel: i64, consumer: Consumer, message: Message) -> None:
        """Append `basic.deliver` and its content. This is the busiest code of the broker."""
        writer = self._writer
        number = signed16(channel)
        address = message.address.wire
        tag = consumer.wire
        writer.append(1)
        write_i16_be(writer, number)
        write_i32_be(writer, i32(4 + len(tag) + 9 + len(address)))
        writer.write(_DELIVER)
        writer.write(tag)
        write_i64_be(writer, message.tag)
        writer.append(u8((message.flags & REDELIVERED) >> 1))
        writer.write(address)
        writer.append(FRAME_END)
        header = message.header
        if message.flags & COUNTED:
            header = counted_header(message)
        self.send_content(channel, header, message.body)
        if not self._is_dirty:
            self.mark()

    def note_end(self, reason: str) -> None:
        """Keep the reason for the end of the connection; the first reason wins."""
        if not self.end_reason:
            self.end_reason = reason

    def fail_channel(self, channel: i64, error: LeveretError) -> None:
        """Close a channel with an error that no method of the peer caused."""
        raise NotImplementedError

    def on_login(self, outcome: User | Refusal) -> None:
        """Continue the handshake after the authenticator has decided."""
        raise NotImplementedError

    def require(self, permission: str, what: str, name: str) -> None:
        """Raise AccessRefusedError unless the user may do this to a queue or exchange."""
        user = self.user
        vhost = self.vhost
        assert user is not None
        assert vhost is not None
        shown = name if name or what != "exchange" else "amq.default"
        if not user.may(permission, vhost.name, what, shown):
            raise AccessRefusedError(
                f"{permission} access to {what} '{shown}' in vhost '{vhost.name}' "
                f"refused for user '{user.name}'"
            )

    def require_any(self, what: str, name: str) -> None:
        """Raise AccessRefusedError unless the user has some permission on a queue or exchange."""
        user = self.user
        vhost = self.vhost
        assert user is not None
        assert vhost is not None
        if not user.may(READ, vhost.name, what, name) and not user.may(
            WRITE, vhost.name, what, name
        ):
            self.require(CONFIGURE, what, name)

    def require_topic(self, permission: str, exchange: Exchange, routing_key: str) -> None:
        """Raise AccessRefusedError unless the user may use this key with a topic exchange."""
        if exchange.kind != "topic":
            return
        user = self.user
        vhost = self.vhost
        assert user is not None
        assert vhost is not None
        if not user.may_topic(permission, vhost.name, exchange.name, routing_key):
            raise AccessRefusedError(
                f"{permission} access to topic '{routing_key}' in exchange '{exchange.name}' "
                f"in vhost '{vhost.name}' refused for user '{user.name}'"
            )

    def note(self, action: str, name: str) -> None:
        """Write an audit event: the user did this to a queue or exchange."""
        user = self.user
        vhost = self.vhost
        assert user is not None
        assert vhost is not None
        self.front.audit.note(user.name, self.peer, action, f"{vhost.name}: {name}", "ok")
