"""A connection: turns received bytes into frames, and hands the frames to channels.

`feed` parses directly from the received bytes. Publish, content and ack stay on the fast path; all
other methods of an open channel go through `dispatch`. Other modules hold the rest: fields and
states of a connection are in `connection_state`, unusual frames in `rare_frames`, methods of
channel 0 in `handlers.connection`, closes in `closing`, heartbeats in `heartbeat`.

Invariant: each frame is handled once, when it is complete. The exception is a large body frame,
which is taken piece by piece. After an error the next frame begins at `_frame_end`.
"""

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from leveret.amqp.channel import BODY, HEADER, METHOD, Channel
from leveret.amqp.closing import (
    close_channel,
    fail,
    fail_held,
    fail_internally,
    force_close,
    on_channel_close,
)
from leveret.amqp.connection_base import NOT_AMQP, AmqpFront
from leveret.amqp.connection_state import (
    AWAIT_HEADER,
    CLOSED,
    CLOSING,
    LOGGING_IN,
    RUNNING,
    STARTING,
    TUNING,
    ConnectionState,
)
from leveret.amqp.dispatch import dispatch
from leveret.amqp.frame_errors import bad_end, expected_content, too_large, unknown_frame
from leveret.amqp.handshake import (
    PROTOCOL_HEADER_0_9,
    on_login,
    send_start,
)
from leveret.amqp.heartbeat import beat
from leveret.amqp.methods import (
    BASIC_ACK,
    BASIC_PUBLISH,
    CHANNEL_CLOSE,
    CHANNEL_OPEN,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_METHOD,
    FRAME_OVERHEAD,
    PROTOCOL_HEADER,
)
from leveret.amqp.rare_frames import on_other_frame, on_unexpected
from leveret.amqp.reader import MethodReader
from leveret.amqp.reply_codes import reply_for
from leveret.auth import Refusal, User
from leveret.engine.timer_queue import NEVER, earlier
from leveret.engine.turns.turn import WORK_MAX
from leveret.errors import ChannelError, LeveretError
from leveret.listening.port_hints import AMQP, AMQPS, FIRST_BYTES

_FRAME_HEAD: Final = 7  # type, channel, size
_STREAMED_BYTES: Final = 4096  # a larger body frame is taken piece by piece
_EARLY_BYTES_MAX: Final = 65_536  # that a peer may send while its login is decided
_CHUNKS_MAX: Final = 64  # pieces of a frame that are kept as a list; more are joined


