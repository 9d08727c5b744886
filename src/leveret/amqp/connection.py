"""A connection: frames in, and the state machine of the connection and its channels.

    HEADER ──AMQP 0 0 9 1──► STARTING ──start-ok──► LOGGING_IN ──known──► TUNING
    TUNING ──tune-ok──► OPENING ──open──► RUNNING
      any error or deadline before RUNNING: the socket is closed, mostly without a word (RabbitMQ)
    RUNNING ──error──► CLOSING ──close-ok, deadline──► CLOSED
    RUNNING ──close from the peer──► CLOSED

A channel is open while it is in `channels`. One that was told to close (`is_closing`) ignores
everything but `channel.close-ok` and `channel.close`.

`feed` parses straight from the received bytes. Publish, its content and ack never leave the fast
path; all other methods go by `dispatch`. Errors are turned into closes in one place, `_fail`.
"""

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from leveret.amqp.channel import BODY, HEADER, METHOD, Channel
from leveret.amqp.dispatch import dispatch
from leveret.amqp.events import tell_channel, tell_closed, tell_opened
from leveret.amqp.frames import (
    bad_end,
    close_method,
    expected_content,
    expected_method,
    too_large,
    unknown_frame,
)
from leveret.amqp.handshake import (
    PROTOCOL_HEADER,
    PROTOCOL_HEADER_0_9,
    on_login,
    on_open,
    on_start_ok,
    on_tune_ok,
    send_start,
)
from leveret.amqp.link import CLOSED as CONNECTION_CLOSED
from leveret.amqp.link import GONE_EARLY, OPENED, Front, Link
from leveret.amqp.methods import (
    BASIC_ACK,
    BASIC_PUBLISH,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    CHANNEL_OPEN_OK,
    CONNECTION_CLOSE,
    CONNECTION_CLOSE_OK,
    CONNECTION_OPEN,
    CONNECTION_START_OK,
    CONNECTION_TUNE_OK,
    CONNECTION_UPDATE_SECRET,
    CONNECTION_UPDATE_SECRET_OK,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_OVERHEAD,
)
from leveret.amqp.reader import MALFORMED_UTF8, Reader
from leveret.amqp.reply_codes import CONNECTION_FORCED, Reply, reply_for
from leveret.amqp.writer import Writer
from leveret.auth import READ, Refusal, User
from leveret.engine.pulse import NEVER, earlier
from leveret.engine.queue import Queue
from leveret.engine.session import REFUSED
from leveret.engine.settling import close_session, end_consumer, end_consumers
from leveret.engine.totals import add_session
from leveret.engine.vhost import Vhost
from leveret.errors import (
    ChannelFault,
    FrameError,
    LeveretError,
    NotAllowed,
    UnexpectedFrame,
)

AWAIT_HEADER: Final = 0
STARTING: Final = 1
TUNING: Final = 2
OPENING: Final = 3
RUNNING: Final = 4
CLOSING: Final = 5
CLOSED: Final = 6
LOGGING_IN: Final = 7

STATE_NAMES: Final = (
    "starting",
    "starting",
    "tuning",
    "opening",
    "running",
    "closing",
    "closed",
    "starting",
)

_HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
_FRAME_HEAD: Final = 7  # type, channel, size
_STREAMED_BYTES: Final = 4096  # a body frame that is larger is taken as it comes
_EARLY_BYTES_MAX: Final = 65_536  # sent by a peer of whom it is not known yet who it is
_CHUNKS_MAX: Final = 64  # pieces of a frame that are kept apart: many small ones cost too much


