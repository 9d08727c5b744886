"""The sockets of the AMQP front: a protocol for each connection, and flow control.

One read is one turn of the engine: feed the bytes, end the turn, write what it caused. All of it is
synchronous; there is no task and no await for a connection.

Flow control decides whether a broker is usable: a publisher at full speed must neither starve the
consumers nor fill the memory. A publishing connection

- reads at most `QUOTA_BYTES` (more where its messages are large), then waits for the next round of
  the loop, so that deliveries and acks of others come in between;
- while a queue that it publishes to has consumers and more than `backlog` ready messages, waits for
  the queue to get shorter, but for each quota at most `PAUSE_S`; the more publishers wait, the
  longer each of them, as long as consumers get on: otherwise ten would press ten times as hard;
- while the log has much to write, waits for the disk;
- while an alarm is on, waits until it is over, and is told so (`connection.blocked`).

A consumer that does not read stops getting deliveries: its credit is not renewed while its socket's
buffer is full. A peer that asks for answers and reads none is not read from beyond
`UNREAD_BYTES_MAX`; heartbeats go on counting, so that a dead one is found.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final, cast

from leveret.addresses import plain_host
from leveret.amqp.closing import fail_internally, lost
from leveret.amqp.connection import Connection
from leveret.amqp.connection_state import RUNNING
from leveret.amqp.handlers.connection import on_access_changed
from leveret.amqp.link import CREDIT_BYTES, Front
from leveret.amqp.methods import CONNECTION_BLOCKED, CONNECTION_UNBLOCKED
from leveret.amqp.writer import Writer
from leveret.auth import is_loopback
from leveret.auth.certificates import NameRule, tls_peer
from leveret.engine.commands.consuming import refill
from leveret.engine.queues.queue import Queue

log = logging.getLogger(__name__)

QUOTA_BYTES: Final = 32_768
LARGE_BYTES: Final = 512  # from this mean size on, a publisher's messages are large
LARGE_QUOTA_BYTES: Final = 131_072  # and this is its quota: a turn should be worth its cost
PAUSE_S: Final = 0.01
PAUSE_MAX_S: Final = 0.1  # however many wait
WRITE_BUFFER_BYTES: Final = 262_144
BIG_READ_BYTES: Final = 262_144
WAKE_MAX: Final = 16  # waiting publishers that one turn looks at
JOURNAL_BYTES_MAX: Final = 4_194_304  # written but not taken by the log: publishers wait
UNREAD_BYTES_MAX: Final = 4_194_304
# TLS makes a record of each piece, however small: up to here, copying pieces together is cheaper.
JOINED_BYTES_MAX: Final = 1_048_576


class AmqpProtocol:
    """One connection's socket: an asyncio.BufferedProtocol in all but name."""

    def __init__(self, server: "Sockets") -> None:
        self._server = server
        self._front = server.front
        self._quota_bytes = QUOTA_BYTES
        self._read_into = server.buffer  # where the last read went
        self._read_bytes = 0  # since the last pause
        self._is_paused = False  # as a publisher
        self._is_unread = False  # the peer does not read its answers
        self._paused_at = 0.0  # loop time at which the present wait for a backlog began
        self._pressing: Queue | None = None  # the long queue that it waits for
        self._progress = 0  # of that queue's consumers, when the wait began
        self._can_write = True
        self._end: asyncio.TimerHandle | None = None  # of a close that takes too long

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        transport = self._transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        peer = transport.get_extra_info("peername")
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = _address(peer)
        self._server.begin_turn()
        self.connection = Connection(self._front, name, not peer or is_loopback(peer[0]))
        self.connection.name = f"{name} -> {_address(transport.get_extra_info('sockname'))}"
        secured = transport.get_extra_info("ssl_object")
        self._is_secured = secured is not None
        if secured is not None:
            self.connection.tls = tls_peer(secured, self._server.name_rule)
        self._feed = self.connection.feed
        self._server.protocols[self.connection] = self
        self._server.end_turn()
        end = self._front.limits.sockets_end
        if end != 0 and sock is not None and sock.fileno() >= end:
            log.warning("a connection was refused: the node has too many open files")
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read into: shared by all connections, because what is read is taken at once.

        Its size is the quota. Only a frame that is larger is worth a larger one.
        """
        server = self._server
        if self.connection.needed > QUOTA_BYTES:
            self._read_into = server.frame_buffer
        elif self._quota_bytes > QUOTA_BYTES:
            self._read_into = server.large_buffer
        else:
            self._read_into = server.buffer
        return self._read_into

    def buffer_updated(self, size: int) -> None:
        server = self._server
        connection = self.connection
        data = bytes(self._read_into[:size])
        server.begin_turn()
        published = connection.publishes
        try:
            self._feed(data)
        except Exception:
            log.exception("connection %s broke", connection.peer)
            fail_internally(connection)
        if connection.publishes != published:
            is_large = size > (connection.publishes - published) * LARGE_BYTES
            self._quota_bytes = LARGE_QUOTA_BYTES if is_large else QUOTA_BYTES
            self._read_bytes += size
            server.note_received(size)
            connection.note_published()
            if self._read_bytes >= self._quota_bytes or self._front.alarms:
                self._pause()
        server.end_turn()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        if self._is_unread:
            self._is_unread = False
            self._read_on()
        self._server.begin_turn()
        self._renew_credit()
        self._server.end_turn()

    def connection_lost(self, error: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
        self._server.forget(self)
        self._server.begin_turn()
        self.connection.note_end(str(error) if error is not None else "the peer hung up")
        lost(self.connection)
        self._server.end_turn()

    # The server's side

    def flush(self) -> None:
        """Write what waits, hang up if that is wanted, renew the credit if the peer reads."""
        connection = self.connection
        pieces = connection.take_output()
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        elif self._is_secured and sum(map(len, pieces)) <= JOINED_BYTES_MAX:
            if pieces:
                self._transport.write(b"".join(pieces))
        elif pieces:
            self._transport.writelines(pieces)
        if connection.drop:
            self._hang_up()
        elif not self._can_write:
            self._check_unread()
        elif connection.credit < CREDIT_BYTES:
            self._renew_credit()

    def _hang_up(self) -> None:
        """Close our side when everything is written, and the socket when the peer does so too.

        A peer may still be writing: closing at once would reset the connection under it, and our
        last words with it. It has a while to notice. One that sent no heartbeats will not: what it
        holds goes to others now.
        """
        if self._end is not None or self._transport.is_closing():
            return
        if self.connection.is_silent:
            self._transport.abort()
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()
        self._is_paused = self._is_unread = False
        self._transport.resume_reading()
        wait_s = self._front.limits.close_ms / 1000
        self._end = self._server.loop.call_later(wait_s, self._transport.abort)

    def _check_unread(self) -> None:
        if not self._is_unread and self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self._is_unread = True
            self._transport.pause_reading()

    def unsent_bytes(self) -> int:
        """What the peer has not taken yet."""
        return self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close the socket, whatever waits to be written."""
        self._transport.abort()

    def _renew_credit(self) -> None:
        connection = self.connection
        if connection.starved:
            self._server.turn_soon()
        refill(self._front.broker.slots, connection, CREDIT_BYTES)

    # Flow control

    def _pause(self) -> None:
        self._read_bytes = 0
        if not self._is_paused and not self._transport.is_closing():
            self._is_paused = True
            self.connection.is_held = True
            self._transport.pause_reading()
            self._server.loop.call_soon(self.maybe_resume)

    def maybe_resume(self) -> None:
        """Read on, unless there is a reason to wait."""
        server = self._server
        if self._transport.is_closing() or self._end is not None:
            return
        if self._front.alarms:
            self._block()
            server.waiting[self] = None
            return
        if self._is_log_behind():
            server.waiting[self] = None
            return
        if self._is_pressing() and self._waits_on():
            server.waiting[self] = None
            server.check_waiting_within(PAUSE_S)
            return
        self._unblock()
        self._paused_at = 0.0
        self._is_paused = False
        self.connection.is_held = False
        self._read_on()

    def _read_on(self) -> None:
        if not self._is_paused and not self._is_unread and not self._transport.is_closing():
            self._transport.resume_reading()

    def _is_log_behind(self) -> bool:
        """Whether the disk is slower than the publishers: every sync looks at this again."""
        journal = self._front.broker.turn.journal
        return journal is not None and journal.waiting_bytes() > JOURNAL_BYTES_MAX

    def _waits_on(self) -> bool:
        """Whether the wait for a long queue, which begins with the first call, goes on."""
        queue = self._pressing
        assert queue is not None
        now = self._server.loop.time()
        progress = queue.delivered + queue.delivered_no_ack + queue.acked
        if self._paused_at == 0.0:
            self._paused_at = now
            self._progress = progress
            return True
        most_s = PAUSE_S
        if progress != self._progress:
            most_s = min(PAUSE_S * (1 + len(self._server.waiting)), PAUSE_MAX_S)
        return now - self._paused_at < most_s

    def _is_pressing(self) -> bool:
        """Whether a queue with consumers has more to do than it should wait for."""
        most = self._front.limits.backlog
        queue = self._pressing
        if queue is not None:
            if queue.ready.count > most and queue.consumers and not queue.paused:
                return True
            self._pressing = None
        publisher = self.connection.publisher
        route = publisher.route if publisher is not None else None
        if route is None:
            return False
        for queue in route.queues:
            if queue.ready.count > most and queue.consumers and not queue.paused:
                self._pressing = queue
                return True
        return False

    def _block(self) -> None:
        connection = self.connection
        if connection.is_blocked or connection.state != RUNNING:
            return
        connection.is_blocked = True
        if connection.wants_blocked_notify:
            reason = " & ".join(self._front.alarms)
            connection.send(0, Writer(CONNECTION_BLOCKED).short_string(f"low on {reason}"))
            self._server.turn_soon()

    def _unblock(self) -> None:
        connection = self.connection
        if not connection.is_blocked:
            return
        connection.is_blocked = False
        if connection.wants_blocked_notify:
            connection.send(0, Writer(CONNECTION_UNBLOCKED))
            self._server.turn_soon()


