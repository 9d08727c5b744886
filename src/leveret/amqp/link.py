"""A link: what is known of one peer, and the bytes that wait to be sent to it.

Frames are appended to one `BytesWriter` for the whole turn. Bodies over `BIG_BODY_BYTES` are kept
as pieces of their own, so that they are never copied. `take_output` hands everything over.

    frame = type:u8 channel:u16 size:u32 payload CE

`Front` is what all links of a listener share.
"""

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64, u8

from leveret.amqp.methods import FRAME_BODY, FRAME_BYTES_BEFORE_LOGIN, FRAME_END, FRAME_OVERHEAD
from leveret.amqp.writer import Writer, signed16
from leveret.auth import CONFIGURE, READ, WRITE, Authority, Refusal, User
from leveret.auth.certificates import TlsPeer
from leveret.engine.broker import Broker
from leveret.engine.commands.dead_letter import counted_header
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.message import COUNTED, REDELIVERED, Message
from leveret.engine.turns.session import Consumer, Outlet
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import AccessRefusedError, LeveretError

# Smaller bodies are cheaper to copy than to write as pieces of their own.
BIG_BODY_BYTES: Final = 16384

# How much may be delivered to a peer before it must have read: bounds what one turn encodes.
CREDIT_BYTES: Final = 262_144

# What a front is told of its links.
OPENED: Final = "connection opened"
CLOSED: Final = "connection closed"
GONE_EARLY: Final = "connection ended before it was opened"

_DELIVER: Final = b"\x00\x3c\x00\x3c"


class Limits:
    """What the broker offers and demands of every link. All are settings."""

    def __init__(self) -> None:
        self.channel_max: i64 = 2047
        self.frame_max: i64 = 131_072
        self.heartbeat_s: i64 = 60
        self.handshake_ms: i64 = 10_000  # a peer must have opened its connection by then
        self.refusal_ms: i64 = 3_000  # how long a refused login waits before the socket is closed
        self.sockets_end: i64 = 0  # descriptors of sockets are below this; 0 = without a limit
        self.close_ms: i64 = 10_000  # how long a peer may take to answer a close
        self.message_bytes_max: i64 = 134_217_728
        self.unfinished_bytes_max: i64 = 268_435_456  # of one link, see there
        self.consumer_timeout_ms: i64 = 1_800_000
        self.backlog: i64 = 2000  # ready messages of a consumed queue that pause its publishers


class Front:
    """What all links share."""

    def __init__(
        self, broker: Broker, authority: Authority, limits: Limits, token: Callable[[], str]
    ) -> None:
        self.broker = broker
        self.authority = authority
        self.audit = authority.audit
        self.quotas = authority.quotas
        self.limits = limits
        self.token = token  # 22 random characters for names that the broker gives
        self.server_properties: dict[str, object] = {}
        self.dirty: list[Link] = []  # links that have output or want to be closed
        self.alarms: list[str] = []  # why publishers are blocked, if they are
        self.on_event: Callable[[str, Link, str], None] = _ignore  # event, whose, why


def _ignore(event: str, link: "Link", why: str) -> None:
    """Nobody wants to know."""


class Link(Outlet):
    """One peer."""

    def __init__(self, front: Front, peer: str, is_loopback: bool) -> None:
        super().__init__()
        self.front = front
        self.peer = peer  # host:port, for people
        self.host = peer.rpartition(":")[0].strip("[]")
        self.is_loopback = is_loopback
        self.tls: TlsPeer | None = None  # what is known of a peer that came through TLS
        self.credit = CREDIT_BYTES
        # Agreed with the peer
        self.frame_max: i64 = FRAME_BYTES_BEFORE_LOGIN
        self.channel_max: i64 = 0
        self.heartbeat_s: i64 = 0
        self.mechanism = ""  # by which the peer logged in
        self.user: User | None = None
        self.vhost: Vhost | None = None
        self.client_properties: dict[str, object] = {}
        self.wants_cancel_notify = False
        self.wants_blocked_notify = False
        self.wants_failure_close = False
        # Publishing and flow
        self.has_published = False
        self.is_blocked = False  # was told that publishing is blocked
        self.routes: i64 = 0  # that its channels remember
        self.unfinished_bytes: i64 = 0  # parts of messages and transactions
        # Output
        self.end_reason = ""  # why it ends, once that is known
        self.drop = False  # the runtime must close the socket once the output is written
        self.is_silent = False  # and at once: a peer without heartbeats hears no goodbye
        self.sent_ms: i64 = 0
        self.sent_bytes: i64 = 0
        self.sent_count: i64 = 0  # times that output was handed over
        self._is_dirty = False
        self._writer = BytesWriter()
        self._pieces: list[bytes | memoryview] = []

    # Output

    def mark(self) -> None:
        """The runtime must look at this link at the end of the turn."""
        if not self._is_dirty:
            self._is_dirty = True
            self.front.dirty.append(self)

    def take_output(self) -> list[bytes | memoryview]:
        """Everything that waits to be sent, in order."""
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

    def send(self, channel: i64, method: Writer) -> None:
        """A method frame."""
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
        """A content header frame and the body, split into frames that the peer takes."""
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
        """Body frames as pieces of their own; the body is not copied."""
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
        """`basic.deliver` and its content: the busiest code there is."""
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
        """Why the connection ends; the first reason is the one that counts."""
        if not self.end_reason:
            self.end_reason = reason

    def fail_channel(self, channel: i64, error: LeveretError) -> None:
        """End a channel by an error that no method of the peer caused."""
        raise NotImplementedError

    def on_login(self, outcome: User | Refusal) -> None:
        """The authority has decided who the peer is."""
        raise NotImplementedError

    # Permission

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
        """Raise AccessRefusedError unless the user may use a key with an exchange, if it is a
        topic."""
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
        """Keep account of what the user did to a queue or exchange."""
        user = self.user
        vhost = self.vhost
        assert user is not None
        assert vhost is not None
        self.front.audit.note(user.name, self.peer, action, f"{vhost.name}: {name}", "ok")