class Connection(Link):
    """One AMQP connection, without its socket."""

    def __init__(self, front: Front, peer: str, is_loopback: bool) -> None:
        super().__init__(front, peer, is_loopback)
        now_ms = front.broker.turn.now_ms
        self.state: i64 = AWAIT_HEADER
        self.name = peer
        self.connected_ms: i64 = now_ms
        self.received_ms: i64 = now_ms
        self.received_bytes: i64 = 0
        self.received_count: i64 = 0  # reads
        self.heartbeat_ms: i64 = 0  # when the last heartbeat came; 0: none yet
        self.channels: dict[int, Channel] = {}
        self.is_released = False  # what it held is given back
        self._is_counted = False  # among the open connections of its user and vhost
        self.is_held = False  # the runtime does not read from it for now: silence proves nothing
        self.publishes: i64 = 0  # messages received so far
        self._sized: i64 = 0  # publishes whose sizes are counted
        self.publisher: Channel | None = None  # the channel that published last
        self._deadline_ms: i64 = now_ms + front.limits.handshake_ms  # until RUNNING, and of CLOSING
        self._expires_ms: i64 = NEVER  # when the credentials of the user end
        self._chunks: list[bytes] = []  # received, but not enough for a frame
        self._chunk_bytes: i64 = 0
        self.needed: i64 = 8  # bytes before it is worth looking
        self._frame_end: i64 = 0  # where to go on after an error
        # A body frame that is taken as it comes: what is left of it, its end octet included.
        self._body_left: i64 = 0
        self._body_channel: Channel | None = None  # None: it is passed over
        self._channel: Channel | None = None  # the one of the last frame
        self._number: i64 = 0  # of that frame
        self._method: i64 = 0  # the method being handled, for the close that an error sends
        front.broker.pulse.arm(self, self._deadline_ms)

    def note_published(self) -> None:
        """A read that brought publishes is over. Sizes are sampled by reads."""
        publisher = self.publisher
        if publisher is not None and publisher.content is not None:
            count = self.publishes - self._sized
            self._sized = self.publishes
            self.front.broker.turn.sizes.note(publisher.content.body_size, count)

    # Bytes in

    def feed(self, data: bytes) -> None:
        """Take received bytes, and handle every frame that is complete."""
        if self.state >= CLOSED:
            self._keep_early(data)
            return
        turn = self.front.broker.turn
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
                self._fail(error)
        if at >= 0 and self.state != CLOSED and at < len(data):
            self._chunks = [data[at:] if at > 0 else data]
            self._chunk_bytes = len(data) - at

    def _keep_early(self, data: bytes) -> None:
        """Keep what comes while the login is decided; after the end, nothing."""
        if self.state == CLOSED:
            return
        if not self._chunks:
            self._chunk_bytes = 0
        self._chunks.append(data)
        self._chunk_bytes += len(data)
        self.received_bytes += len(data)
        if self._chunk_bytes > _EARLY_BYTES_MAX:
            self._hang_up()

    def on_login(self, outcome: User | Refusal) -> None:
        if self.state != LOGGING_IN:  # the peer has gone, or the time is over
            return
        if on_login(self, outcome):
            self.state = TUNING
        else:
            self._hang_up_later()
        if self._chunks:
            data = b"".join(self._chunks)
            self._chunks = []
            self.received_bytes -= len(data)  # they are counted already
            self.feed(data)

    def _read_protocol_header(self, data: bytes) -> i64:
        """The first eight octets; where to go on, or -1."""
        if len(data) < len(PROTOCOL_HEADER):
            if not PROTOCOL_HEADER.startswith(data) and not PROTOCOL_HEADER_0_9.startswith(data):
                self._refuse_protocol()
                return -1
            self.needed = len(PROTOCOL_HEADER)
            return 0
        head = data[: len(PROTOCOL_HEADER)]
        if head != PROTOCOL_HEADER and head != PROTOCOL_HEADER_0_9:
            self._refuse_protocol()
            return -1
        self.state = STARTING
        send_start(self)
        return len(PROTOCOL_HEADER)

    def _refuse_protocol(self) -> None:
        """Tell the peer which protocol is spoken here, and hang up."""
        self.send_raw(PROTOCOL_HEADER)
        self.state = CLOSED
        self.drop = True

    def _read_frames(self, data: bytes, at: i64) -> i64:
        """Handle complete frames; where the incomplete rest starts."""
        end: i64 = len(data)
        if self.state == AWAIT_HEADER:
            return at
        if self._body_left != 0:
            at = self._read_body(data, at, end)
            if self._body_left != 0:
                return at
        while end - at >= _FRAME_HEAD:
            size = i64(read_i32_be(data, at + 3)) & 0xFFFFFFFF
            kind: i64 = data[at]
            self._frame_end = end
            self._method = 0
            if size > self.frame_max:
                self._number = 0
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
                self._number = 0
                raise bad_end(kind, data[start:stop], data[stop])
            at = stop + 1
            self._frame_end = at
            if kind == FRAME_METHOD and size < 4 and self.state != CLOSING:
                self._number = 0
                raise unknown_frame(kind, data[start:stop])
            channel = self._channel
            if channel is None or number != self._number:
                channel = self._find_channel(number)
            if channel is None or channel.is_closing:
                self._on_other_frame(kind, number, data[start:stop])
            elif kind == FRAME_METHOD:
                self._on_method(channel, data, start, stop)
            elif kind == FRAME_HEADER and channel.expects == HEADER:
                self._method = BASIC_PUBLISH
                channel.on_header(data[start:stop])
            elif kind == FRAME_BODY and channel.expects == BODY:
                self._method = BASIC_PUBLISH
                channel.on_body(data[start:stop], size)
            else:
                self._on_unexpected(channel, kind, data[start:stop])
            if self.state >= CLOSED:
                return end if self.state == CLOSED else at
        self.needed = _FRAME_HEAD
        return at

    def _begin_body(self, data: bytes, at: i64, size: i64) -> bool:
        """Whether a body frame that has not come as a whole can be taken as it comes.

        Where anything is unusual the frame is collected first, and handled as all others are.
        """
        number = i64(read_i16_be(data, at + 1)) & 0xFFFF
        channel = self._find_channel(number)
        if channel is None or channel.is_closing or self.state != RUNNING:
            return False
        if channel.expects != BODY or not _STREAMED_BYTES <= size <= channel.missing:
            return False
        self._body_left = size + 1
        self._body_channel = channel
        return True

    def _read_body(self, data: bytes, at: i64, end: i64) -> i64:
        """Take what has come of a body frame; where the next frame starts."""
        size = min(end - at, self._body_left - 1)
        self._body_left -= size
        channel = self._body_channel
        if channel is not None and (channel.is_closing or self.state != RUNNING):
            channel = None
        self._frame_end = at + size
        if size > 0 and channel is not None:
            self._method = BASIC_PUBLISH
            self._number = channel.number
            self._body_channel = None  # if it fails, the rest is passed over
            channel.keep_part(data if size == len(data) else data[at : at + size], size)
            self._body_channel = channel
        at += size
        if self._body_left == 1 and at < end:
            self._frame_end = end
            self._body_left = 0
            self._body_channel = None
            if data[at] != FRAME_END:
                self._number = 0
                raise bad_end(FRAME_BODY, b"", data[at])
            at += 1
            self._frame_end = at
            if channel is not None:
                channel.end_part()
        self.needed = self._body_left if self._body_left != 0 else _FRAME_HEAD
        return at

    def _find_channel(self, number: i64) -> Channel | None:
        self._number = number
        self._channel = self.channels.get(number)
        return self._channel

    def _on_method(self, channel: Channel, data: bytes, start: i64, stop: i64) -> None:
        """A method on an open channel."""
        method = i64(read_i32_be(data, start)) & 0xFFFFFFFF
        if channel.expects != METHOD:
            self._method = BASIC_PUBLISH
            raise expected_content(channel)
        self._method = method
        if method == BASIC_PUBLISH:
            self.publishes += 1
            self.publisher = channel
            channel.on_publish(data[start:stop])
        elif method == BASIC_ACK and stop - start == 13:
            channel.on_ack(read_i64_be(data, start + 4), (data[start + 12] & 1) != 0)
        elif method == CHANNEL_CLOSE:
            self._on_channel_close(channel, Reader(data[start:stop]))
        elif method == CHANNEL_OPEN:
            raise ChannelFault("second 'channel.open' seen")
        else:
            dispatch(channel, method, Reader(data[start:stop]))

    # Frames off the fast path

    def _on_unexpected(self, channel: Channel, kind: i64, payload: bytes) -> None:
        """A frame that is no method, where none or another was due."""
        if kind == FRAME_HEARTBEAT:
            self._on_heartbeat(channel.number, payload)
        if kind != FRAME_HEADER and kind != FRAME_BODY:
            self._number = 0
            raise unknown_frame(kind, payload)
        if channel.expects == METHOD:
            raise expected_method()
        self._method = BASIC_PUBLISH
        raise expected_content(channel)

    def _on_other_frame(self, kind: i64, number: i64, payload: bytes) -> None:
        """A frame on channel 0, on a channel that is not open, or on one that is closing."""
        if kind == FRAME_HEARTBEAT:
            self._on_heartbeat(number, payload)
        elif self.state == CLOSING:
            self._on_frame_while_closing(kind, number, payload)
        elif kind not in (FRAME_METHOD, FRAME_HEADER, FRAME_BODY):
            self._number = 0
            raise unknown_frame(kind, payload)
        elif number == 0 or self.state != RUNNING:
            self._on_connection_frame(kind, number, payload)
        elif number in self.channels:
            self._on_closing_channel_frame(self.channels[number], kind, payload)
        else:
            self._on_unopened_channel_frame(kind, number, payload)

    def _on_heartbeat(self, number: i64, payload: bytes) -> None:
        if payload:
            self._number = 0
            raise unknown_frame(FRAME_HEARTBEAT, payload)
        if number != 0:
            raise UnexpectedFrame("type 8, all octets = <<>>")
        self.heartbeat_ms = self.front.broker.turn.now_ms

    def _on_connection_frame(self, kind: i64, number: i64, payload: bytes) -> None:
        if kind != FRAME_METHOD or number != 0 or len(payload) < 4:
            raise expected_method()
        method = _method_of(payload)
        self._method = method
        reader = Reader(payload)
        if self.state == RUNNING and method == CONNECTION_CLOSE:
            self.note_end(f"closed by the peer: {_close_text(reader)}")
            self._release()
            self.send(0, Writer(CONNECTION_CLOSE_OK))
            self._hang_up()
        elif self.state == STARTING and method == CONNECTION_START_OK:
            self.state = LOGGING_IN
            on_start_ok(self, reader)
        elif self.state == TUNING and method == CONNECTION_TUNE_OK:
            on_tune_ok(self, reader)
            self.state = OPENING
        elif self.state == OPENING and method == CONNECTION_OPEN:
            on_open(self, reader)
            self._is_counted = True
            self.state = RUNNING
            self.front.broker.turn.churn.connections_opened += 1
            if self.front.broker.turn.listens:
                tell_opened(self)
            self._start_heartbeat()
            self._watch_expiry()
            self.front.on_event(OPENED, self, "")
        elif self.state == RUNNING and method == CONNECTION_UPDATE_SECRET:
            self._on_update_secret(reader)
        else:
            state = STATE_NAMES[self.state]
            raise ChannelFault(f"unexpected method in connection state {state}")

    def _on_frame_while_closing(self, kind: i64, number: i64, payload: bytes) -> None:
        """Only the answer to our close counts, and a close that crossed it."""
        if kind != FRAME_METHOD or number != 0 or len(payload) < 4:
            return
        method = _method_of(payload)
        if method == CONNECTION_CLOSE:
            self.send(0, Writer(CONNECTION_CLOSE_OK))
        if method in (CONNECTION_CLOSE, CONNECTION_CLOSE_OK):
            self._hang_up()

    def _on_closing_channel_frame(self, channel: Channel, kind: i64, payload: bytes) -> None:
        if kind != FRAME_METHOD:
            return
        method = _method_of(payload)
        if method == CHANNEL_OPEN:
            self._method = method
            raise ChannelFault("second 'channel.open' seen")
        if method == CHANNEL_CLOSE:  # the two closes have crossed: the answer to ours follows
            self.send(channel.number, Writer(CHANNEL_CLOSE_OK))
        elif method == CHANNEL_CLOSE_OK:
            self._remove_channel(channel)

    def _on_unopened_channel_frame(self, kind: i64, number: i64, payload: bytes) -> None:
        if kind != FRAME_METHOD:
            raise expected_method()
        self._method = _method_of(payload)
        if self._method != CHANNEL_OPEN:
            raise ChannelFault("expected 'channel.open'")
        if len(self.channels) >= self.channel_max:
            self._number = 0
            self._method = 0
            raise NotAllowed(
                f"number of channels opened ({len(self.channels)}) has reached the "
                f"negotiated channel_max ({self.channel_max})"
            )
        reader = Reader(payload)
        reader.short_string()
        reader.finish()
        self._count_channel()
        self.channels[number] = Channel(self, number)
        self.front.broker.turn.churn.channels_opened += 1
        if self.front.broker.turn.listens:
            tell_channel(self, number, "channel.created")
        self._channel = None
        self._number = 0
        self.send(number, Writer(CHANNEL_OPEN_OK).long(0))

    def _count_channel(self) -> None:
        user = self.user
        assert user is not None
        try:
            self.front.quotas.open_channel(user.name)
        except NotAllowed:
            self._number = 0
            self._method = 0
            raise

    def _on_update_secret(self, reader: Reader) -> None:
        """The peer renews its credentials: the same user, who may be allowed less from now on."""
        secret = reader.long_string().decode("utf-8", "replace")
        reader.short_string()  # the reason, for people
        reader.finish()
        user = self.user
        vhost = self.vhost
        assert user is not None
        assert vhost is not None
        renewed = self.front.authority.renew(user, secret)
        if renewed is None:
            raise NotAllowed("New secret was refused by one of the backends")
        if not renewed.may_open(vhost.name):
            raise NotAllowed(f"access to vhost '{vhost.name}' refused for user '{renewed.name}'")
        self.user = renewed
        self._watch_expiry()
        self.access_changed()
        self.send(0, Writer(CONNECTION_UPDATE_SECRET_OK))

    def access_changed(self) -> None:
        """What the user may do has changed: nothing that was allowed before counts any more."""
        user = self.user
        assert user is not None
        slots = self.front.broker.slots
        for channel in self.channels.values():
            channel.forget_routes()
            for consumer in list(channel.consumers.values()):
                queue = slots.queue(consumer.queue)
                if not user.may(READ, channel.vhost.name, "queue", queue.name):
                    end_consumer(slots, channel, consumer, REFUSED)

    # Closing

    def _fail(self, error: LeveretError) -> None:
        """Turn an error into the close that it means."""
        if self.state == CLOSING or self.state == CLOSED:
            return
        reply = reply_for(error)
        method = self._method
        if isinstance(error, FrameError) and str(error) == MALFORMED_UTF8:
            method = 0  # RabbitMQ: found while decoding, before it knows which method it is
        channel = self.channels.get(self._number)
        if reply.is_channel_level and channel is not None:
            self._close_channel(channel, reply, method)
        elif self.state == RUNNING or self.state == OPENING:
            self._close(reply, method)
        else:
            self.note_end(reply.text)
            self._hang_up_later()

    def fail_channel(self, channel: i64, error: LeveretError) -> None:
        found = self.channels.get(channel)
        if found is not None and not found.is_closing:
            self._close_channel(found, reply_for(error), 0)

    def _close_channel(self, channel: Channel, reply: Reply, method: i64) -> None:
        """Tell the peer that a channel is closed, and wait for its answer."""
        if channel.outbox:
            channel.send_deliveries()
        self._end_channel(channel)
        channel.is_closing = True
        self.send(channel.number, close_method(CHANNEL_CLOSE, reply, method))

    def _close(self, reply: Reply, method: i64) -> None:
        """Tell the peer that the connection is closed, and wait for its answer."""
        self.note_end(f"{reply.code} {reply.text}")
        self._release()
        self.send(0, close_method(CONNECTION_CLOSE, reply, method))
        self.state = CLOSING
        self._set_deadline(self.front.limits.close_ms)

    def _hang_up_later(self) -> None:
        """Close the socket after a while: whoever guesses passwords must wait."""
        self.state = CLOSING
        self._set_deadline(self.front.limits.refusal_ms)

    def _hang_up(self) -> None:
        """Close the socket when everything is sent."""
        self.state = CLOSED
        self.drop = True
        self.mark()

    def force_close(self, text: str) -> None:
        """The broker closes the connection: it shuts down, or an operator wants it."""
        if self.state == RUNNING:
            self._close(Reply(CONNECTION_FORCED, f"CONNECTION_FORCED - {text}", False), 0)
        elif self.state != CLOSING:
            self._hang_up()

    def fail_internally(self) -> None:
        """Something broke while handling this peer's input: end this connection, and only it."""
        if self.state == RUNNING:
            self._close(Reply(541, "INTERNAL_ERROR", False), self._method)
        else:
            self._hang_up()

    def lost(self) -> None:
        """The socket is gone."""
        self._release()
        is_opened = self.vhost is not None
        self.front.on_event(CONNECTION_CLOSED if is_opened else GONE_EARLY, self, self.end_reason)
        self.state = CLOSED
        self.front.broker.pulse.disarm(self)

    def _on_channel_close(self, channel: Channel, reader: Reader) -> None:
        reader.short()
        reader.short_string()
        reader.long()
        reader.finish()
        self._end_channel(channel)
        self._remove_channel(channel)
        self.send(channel.number, Writer(CHANNEL_CLOSE_OK))

    def _end_channel(self, channel: Channel) -> None:
        """Give back what a channel holds."""
        if not channel.closed:
            channel.forget_unfinished()
            if channel.reply_consumer is not None:
                channel.vhost.replies.pop(channel.reply_name, None)
            self.front.broker.turn.churn.channels_closed += 1
            add_session(channel.vhost.gone, channel)
            close_session(self.front.broker.slots, channel)
            if self.front.broker.turn.listens:
                tell_channel(self, channel.number, "channel.closed")
            user = self.user
            assert user is not None
            self.front.quotas.close_channel(user.name)

    def _remove_channel(self, channel: Channel) -> None:
        self.channels.pop(channel.number, None)
        self.publisher = None
        self._channel = None
        self._number = 0

    def _release(self) -> None:
        """Give back everything that the connection holds."""
        # All its consumers go first: none may take what another channel gives back.
        for channel in self.channels.values():
            end_consumers(self.front.broker.slots, channel)
        for channel in list(self.channels.values()):
            self._end_channel(channel)
        self.channels.clear()
        self.publisher = None
        self._channel = None
        self._number = 0
        vhost = self.vhost
        if vhost is not None and not self.is_released:
            self._keep_counts(vhost)
        if vhost is not None:
            for target in list(self.exclusive_queues.values()):
                assert isinstance(target, Queue)
                vhost.remove_queue(target)
            self._uncount(vhost.name)

    def _uncount(self, vhost: str) -> None:
        user = self.user
        assert user is not None
        if self._is_counted:
            self._is_counted = False
            if self.front.broker.turn.listens:
                tell_closed(self)
            self.front.quotas.close_connection(user.name, vhost)

    def _keep_counts(self, vhost: Vhost) -> None:
        """The totals of the vhost keep what the connection has counted."""
        self.is_released = True
        self.front.broker.turn.churn.connections_closed += 1
        vhost.gone.received_bytes += self.received_bytes
        vhost.gone.sent_bytes += self.sent_bytes

    # Time

    def _set_deadline(self, wait_ms: i64) -> None:
        self._deadline_ms = self.front.broker.turn.now_ms + wait_ms
        self.front.broker.pulse.arm(self, self._deadline_ms)

    def _start_heartbeat(self) -> None:
        self._deadline_ms = NEVER
        if self.heartbeat_s != 0:
            now_ms = self.front.broker.turn.now_ms
            self.front.broker.pulse.arm(self, now_ms + self.heartbeat_s * 500)

    def on_due(self, now_ms: i64) -> i64:
        """A deadline has passed, or a heartbeat is due."""
        if self.state == CLOSED:
            return NEVER
        if self._deadline_ms != NEVER:
            if now_ms < self._deadline_ms:
                return self._deadline_ms
            self.note_end("the handshake took too long")
            self._hang_up()
            return NEVER
        if self._expires_ms != NEVER and now_ms >= self._expires_ms:
            self.force_close("credential expired")
            return self._deadline_ms
        due_ms = self._beat(now_ms) if self.heartbeat_s != 0 else NEVER
        return earlier(due_ms, self._expires_ms)

    def _watch_expiry(self) -> None:
        """Credentials that end by themselves end the connection, unless they are renewed."""
        assert self.user is not None
        self._expires_ms = self.user.expires_ms
        if self._expires_ms != NEVER:
            self.front.broker.pulse.arm(self, self._expires_ms)

    def _beat(self, now_ms: i64) -> i64:
        """RabbitMQ: a heartbeat every half interval, and after three silent ones the end."""
        half_ms = self.heartbeat_s * 500
        if self.is_held:
            self.received_ms = now_ms
        if now_ms - self.received_ms >= half_ms * 6:
            self.note_end(f"no heartbeat for {self.heartbeat_s * 3} s")
            self.is_silent = True
            self._hang_up()
            return NEVER
        if now_ms - self.sent_ms >= half_ms:
            self.send_raw(_HEARTBEAT)
            self.sent_ms = now_ms
        return min(self.sent_ms + half_ms, self.received_ms + half_ms * 6)


def _close_text(reader: Reader) -> str:
    """Code and text of a close that a peer sent; what cannot be read is left out."""
    try:
        return f"{reader.short()} {reader.short_string()}"
    except LeveretError:
        return ""


def _method_of(payload: bytes) -> i64:
    return i64(read_i32_be(payload, 0)) & 0xFFFFFFFF
