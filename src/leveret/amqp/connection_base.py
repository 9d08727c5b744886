"""The part of a connection that channels and handlers use: login, permissions, output buffer.

`ConnectionBase` knows the peer, the limits that were negotiated, the user and the vhost, and it
collects output. `ConnectionState` adds the state machine and `Connection` reads the input.

Frames are appended to one `BytesWriter` for the whole turn. A body over `BIG_BODY_BYTES` is kept as
a separate piece, so that it is never copied. `take_output` returns all pieces that may leave.

An answer that promises a durable change must not leave before the change is on disk. `hold_output`
keeps the output of the turn back until then, in an `OutputHold`. Later output waits behind it, so
that the order of frames stays. In a cluster, `commit_gate` holds all output.

    frame = type:u8 channel:u16 size:u32 payload CE

`AmqpFront` holds the objects that all connections of a node share.
"""

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64, u8

from leveret.amqp.methods import FRAME_BODY, FRAME_BYTES_BEFORE_LOGIN, FRAME_END, FRAME_OVERHEAD
from leveret.amqp.writer import MethodWriter, signed16
from leveret.auth import (
    ADMINISTRATOR,
    CONFIGURE,
    READ,
    WRITE,
    Authenticator,
    Credentials,
    Refusal,
    User,
)
from leveret.auth.certificates import TlsPeer
from leveret.engine.broker import Broker
from leveret.engine.commands.dead_letter import counted_header
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.message import COUNTED, REDELIVERED, Message
from leveret.engine.turns.session import Consumer, Outlet
from leveret.engine.turns.turn import SessionBase
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import AccessRefusedError, LeveretError
from leveret.listening.port_hints import PortHints
from leveret.wire.tables import Table

# Smaller bodies are cheaper to copy than to write as separate pieces.
BIG_BODY_BYTES: Final = 16384

# Bytes that may be delivered before the peer must have read: this bounds the work of one turn.
CREDIT_BYTES: Final = 262_144

# Events that `AmqpFront.on_event` is told.
OPENED: Final = "connection opened"
CLOSED: Final = "connection closed"
GONE_EARLY: Final = "connection ended before it was opened"

NOT_AMQP: Final = "the client does not speak AMQP 0-9-1"  # and its protocol is not known

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
        self.unopened_max: i64 = 0  # connections of one address before connection.open; 0: no limit
        self.close_ms: i64 = 10_000  # time in which a peer must answer a close
        self.message_bytes_max: i64 = 134_217_728
        self.unfinished_bytes_max: i64 = 268_435_456  # of one connection
        # Limit for all connections together. Above it, one connection at a time may continue.
        self.unfinished_total_max: i64 = 1_073_741_824
        self.unfinished_wait_ms: i64 = 60_000  # then the connections that wait are closed
        self.finisher_slow_ms: i64 = 10_000  # then the one that continues is closed if it is slow
        self.consumer_max_per_channel: i64 = 10_000
        self.transaction_steps_max: i64 = 50_000  # for one commit; see `Channel.require_steps`
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
        self.port_hints = PortHints()
        self.unfinished_bytes: i64 = 0  # incomplete messages and transactions of all connections
        self.unfinished_of: dict[str, int] = {}  # the same of each user
        self.dirty: list[ConnectionBase] = []  # connections with output, or to be closed
        self.alarms: list[
            str
        ] = []  # resources that are short; publishers are blocked while there are any
        self.on_event: Callable[[str, ConnectionBase, str], None] = (
            _ignore  # event, connection, reason
        )

    def is_unfinished_over(self, user: User | None) -> bool:
        """Return True if the incomplete messages of all users, or of this one, take too much.

        One user may have half of the memory for them, so that a hostile one leaves room for all
        others. Administrators may have all of it.
        """
        most = self.limits.unfinished_total_max
        if self.unfinished_bytes <= most >> 1:
            return False
        if self.unfinished_bytes > most:
            return True
        if user is None or ADMINISTRATOR in user.tags:
            return False
        return self.unfinished_of.get(user.identity, 0) > most >> 1


def _ignore(event: str, connection: "ConnectionBase", why: str) -> None:
    """Ignore the event: the default while no listener is set."""


