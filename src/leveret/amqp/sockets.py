"""The sockets of AMQP connections: one asyncio protocol per connection, and flow control.

One read is one turn of the engine: feed the bytes, end the turn, write its output. All of this is
synchronous. A connection has no task and awaits nothing.

Flow control keeps a publisher at full speed from starving the consumers and from filling the
memory. The broker treats a publishing connection like this:

- It reads at most `QUOTA_BYTES` (more if the messages are large) and then waits for the next
  iteration of the loop, so that deliveries and acks of other connections come in between.
- If the messages go to many queues, a turn ends after the work of about `WORK_MAX` copies. The
  input that is left over waits for a later iteration.
- While a target queue has consumers and more than `backlog` ready messages, the connection waits
  for the queue to get shorter, at most `PAUSE_S` per quota. If consumers make progress, the wait
  grows with the number of waiting publishers, so that ten publishers together do not send ten
  times as much as one.
- While the log has much to write, the connection waits for the disk.
- While an alarm is on, the connection waits for its end, and is told so (`connection.blocked`).
- While the incomplete messages of all connections, or of one user, take too much memory, one of
  their connections at a time continues (`finisher`).

Any other connection that fills the buffer of a read rests for one iteration of the loop: a flood of
small frames must not keep the loop from the other connections. Connections whose turns do much work
go on one at a time (`heavy_turns`).

A consumer that does not read gets no more deliveries: its credit is not renewed while the buffer of
its socket is full. Answers to `basic.get` use the same credit. When it is used up, further frames
of the connection wait until it is renewed: a few bytes of input can ask for hundreds of megabytes.
While a peer leaves more than `UNREAD_BYTES_MAX` bytes of its answers unread, the broker reads
nothing from it. Its heartbeats are still checked, so that a dead peer is found. The same limit
holds for answers that wait for the log.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final, cast

from mypy_extensions import i64

from leveret.addresses import shown_address
from leveret.amqp.closing import fail_internally, on_socket_lost
from leveret.amqp.connection import Connection
from leveret.amqp.connection_base import CREDIT_BYTES, AmqpFront
from leveret.amqp.finisher import Finisher
from leveret.amqp.handlers.connection import on_access_changed, tell_blocked, tell_unblocked
from leveret.amqp.heavy_turns import HEAVY_WORK, HeavyTurns
from leveret.amqp.long_queue_wait import PAUSE_S, LongQueueWait
from leveret.auth.certificates import NameRule, TlsPeer, tls_peer
from leveret.engine.commands.consuming import refill
from leveret.listening.clients import Client, Relayed

log = logging.getLogger(__name__)

QUOTA_BYTES: Final = 32_768
LARGE_BYTES: Final = 512  # a publisher with this mean message size or more gets a larger quota
LARGE_QUOTA_BYTES: Final = 131_072  # the larger quota, so that a turn is worth its cost
WRITE_BUFFER_BYTES: Final = 262_144
BIG_READ_BYTES: Final = 262_144
WAKE_MAX: Final = 16  # waiting publishers that one turn checks
JOURNAL_BYTES_MAX: Final = 4_194_304  # bytes that wait for the log; publishers wait above it
UNREAD_BYTES_MAX: Final = 4_194_304
FINISHER_CHECK_S: Final = 0.5  # between two checks of an idle finisher
# TLS makes a record of each piece, even a small one: up to this size, joining pieces is cheaper.
JOINED_BYTES_MAX: Final = 1_048_576


class AmqpProtocol:
    """The socket of one connection: has the methods of an asyncio.BufferedProtocol."""

    def __init__(
        self,
        sockets: "Sockets",
        client: Client,
        relayed: Relayed | None = None,
        tls: TlsPeer | None = None,
    ) -> None:
        self._sockets = sockets
        self._client = client
        self._relayed = relayed  # set if another node relays the connection
        self._tls = tls  # the TLS session between the client and the relaying node
        self._front = sockets.front
        self._quota_bytes = QUOTA_BYTES
        self._read_into = sockets.buffer  # buffer of the last read
        self._read_bytes = 0  # published bytes since the last pause
        self._is_paused = False  # paused as a publisher
        self._is_resting = False  # paused for one iteration of the loop
        self._is_heavy = False  # must wait in `HeavyTurns` before its next turn
        self._is_unread = False  # paused because the peer does not read its answers
        self._is_behind = False  # paused because too many of its answers wait for the log
        self._queue_wait = LongQueueWait()
        self._can_write = True
        self._end: asyncio.TimerHandle | None = None  # aborts a close that takes too long

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        made = self._transport = cast(asyncio.Transport, transport)
        made.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = shown_address(self._client)
        self._sockets.begin_turn()
        self.connection = Connection(self._front, name, self._client.is_local)
        secured = transport.get_extra_info("ssl_object")
        self._is_secured = secured is not None
        if self._relayed is not None:
            server_name = shown_address(self._relayed.server)
            self.connection.tls = self._tls
            self.connection.is_relayed = True
        else:
            server_name = shown_address(transport.get_extra_info("sockname"))
            if secured is not None:
                self.connection.tls = tls_peer(secured, self._sockets.name_rule)
        self.connection.name = f"{name} -> {server_name}"
        self._feed = self.connection.feed
        self._sockets.protocols[self.connection] = self
        self._sockets.end_turn()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next read.

        All connections share the buffers, because received bytes are consumed at once. The size of
        the buffer is the quota; a frame larger than the quota gets a larger buffer.
        """
        sockets = self._sockets
        if self.connection.needed > QUOTA_BYTES:
            self._read_into = sockets.frame_buffer
        elif self._quota_bytes > QUOTA_BYTES:
            self._read_into = sockets.large_buffer
        else:
            self._read_into = sockets.buffer
        return self._read_into

    def buffer_updated(self, size: int) -> None:
        sockets = self._sockets
        connection = self.connection
        data = bytes(self._read_into[:size])
        sockets.begin_turn()
        published = connection.publishes
        try:
            self._feed(data)
        except Exception:
            self._fail()
        self._check_work()
        if connection.publishes != published:
            is_large = size > (connection.publishes - published) * LARGE_BYTES
            self._quota_bytes = LARGE_QUOTA_BYTES if is_large else QUOTA_BYTES
            self._read_bytes += size
            sockets.note_received(size)
            connection.note_published()
            if (
                self._read_bytes >= self._quota_bytes
                or self._front.alarms
                or self._front.is_unfinished_over(connection.user)
            ):
                self._pause()
        elif connection.unfinished_bytes != 0:
            sockets.note_received(size)
            if self._front.alarms or self._front.is_unfinished_over(connection.user):
                self._pause()
        elif size >= QUOTA_BYTES and not self._transport.is_closing():
            self._is_resting = True
            self._transport.pause_reading()
            sockets.loop.call_soon(self._end_rest)
        sockets.end_turn()

    def _check_work(self) -> None:
        """Pause after much work of the current turn; input that is left over counts as much."""
        if self._front.broker.turn.work >= HEAVY_WORK or self.connection.has_rest:
            self._is_heavy = True
            self._pause()

    def _end_rest(self) -> None:
        self._is_resting = False
        self._read_on()

    def _fail(self) -> None:
        log.exception("connection %s is closed: handling its input failed", self.connection.peer)
        fail_internally(self.connection)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        if self._is_unread and not self.connection.is_full:
            self._is_unread = False
            self._read_on()
        self._sockets.begin_turn()
        self._renew_credit()
        self._sockets.end_turn()

    def connection_lost(self, error: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
        self._sockets.forget(self)
        self._sockets.begin_turn()
        self.connection.note_end(str(error) if error is not None else "the peer hung up")
        on_socket_lost(self.connection)
        self._sockets.end_turn()

    def flush(self) -> None:
        """Write pending output, hang up if required, renew the credit if the peer reads."""
        connection = self.connection
        was_waiting = len(connection.holds) != 0
        pieces = connection.take_output()
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        elif self._is_secured and sum(map(len, pieces)) <= JOINED_BYTES_MAX:
            if pieces:
                self._transport.write(b"".join(pieces))
        elif pieces:
            self._transport.writelines(pieces)
        if connection.is_full:
            self._stop_reading()
        if was_waiting and self._waits_for_log():
            return
        if connection.drop:
            self._hang_up()
        elif not self._can_write:
            self._check_unread()
        elif connection.credit < CREDIT_BYTES:
            self._renew_credit()

    def _waits_for_log(self) -> bool:
        """Return True while output waits for the log: until then no close and no credit is sent.

        Too much waiting output stops reading. A connection that ends waits at most `close_ms`.
        """
        connection = self.connection
        is_behind = connection.held_bytes > UNREAD_BYTES_MAX
        if is_behind != self._is_behind:
            self._is_behind = is_behind
            connection.is_held = is_behind or self._is_paused
            if is_behind:
                self._transport.pause_reading()
            else:
                self._read_on()
        if not connection.holds:
            if self._end is not None:
                self._end.cancel()
                self._end = None
            return False
        if connection.drop and self._end is None:
            if connection.is_silent:
                self._transport.abort()
            else:
                wait_s = self._front.limits.close_ms / 1000
                self._end = self._sockets.loop.call_later(wait_s, self._transport.abort)
        return True

    def _hang_up(self) -> None:
        """Close our side after all output is written, and the socket when the peer closes too.

        The peer may still be writing. Closing the socket at once would reset the connection, and
        the peer might lose our last frames; it gets `close_ms` to close its side. A peer without
        heartbeats is aborted at once, because its messages must go to other consumers.
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
        self._is_paused = self._is_unread = self._is_behind = self._is_resting = False
        self._transport.resume_reading()
        wait_s = self._front.limits.close_ms / 1000
        self._end = self._sockets.loop.call_later(wait_s, self._transport.abort)

    def _check_unread(self) -> None:
        if self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self._stop_reading()

    def _stop_reading(self) -> None:
        """Stop reading until the peer has read its answers."""
        if not self._is_unread:
            self._is_unread = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Handle the input that waited for credit, or for another turn."""
        connection = self.connection
        if self._transport.is_closing() or self._end is not None:
            return
        if not connection.has_rest and not (connection.is_full and self._can_write):
            return
        self._sockets.begin_turn()
        try:
            connection.go_on()
        except Exception:
            self._fail()
        connection.note_published()
        was_paused = self._is_paused
        self._check_work()
        if self._is_unread and self._can_write and not connection.is_full:
            self._is_unread = False
            self._read_on()
        self._sockets.end_turn()
        if was_paused:
            self.maybe_resume()

    def unsent_bytes(self) -> int:
        """Return the number of output bytes that the peer has not read yet."""
        return self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close the socket at once and drop pending output."""
        self._transport.abort()

    def _renew_credit(self) -> None:
        connection = self.connection
        if connection.starved:
            self._sockets.turn_soon()
        refill(self._front.broker.slots, connection, CREDIT_BYTES)
        if connection.is_full:
            self._sockets.loop.call_soon(self._go_on)

    def _pause(self) -> None:
        self._read_bytes = 0
        if not self._is_paused and not self._transport.is_closing():
            self._is_paused = True
            self.connection.is_held = True
            self._transport.pause_reading()
            if self._is_heavy:
                self._wait_in_line()
            else:
                self._sockets.loop.call_soon(self.maybe_resume)

    def _wait_in_line(self) -> None:
        self._is_heavy = False
        self._sockets.heavy_turns.wait(self.connection, self.maybe_resume)

    def maybe_resume(self) -> None:
        """Resume reading, unless there is a reason to wait."""
        sockets = self._sockets
        if self._transport.is_closing() or self._end is not None:
            return
        if self._is_heavy:
            self._wait_in_line()
            return
        if not sockets.finisher.admits(self.connection):
            sockets.waiting[self] = None
            sockets.check_waiting_within(FINISHER_CHECK_S)
            return
        if self._front.alarms and not sockets.finisher.is_current(self.connection):
            if tell_blocked(self.connection):
                sockets.turn_soon()
            sockets.waiting[self] = None
            return
        if self._is_log_behind():
            sockets.waiting[self] = None
            return
        if self._waits_for_queue():
            sockets.waiting[self] = None
            sockets.check_waiting_within(PAUSE_S)
            return
        if tell_unblocked(self.connection):
            sockets.turn_soon()
        self._queue_wait.end()
        if self.connection.has_rest:
            sockets.loop.call_soon(self._go_on)
            return
        self._is_paused = False
        self.connection.is_held = self._is_behind
        self._read_on()

    def _read_on(self) -> None:
        if self._is_paused or self._is_unread or self._is_behind or self._is_resting:
            return
        if self._transport.is_closing():
            return
        self._transport.resume_reading()

    def _is_log_behind(self) -> bool:
        """Return True if too many bytes wait for the log. Every sync checks this again."""
        journal = self._front.broker.turn.journal
        return journal is not None and journal.waiting_bytes() > JOURNAL_BYTES_MAX

    def _waits_for_queue(self) -> bool:
        wait = self._queue_wait
        sockets = self._sockets
        if not wait.has_long_queue(self.connection, self._front.limits.backlog):
            return False
        return wait.lasts(sockets.loop.time(), len(sockets.waiting))


class Sockets:
    """All AMQP sockets of a node, with the buffers and callbacks that they share."""

    def __init__(
        self,
        front: AmqpFront,
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
        self.note_received = note_received  # called with the bytes that publishers sent
        self._note_none = note_none  # called when the last socket is gone
        self.buffer = memoryview(bytearray(QUOTA_BYTES))
        self.frame_buffer = memoryview(bytearray(BIG_READ_BYTES))
        self.large_buffer = self.frame_buffer[:LARGE_QUOTA_BYTES]
        self.protocols: dict[Connection, AmqpProtocol] = {}
        self.waiting: dict[AmqpProtocol, None] = {}  # paused by a long queue, the log or an alarm
        self.changed_users: set[str] = set()  # users whose open connections must be checked
        self.name_rule: NameRule | None = None  # which logins certificates give; None: none
        self.finisher = Finisher(front, loop, turn_soon)
        self.heavy_turns = HeavyTurns(loop)
        self._check: asyncio.TimerHandle | None = None

    def flush(self) -> None:
        """Write the output of the last turn, then let waiting publishers check again."""
        front = self.front
        if front.dirty:
            dirty = front.dirty
            front.dirty = []
            for connection in dirty:
                assert isinstance(connection, Connection)
                protocol = self.protocols.get(connection)
                if protocol is not None:
                    try:
                        protocol.flush()
                    except Exception:  # the other connections get their output
                        log.exception("connection %s is closed: sending failed", connection.peer)
                        protocol.abort()
        if self.waiting:
            self._wake_waiting(WAKE_MAX)
        if self.changed_users:
            self._check_access()

    def _check_access(self) -> None:
        users = self.changed_users
        self.changed_users = set()
        for connection in self.connections_of(users):
            on_access_changed(connection)
        self.turn_soon()  # this sends the cancels of ended consumers

    def connections_of(self, users: set[str]) -> list[Connection]:
        """Return the open connections of these users."""
        return [c for c in self.protocols if c.user is not None and c.user.identity in users]

    def _wake_waiting(self, most: int) -> None:
        """Let the longest waiting publishers check again; those that must wait go to the end."""
        first: list[AmqpProtocol] = []
        for protocol in self.waiting:
            if len(first) == most:
                break
            first.append(protocol)
        for protocol in first:
            self.waiting.pop(protocol, None)
            protocol.maybe_resume()

    def buffered_bytes(self) -> int:
        """Return the memory of incomplete input and of output that peers have not read."""
        total: i64 = self.front.unfinished_bytes
        for connection, protocol in self.protocols.items():
            total += connection.held_bytes + connection.unparsed_bytes() + protocol.unsent_bytes()
        return total

    def check_waiting_within(self, delay_s: float) -> None:
        """Check all waiting connections after this delay at the latest."""
        if self._check is None:
            self._check = self.loop.call_later(delay_s, self._on_check)

    def _on_check(self) -> None:
        self._check = None
        self._wake_waiting(len(self.waiting))

    def alarms_changed(self) -> None:
        """Let all waiting connections check again, after an alarm began or ended."""
        self._wake_waiting(len(self.waiting))

    def stop(self) -> None:
        """Cancel the timer that resumes waiting connections."""
        if self._check is not None:
            self._check.cancel()

    def forget(self, protocol: AmqpProtocol) -> None:
        """Drop a lost socket."""
        self.protocols.pop(protocol.connection, None)
        self.waiting.pop(protocol, None)
        self.finisher.forget(protocol.connection)
        self.heavy_turns.forget(protocol.connection)
        if not self.protocols:
            self._note_none()