class Connection(ConnectionState):
    """One AMQP connection, without its socket."""

    def __init__(self, front: AmqpFront, peer: str, is_loopback: bool) -> None:
        super().__init__(front, peer, is_loopback)
        self.publishes: i64 = 0  # messages received so far
        self._sized: i64 = 0  # value of `publishes` at the last `note_published`
        self._chunks: list[bytes] = []  # received bytes of an incomplete frame
        self._chunk_bytes: i64 = 0
        self.needed: i64 = 8  # bytes that must be there before parsing goes on
        self._frame_end: i64 = 0  # where to go on after an error
        # Bytes still to come of a body frame that is taken piece by piece, with its end octet.
        self._body_left: i64 = 0
        self._body_channel: Channel | None = None  # None: skip the rest of the frame
        front.broker.timers.arm(self, self.deadline_ms)

    def note_published(self) -> None:
        """Sample the size of the last message, once for each read that brought publishes."""
        publisher = self.publisher
        if publisher is not None and publisher.content is not None:
            count = self.publishes - self._sized
            self._sized = self.publishes
            self.front.broker.turn.sizes.note(publisher.content.body_size, count)

    def feed(self, data: bytes) -> None:
        """Handle all complete frames of the received bytes, and keep the incomplete rest."""
        if self.state >= CLOSED:
            self._keep_early(data)
            return
        if self.is_full or self.has_rest:
            self._keep_incomplete(data)
            return
        turn = self.front.broker.turn
        if turn.is_log_full():
            self._keep_incomplete(data)
            self.has_rest = True
            return
        turn.outlet = self
        self.received_ms = turn.now_ms
        self.received_bytes += len(data)
        self.received_count += 1
        if self._chunks:
            self._chunks.append(data)
            self._chunk_bytes += len(data)
            if self._chunk_bytes < self.needed:
                if len(self._chunks) >= _CHUNKS_MAX:
                    self._chunks = [b"".join(self._chunks)]
                return
            data = b"".join(self._chunks)
            self._chunks = []
        at: i64 = 0
        if self.state == AWAIT_HEADER:
            at = self._read_protocol_header(data)
        while at >= 0 and self.state != CLOSED:
            try:
                at = self._read_frames(data, at)
                break
            except LeveretError as error:
                at = self._frame_end
                fail(self, error)
        if at >= 0 and self.state != CLOSED and at < len(data):
            self._chunks = [data[at:] if at > 0 else data]
            self._chunk_bytes = len(data) - at

    def unparsed_bytes(self) -> i64:
        """Return the received bytes of an incomplete frame."""
        return self._chunk_bytes if self._chunks else 0

    def _keep_early(self, data: bytes) -> None:
        """Keep bytes that arrive while the login is decided; drop bytes of a closed connection."""
        if self.state == CLOSED:
            return
        self._keep_incomplete(data)
        if self._chunk_bytes > _EARLY_BYTES_MAX:
            self.hang_up()

    def _keep_incomplete(self, data: bytes) -> None:
        if not self._chunks:
            self._chunk_bytes = 0
        self._chunks.append(data)
        self._chunk_bytes += len(data)
        self.received_bytes += len(data)

    def go_on(self) -> None:
        """Handle the frames that waited for credit, or for another turn."""
        self.is_full = False
        self.has_rest = False
        if self.settling is not None:
            self._go_on_settling()
        if not self.has_rest:
            self._feed_kept()

    def _go_on_settling(self) -> None:
        channel = self.settling
        assert isinstance(channel, Channel)
        if channel.closed:  # its messages are back in their queues
            self.settling = None
            return
        self.front.broker.turn.outlet = self
        if channel.unsent:
            channel.send_deliveries()
        channel.settle_part()

    def _feed_kept(self) -> None:
        if self._chunks:
            data = b"".join(self._chunks)
            self._chunks = []
            self.received_bytes -= len(data)  # `feed` counts them again
            self.feed(data)

    def on_login(self, outcome: User | Refusal) -> None:
        if self.state != LOGGING_IN:  # the peer has gone, or the deadline has passed
            return
        if on_login(self, outcome):
            self.state = TUNING
        else:
            self.hang_up_later()
        self._feed_kept()

    def _read_protocol_header(self, data: bytes) -> i64:
        """Check the first eight octets. Return where the frames begin, or -1."""
        if len(data) < len(PROTOCOL_HEADER):
            if not PROTOCOL_HEADER.startswith(data) and not PROTOCOL_HEADER_0_9.startswith(data):
                self._refuse_protocol(data)
                return -1
            self.needed = len(PROTOCOL_HEADER)
            return 0
        head = data[: len(PROTOCOL_HEADER)]
        if head != PROTOCOL_HEADER and head != PROTOCOL_HEADER_0_9:
            self._refuse_protocol(data)
            return -1
        self.state = STARTING
        send_start(self)
        return len(PROTOCOL_HEADER)

    def _refuse_protocol(self, data: bytes) -> None:
        """Send the supported protocol header, as AMQP demands, and hang up.

        A client of another protocol that can read an answer is told which port it should use.
        """
        service = AMQP if self.tls is None else AMQPS
        found = self.front.port_hints.maybe_refusal(service, data[:FIRST_BYTES])
        self.is_foreign = True
        self.note_end(NOT_AMQP if found is None else found.reason)
        self.send_raw(PROTOCOL_HEADER if found is None else found.answer or PROTOCOL_HEADER)
        self.state = CLOSED
        self.drop = True

    def _read_frames(self, data: bytes, at: i64) -> i64:
        """Handle complete frames. Return where the incomplete rest starts.

        If the turn has done its share of work, complete frames are left over too (`has_rest`).
        """
        turn = self.front.broker.turn
        end: i64 = len(data)
        if self.state == AWAIT_HEADER:
            return at
        if self._body_left != 0:
            at = self._read_body(data, at, end)
            if self._body_left != 0:
                return at
        while end - at >= _FRAME_HEAD:
            if turn.work >= WORK_MAX:
                self.has_rest = True
                break
            size = i64(read_i32_be(data, at + 3)) & 0xFFFFFFFF
            kind: i64 = data[at]
            if size > self.frame_max:
                self._blame_connection(end)
                raise too_large(kind, size, self.frame_max - FRAME_OVERHEAD)
            stop = at + _FRAME_HEAD + size
            if stop >= end:
                if (
                    kind == FRAME_BODY
                    and size >= _STREAMED_BYTES
                    and self._begin_body(data, at, size)
                ):
                    return self._read_body(data, at + _FRAME_HEAD, end)
                self.needed = size + FRAME_OVERHEAD
                return at
            number = i64(read_i16_be(data, at + 1)) & 0xFFFF
            start = at + _FRAME_HEAD
            if data[stop] != FRAME_END:
                self._blame_connection(end)
                raise bad_end(kind, data[start:stop], data[stop])
            at = stop + 1
            if kind == FRAME_METHOD and size < 4 and self.state != CLOSING:
                self._blame_connection(at)
                raise unknown_frame(kind, data[start:stop])
            self._frame_end = at
            channel = self.last_channel
            if channel is None or number != self.last_number:
                channel = self.find_channel(number)
            if channel is None or channel.is_closing:
                on_other_frame(self, kind, number, data[start:stop])
            elif kind == FRAME_METHOD:
                self._on_method(channel, data, start, stop)
                if self.is_full:
                    break
            elif kind == FRAME_HEADER and channel.expects == HEADER:
                self.last_method = BASIC_PUBLISH
                channel.on_header(data[start:stop])
            elif kind == FRAME_BODY and channel.expects == BODY:
                self.last_method = BASIC_PUBLISH
                channel.on_body(data[start:stop], size)
            else:
                on_unexpected(self, channel, kind, data[start:stop])
            if self.state >= CLOSED:
                return end if self.state == CLOSED else at
        self.needed = _FRAME_HEAD
        return at

    def _blame_connection(self, frame_end: i64) -> None:
        """Note that an error closes the connection, not a channel, and names no method."""
        self.last_number = 0
        self.last_method = 0
        self._frame_end = frame_end

    def _begin_body(self, data: bytes, at: i64, size: i64) -> bool:
        """Return True if an incomplete body frame can be taken piece by piece.

        In any unusual state, collect the frame first and handle it like all others.
        """
        number = i64(read_i16_be(data, at + 1)) & 0xFFFF
        channel = self.find_channel(number)
        if channel is None or channel.is_closing or self.state != RUNNING:
            return False
        if channel.expects != BODY or not _STREAMED_BYTES <= size <= channel.missing:
            return False
        self._body_left = size + 1
        self._body_channel = channel
        return True

    def _read_body(self, data: bytes, at: i64, end: i64) -> i64:
        """Take the received part of a body frame. Return where the next frame starts."""
        size = min(end - at, self._body_left - 1)
        self._body_left -= size
        channel = self._body_channel
        if channel is not None and (channel.is_closing or self.state != RUNNING):
            channel = None
        self._frame_end = at + size
        if size > 0 and channel is not None:
            self.last_method = BASIC_PUBLISH
            self.last_number = channel.number
            self._body_channel = None  # if `keep_part` fails, the rest is skipped
            channel.keep_part(data if size == len(data) else data[at : at + size], size)
            self._body_channel = channel
        at += size
        if self._body_left == 1 and at < end:
            self._body_left = 0
            self._body_channel = None
            if data[at] != FRAME_END:
                self._blame_connection(end)
                raise bad_end(FRAME_BODY, b"", data[at])
            at += 1
            self._frame_end = at
            if channel is not None:
                channel.end_part()
        self.needed = self._body_left if self._body_left != 0 else _FRAME_HEAD
        return at

    def _on_method(self, channel: Channel, data: bytes, start: i64, stop: i64) -> None:
        """Handle a method on an open channel."""
        method = i64(read_i32_be(data, start)) & 0xFFFFFFFF
        if channel.expects != METHOD:
            self.last_method = BASIC_PUBLISH
            raise expected_content(channel)
        self.last_method = method
        if method == BASIC_PUBLISH:
            self.publishes += 1
            if self.publisher is not channel:
                self.publisher = channel
            channel.on_publish(data[start:stop])
        elif method == BASIC_ACK and stop - start == 13:
            channel.on_ack(read_i64_be(data, start + 4), (data[start + 12] & 1) != 0)
        elif method == CHANNEL_CLOSE:
            on_channel_close(self, channel, MethodReader(data[start:stop]))
        elif method == CHANNEL_OPEN:
            raise ChannelError("second 'channel.open' seen")
        else:
            dispatch(channel, method, MethodReader(data[start:stop]))

    def fail_channel(self, channel: i64, error: LeveretError) -> None:
        found = self.channels.get(channel)
        if found is not None and not found.is_closing:
            close_channel(self, found, reply_for(error), 0)

    def fail_internally(self) -> None:
        self.drop_output()  # it may end in the middle of a frame
        fail_internally(self)

    def fail_held(self) -> None:
        fail_held(self)

    def on_due(self, now_ms: i64) -> i64:
        """Handle a deadline, an expired login or a due heartbeat. Return the next due time."""
        if self.state == CLOSED:
            return NEVER
        if self.deadline_ms != NEVER:
            if now_ms < self.deadline_ms:
                return self.deadline_ms
            self.note_end("the handshake took too long")
            if self.last_words is not None:
                self.send(0, self.last_words)
            self.hang_up()
            return NEVER
        if self.expires_ms != NEVER and now_ms >= self.expires_ms:
            force_close(self, "credential expired")
            return self.deadline_ms
        due_ms = beat(self, now_ms) if self.heartbeat_s != 0 else NEVER
        return earlier(due_ms, self.expires_ms)