class OutputHold(SessionBase):
    """Output of a connection that waits until all changes of a turn are on disk."""

    def __init__(self, connection: "ConnectionBase", turn_number: i64) -> None:
        super().__init__()
        self.turn_number = turn_number
        self.block: i64 = 0  # in a cluster: the output shows no change after this block
        self.pieces: list[bytes | memoryview] = []
        self.is_safe = False  # the changes are on disk
        self._connection = connection

    def on_synced(self, seq: i64) -> None:
        self.is_safe = True
        self._connection.mark()

    def on_unsafe(self, seq: i64) -> None:
        if self in self._connection.holds:
            self._connection.fail_held()


class ConnectionBase(Outlet):
    """One connection, as its channels and handlers see it."""

    def __init__(self, front: AmqpFront, peer: str, is_loopback: bool) -> None:
        super().__init__()
        self.front = front
        self.peer = peer  # host:port, for logs
        self.host = peer.rpartition(":")[0].strip("[]")
        self.is_loopback = is_loopback
        self.is_relayed = False  # another node of the cluster relays it
        self.tls: TlsPeer | None = None  # facts of the TLS session; None without TLS
        self.credit = CREDIT_BYTES
        # Agreed with the peer
        self.frame_max: i64 = FRAME_BYTES_BEFORE_LOGIN
        self.channel_max: i64 = 0
        self.heartbeat_s: i64 = 0
        self.mechanism = ""  # SASL mechanism of the login
        self.credentials: Credentials | None = None  # while the login is decided
        self.user: User | None = None
        self.vhost: Vhost | None = None
        self.client_properties: dict[str, object] = {}  # plain values, for lists and logs
        self.client_table: Table = {}  # the same fields as received, until the connection is open
        self.wants_cancel_notify = False
        self.wants_blocked_notify = False
        self.wants_failure_close = False
        # Publishing and flow
        self.is_blocked = False  # the peer was told that publishing is blocked
        self.routes: i64 = 0  # number of routes that its channels cache
        self.unfinished_bytes: i64 = 0  # held in incomplete messages and open transactions
        # Input that is left over
        self.settling: SessionBase | None = None  # the channel whose ack goes on in the next turn
        self.has_rest = False  # the turn has done its share of work: `go_on` in the next turn
        # Output
        self.is_full = False  # gets have used up the credit: further input waits for the peer
        self.last_words: MethodWriter | None = None  # sent when the socket is closed later
        self.is_foreign = False  # it speaks another protocol
        self.end_reason = ""  # why the connection ends; empty while unknown
        self.drop = False  # close the socket after the output is written
        self.is_silent = False  # close at once: a peer without heartbeats reads no goodbye
        self.sent_ms: i64 = 0
        self.sent_bytes: i64 = 0
        self.sent_count: i64 = 0  # number of `take_output` calls with output
        self.holds: list[OutputHold] = []  # output that waits for the log, oldest first
        self.held_bytes: i64 = 0  # size of that output
        self._ahead: bytes = b""  # a heartbeat that does not wait behind the held output
        self._is_dirty = False
        self._writer = BytesWriter()
        self._pieces: list[bytes | memoryview] = []

    def count_unfinished(self, size: i64) -> None:
        """Count bytes of incomplete messages and open transactions. A negative size uncounts."""
        self.unfinished_bytes += size
        self.front.unfinished_bytes += size
        if size != 0 and self.user is not None:
            shares = self.front.unfinished_of
            held = shares.pop(self.user.identity, 0) + size
            if held != 0:
                shares[self.user.identity] = held

    def mark(self) -> None:
        """Note that this connection has output or must be closed at the end of the turn."""
        if not self._is_dirty:
            self._is_dirty = True
            self.front.dirty.append(self)

    def take_output(self) -> list[bytes | memoryview]:
        """Return and forget all pending output that may leave now, in order."""
        self._is_dirty = False
        pieces = self._pieces
        if len(self._writer) != 0:
            pieces.append(self._writer.getvalue())
            self._writer.truncate(0)
        if self.holds:
            self._pieces = []
            pieces = self._pass_holds(pieces)
        if pieces:
            self._pieces = []
            self.sent_ms = self.front.broker.turn.now_ms
            self.sent_count += 1
            for piece in pieces:
                self.sent_bytes += len(piece)
        return pieces

    def hold_output(self) -> None:
        """Keep the output of this turn, and later output, until all changes so far are on disk."""
        turn = self.front.broker.turn
        journal = turn.journal
        if journal is None:
            return
        journal.must_sync = True
        holds = self.holds
        if not holds or holds[-1].turn_number != turn.number:
            hold = OutputHold(self, turn.number)
            holds.append(hold)
            turn.unsynced.append(hold)

    def wait_for_definitions(self) -> None:
        """Hold the output until the definitions of all connections are on disk."""
        journal = self.front.broker.turn.journal
        if journal is not None and journal.definitions > journal.synced_definitions:
            self.hold_output()

    def hold_until(self, block: i64, wait: Callable[[int, SessionBase], None]) -> None:
        """Keep the output of this turn until a block is committed. `wait` reports the commit."""
        if len(self._writer) == 0 and not self._pieces:
            return
        turn_number = self.front.broker.turn.number
        holds = self.holds
        if holds:
            last = holds[-1]
            if last.turn_number == turn_number:
                last.block = block
                return
            if last.block >= block:
                return
        hold = OutputHold(self, turn_number)
        hold.block = block
        holds.append(hold)
        wait(block, hold)

    def answer_for(self, block: i64) -> None:
        """Send pending output that shows no change after this committed block.

        It overtakes output that waits for later blocks: a confirm need not wait for them.
        """
        pieces = self._pieces
        if len(self._writer) != 0:
            pieces.append(self._writer.getvalue())
            self._writer.truncate(0)
        if not pieces:
            return
        self._pieces = []
        hold = OutputHold(self, -1)
        hold.block = block
        hold.is_safe = True
        hold.pieces = pieces
        for piece in pieces:
            self.held_bytes += len(piece)
        at = len(self.holds)
        while at > 0 and self.holds[at - 1].block > block:
            at -= 1
        self.holds.insert(at, hold)

    def _pass_holds(self, pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
        """Put output behind the held output. Return the output that needs to wait no longer."""
        holds = self.holds
        for piece in pieces:
            self.held_bytes += len(piece)
        holds[-1].pieces.extend(pieces)
        free: list[bytes | memoryview] = []
        if self._ahead:
            free.append(self._ahead)
            self._ahead = b""
        while holds and holds[0].is_safe:
            hold = holds.pop(0)
            for piece in hold.pieces:
                self.held_bytes -= len(piece)
            free.extend(hold.pieces)
        return free

    def drop_output(self) -> None:
        """Forget all output that has not left."""
        self.holds = []
        self.held_bytes = 0
        self._ahead = b""
        self._pieces = []
        self._writer.truncate(0)

    def send_ahead(self, frame: bytes) -> None:
        """Send a heartbeat, which does not wait behind held output."""
        if self.holds:
            self._ahead = frame
            self.mark()
        else:
            self.send_raw(frame)

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

    def send_content(self, number: i16, header: bytes, body: bytes) -> None:
        """Append a content header and the body, in frames of at most `frame_max` bytes.

        `number` is that of the channel, as `signed16` returns it.
        """
        writer = self._writer
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
        self.send_content(number, header, message.body)
        if not self._is_dirty:
            self.mark()

    def note_end(self, reason: str) -> None:
        """Keep the reason for the end of the connection; the first reason wins."""
        if not self.end_reason:
            self.end_reason = reason

    def fail_channel(self, channel: i64, error: LeveretError) -> None:
        """Close a channel with an error that no method of the peer caused."""
        raise NotImplementedError

    def fail_internally(self) -> None:
        """Drop the output of this turn and close the connection: a fault left it incomplete."""
        raise NotImplementedError

    def fail_held(self) -> None:
        """Drop the held output and close the connection: its changes cannot be written."""
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

    def require_way_in(self, name: str, routing_key: str | None = None) -> None:
        """Raise AccessRefusedError unless the user may lead messages to an exchange.

        Their key is `routing_key`, or any key. A way into a topic exchange must not reach keys with
        which the user may not publish to it.
        """
        self.require(WRITE, "exchange", name)
        vhost = self.vhost
        user = self.user
        assert vhost is not None
        assert user is not None
        exchange = vhost.exchanges.get(name)
        if exchange is None or exchange.kind != "topic":
            return
        if routing_key is not None:
            self.require_topic(WRITE, exchange, routing_key)
        elif not user.may_every_topic(WRITE, vhost.name, name):
            raise AccessRefusedError(
                f"write access to every topic in exchange '{name}' in vhost '{vhost.name}' "
                f"refused for user '{user.name}'"
            )

    def note(self, action: str, name: str) -> None:
        """Write an audit event: the user did this to a queue or exchange."""
        user = self.user
        vhost = self.vhost
        assert user is not None
        assert vhost is not None
        self.front.audit.note(user.identity, self.peer, action, f"{vhost.name}: {name}", "ok")