class Sockets:
    """All sockets of a node, and what they share."""

    def __init__(
        self,
        front: Front,
        loop: asyncio.AbstractEventLoop,
        begin_turn: Callable[[], None],
        end_turn: Callable[[], None],
        turn_soon: Callable[[], None],
        note_received: Callable[[int], None],
        note_none: Callable[[], None],
    ) -> None:
        self.front = front
        self.loop = loop
        self.begin_turn = begin_turn
        self.end_turn = end_turn
        self.turn_soon = turn_soon
        self.note_received = note_received  # told how many bytes publishers sent
        self._note_none = note_none  # told when the last one is gone
        self.buffer = memoryview(bytearray(QUOTA_BYTES))
        self.frame_buffer = memoryview(bytearray(BIG_READ_BYTES))
        self.large_buffer = self.frame_buffer[:LARGE_QUOTA_BYTES]
        self.protocols: dict[Connection, AmqpProtocol] = {}
        self.waiting: dict[AmqpProtocol, None] = {}  # paused, for a backlog or an alarm
        self.changed_users: set[str] = set()  # whose open connections must be looked at
        self.name_rule: NameRule | None = None  # how certificates of peers are logins, if they are
        self._check: asyncio.TimerHandle | None = None

    def flush(self) -> None:
        """Write what the last turn left in the links, then see who may read on."""
        front = self.front
        if front.dirty:
            dirty = front.dirty
            front.dirty = []
            for link in dirty:
                assert isinstance(link, Connection)
                protocol = self.protocols.get(link)
                if protocol is not None:
                    protocol.flush()
        if self.waiting:
            self._wake_waiting(WAKE_MAX)
        if self.changed_users:
            self._check_access()

    def _check_access(self) -> None:
        users = self.changed_users
        self.changed_users = set()
        for connection in self.connections_of(users):
            on_access_changed(connection)
        self.turn_soon()  # peers whose consumers have ended are told

    def connections_of(self, users: set[str]) -> list[Connection]:
        """The connections of these users."""
        return [c for c in self.protocols if c.user is not None and c.user.name in users]

    def _wake_waiting(self, most: int) -> None:
        """Let those that have waited longest look again; who still has to wait goes to the end."""
        first: list[AmqpProtocol] = []
        for protocol in self.waiting:
            if len(first) == most:
                break
            first.append(protocol)
        for protocol in first:
            self.waiting.pop(protocol, None)
            protocol.maybe_resume()

    def check_waiting_within(self, delay_s: float) -> None:
        """Look at the waiting connections even if nothing else happens until then."""
        if self._check is None:
            self._check = self.loop.call_later(delay_s, self._on_check)

    def _on_check(self) -> None:
        self._check = None
        self._wake_waiting(len(self.waiting))

    def alarms_changed(self) -> None:
        """Alarms are new or over: whoever waits for them looks again."""
        self._wake_waiting(len(self.waiting))

    def stop(self) -> None:
        """Nobody is let on any more."""
        if self._check is not None:
            self._check.cancel()

    def forget(self, protocol: AmqpProtocol) -> None:
        """A socket is gone."""
        self.protocols.pop(protocol.connection, None)
        self.waiting.pop(protocol, None)
        if not self.protocols:
            self._note_none()


def _address(name: tuple[object, ...] | None) -> str:
    """An end of a socket, for people. IPv6 has two more fields than host and port."""
    if not name:
        return "?"
    host = plain_host(str(name[0]))
    return f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"
