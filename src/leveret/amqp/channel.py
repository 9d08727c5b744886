"""A channel: receives content, sends deliveries and confirms, and keeps the transaction.

`expects` says which frame of a publish comes next:

    METHOD ──basic.publish──► HEADER ──size 0──► METHOD
                                └──size > 0──► BODY ──complete──► METHOD

This module handles the busy path: `basic.publish` with its header and body, and `basic.ack`.
`rare_frames` opens channels, `closing` closes them, and `handlers` has all other methods.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from leveret.amqp.connection_base import ConnectionBase
from leveret.amqp.methods import (
    BASIC_ACK,
    BASIC_CANCEL,
    BASIC_CLASS,
    BASIC_NACK,
    BASIC_RETURN,
)
from leveret.amqp.reader import MethodReader
from leveret.amqp.reply_codes import NO_ROUTE
from leveret.amqp.writer import MethodWriter, signed16
from leveret.auth import WRITE
from leveret.engine.commands.content import Content
from leveret.engine.commands.direct_reply import REPLY_NAME
from leveret.engine.commands.publishing import Route, publish, require_public
from leveret.engine.commands.settling import SETTLED_MAX, ack, reject, require_unacked, take
from leveret.engine.message import Message
from leveret.engine.turns.outcomes import IN_LOG, KEYS_FULL, QUEUE_FULL, UNROUTED
from leveret.engine.turns.session import TIMED_OUT, Consumer, Session
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import (
    NotAllowedError,
    PreconditionFailedError,
    UnexpectedFrameError,
    UnsupportedError,
)
from leveret.wire.properties import decode_properties, encode_header
from leveret.wire.scan import WRAPPING_MAX

METHOD: Final = 0
HEADER: Final = 1
BODY: Final = 2

# Distinct publish methods whose routes the channels of a connection cache, about 400 bytes each. A
# publisher with more keys than this empties the cache; finding a route again costs 3 µs.
ROUTES_MAX: Final = 16_384

# Body frames of one message that are kept as a list before they are joined in a buffer.
PARTS_MAX: Final = 64

# Memory that an entry of a transaction costs besides its body.
ENTRY_BYTES: Final = 256

_MANDATORY: Final = 1
_IMMEDIATE: Final = 2


class PendingPublish:
    """A publish that waits for its transaction to commit."""

    def __init__(self, route: Route, content: Content, body: bytes) -> None:
        self.route = route
        self.content = content
        self.body = body


class PendingSettlement:
    """An ack or reject, with its messages, that waits for its transaction to commit."""

    def __init__(self, messages: list[Message], is_ack: bool, requeue: bool, failed: bool) -> None:
        self.messages = messages
        self.is_ack = is_ack
        self.requeue = requeue
        self.failed = failed


class Channel(Session):
    """One channel of a connection: an engine session that speaks AMQP."""

    def __init__(self, connection: ConnectionBase, number: i64) -> None:
        super().__init__(connection, connection.front.broker.turn)
        vhost = connection.vhost
        assert vhost is not None
        self.connection = connection
        self.vhost: Vhost = vhost
        self.number = number
        self.is_relayed = connection.is_relayed
        self.is_closing = (
            False  # we sent channel.close; everything except close and close-ok is ignored
        )
        self.last_queue = ""  # the last declared queue: an empty queue name means this one
        # Incoming content
        self.expects: i64 = METHOD
        self.publish_method: bytes = b""  # the last basic.publish, as received
        self.route: Route | None = None
        self.routes: dict[bytes, Route] = {}
        self.writable: str | None = None  # the exchange of the last successful permission check
        self.header: bytes = b""  # the last content header, as received
        self.content: Content | None = None
        self.parts: list[bytes] = []
        self.pile = BytesWriter()  # earlier parts, joined; used when there are many
        self.missing: i64 = 0  # body bytes still to come
        self.held_bytes: i64 = 0  # this channel's share of the connection's `unfinished_bytes`
        # Direct replies
        self.reply_consumer: Consumer | None = None
        self.reply_name = ""
        # A multiple ack or reject that takes several turns
        self.settles_through: i64 = 0  # its delivery tag
        self.settles_by_ack = False
        # Transaction
        self.transactional = False
        self.tx_publishes: list[PendingPublish] = []
        self.tx_settles: list[PendingSettlement] = []
        self.tx_steps: i64 = 0  # publishes and settled messages of the transaction

    def on_publish(self, method: bytes) -> None:
        """Handle `basic.publish`; its content follows."""
        if method != self.publish_method:
            route = self.routes.get(method)
            if route is None:
                route = self._make_route(method)
            self.route = route
            self.publish_method = method
        self.expects = HEADER

    def _make_route(self, method: bytes) -> Route:
        reader = MethodReader(method)
        reader.short()
        name = reader.short_string()
        key = reader.short_string()
        flags = reader.octet()
        reader.finish()
        if flags & _IMMEDIATE:
            raise UnsupportedError("immediate=true")
        connection = self.connection
        if name != self.writable:
            connection.require(WRITE, "exchange", name)
            self.writable = name
        exchange = self.vhost.exchange(name)
        require_public(self.vhost, exchange)
        connection.require_topic(WRITE, exchange, key)
        if connection.routes >= ROUTES_MAX:
            self._drop_routes()
        route = Route(exchange, key, mandatory=(flags & _MANDATORY) != 0)
        self.routes[method] = route
        connection.routes += 1
        return route

    def _drop_routes(self) -> None:
        self.connection.routes -= len(self.routes)
        self.routes.clear()

    def forget_routes(self) -> None:
        """Drop cached routes and permission checks: the user's permissions have changed."""
        self._drop_routes()
        self.writable = None
        self.publish_method = b""
        self.header = b""

    def on_header(self, header: bytes) -> None:
        """Handle a content header; a body follows unless its size is 0."""
        content = self.content
        if content is None or header != self.header:
            content = self._read_content(header)
            self.header = header
            self.content = content
        if content.body_size == 0:
            self.expects = METHOD
            self._publish(b"")
        else:
            self.missing = content.body_size
            self.expects = BODY

    def _read_content(self, header: bytes) -> Content:
        if len(header) >= 2 and (header[0] != 0 or header[1] != BASIC_CLASS):
            raise UnexpectedFrameError(
                f"expected content header for class {BASIC_CLASS}, "
                f"got one for class {header[0] << 8 | header[1]} instead"
            )
        if len(header) >= 4 and (header[2] != 0 or header[3] != 0):  # the weight, always 0
            raise UnexpectedFrameError(
                f"expected content header for class {BASIC_CLASS}, "
                "got non content header frame instead"
            )
        self.content = None
        content = Content(header, WRAPPING_MAX)
        most = self.connection.front.limits.message_bytes_max
        if content.body_size > most:
            raise PreconditionFailedError(
                f"message size {content.body_size} is larger than configured max size {most}"
            )
        if content.user_id is not None:
            self._check_user(content.user_id)
        if content.reply_to == REPLY_NAME:
            self._fill_in_reply(content)
        return content

    def _check_user(self, claimed: str) -> None:
        user = self.connection.user
        assert user is not None
        if not user.may_claim(claimed):
            raise PreconditionFailedError(
                f"user_id property set to '{claimed}' but authenticated user was '{user.identity}'"
            )

    def _fill_in_reply(self, content: Content) -> None:
        """Direct reply-to: replace the pseudo queue by the private reply name of this channel."""
        if self.reply_consumer is None:
            raise PreconditionFailedError("fast reply consumer does not exist")
        properties = decode_properties(content.header)
        properties.reply_to = self.reply_name
        content.header = encode_header(properties, content.body_size)

    def _body_size(self) -> i64:
        content = self.content
        assert content is not None
        return content.body_size

    def on_body(self, data: bytes, size: i64) -> None:
        """Handle a body frame with the whole body or a part of it."""
        if size == self.missing and size == self._body_size():
            self.expects = METHOD
            self._publish(data)
            return
        if size > self.missing:
            raise UnexpectedFrameError("expected content body, got non content body frame instead")
        self.keep_part(data, size)
        self.end_part()

    def end_part(self) -> None:
        """Publish if the body is complete, after the end of a body frame."""
        if self.missing == 0:
            self.expects = METHOD
            self._publish(self._whole_body())

    def keep_part(self, data: bytes, size: i64) -> None:
        """Keep a part of a body. Many small parts are joined, so that each costs only its bytes."""
        self._hold_bytes(size)
        self.missing -= size
        self.parts.append(data)
        if len(self.parts) >= PARTS_MAX:
            for part in self.parts:
                self.pile.write(part)
            self.parts.clear()

    def _hold_bytes(self, size: i64) -> None:
        """Count bytes that the broker keeps for the peer before they are a message in a queue."""
        connection = self.connection
        most = connection.front.limits.unfinished_bytes_max
        if connection.unfinished_bytes + size > most:
            raise NotAllowedError(
                f"unfinished messages and transactions of over {most} bytes on one connection"
            )
        connection.count_unfinished(size)
        self.held_bytes += size

    def _whole_body(self) -> bytes:
        body = b"".join(self.parts)
        self.parts = []
        if len(self.pile) != 0:
            self.pile.write(body)
            body = self.pile.getvalue()
            self.pile = BytesWriter()
        self.connection.count_unfinished(-len(body))
        self.held_bytes -= len(body)
        return body

    def forget_unfinished(self) -> None:
        """Drop the incomplete message and the open transaction."""
        self.parts = []
        self.pile = BytesWriter()
        self.expects = METHOD
        self.roll_back()

    def undecided(self) -> list[Message]:
        return [message for settle in self.tx_settles for message in settle.messages]

    def roll_back(self) -> None:
        """Drop the open transaction. Deliveries that it settled are unsettled again."""
        for settle in self.tx_settles:
            for message in settle.messages:
                self.unacked.restore(message)
        self.end_transaction()

    def end_transaction(self) -> None:
        """Begin an empty transaction."""
        self.tx_publishes = []
        self.tx_settles = []
        self.tx_steps = 0
        self.connection.count_unfinished(-self.held_bytes)
        self.held_bytes = 0

    def _publish(self, body: bytes) -> None:
        route = self.route
        content = self.content
        assert route is not None
        assert content is not None
        if content.extra_keys:
            for key in content.extra_keys:
                self.connection.require_topic(WRITE, route.exchange, key)
        if self.transactional:
            self.vhost.exchange(route.exchange.name)
            self._hold_bytes(len(body) + ENTRY_BYTES)
            self.tx_publishes.append(PendingPublish(route, content, body))
            self.tx_steps += 1
            self.require_steps(self.tx_steps)
        else:
            self.publish_now(route, content, body)

    def publish_now(self, route: Route, content: Content, body: bytes) -> bool:
        """Publish, return an unroutable message, note the confirm. False if a queue refused.

        Raise PreconditionFailedError if nothing else tells that a key cannot be remembered.
        """
        route.exchange.published_in += 1
        self.published += 1
        result = publish(self.vhost, route, content, body)
        if result == UNROUTED:
            self.return_unrouted(route, content, body)
        if self.confirming:
            self.publish_seq += 1
            if result & QUEUE_FULL:
                self.refused.append(self.publish_seq)
            if result & IN_LOG:
                self._wait_for_log()
            if not self.in_confirms:
                self.turn.note_confirm(self)
        elif result & KEYS_FULL and not self.transactional:
            raise PreconditionFailedError(self.vhost.key_room.refusal())
        return result & QUEUE_FULL == 0

    def _wait_for_log(self) -> None:
        """Delay the confirm of the last publish until the log is synced."""
        journal = self.turn.journal
        assert journal is not None
        journal.must_sync = True
        self.unsynced_seq = self.publish_seq

    def return_unrouted(self, route: Route, content: Content, body: bytes) -> None:
        """Return an unroutable message to the publisher if it was published as mandatory."""
        if not route.mandatory:
            self.unroutable += 1
            return
        self.returned += 1
        method = MethodWriter(BASIC_RETURN).short(NO_ROUTE).short_string("NO_ROUTE")
        method.short_string(route.address.exchange).short_string(route.address.routing_key)
        self.connection.send(self.number, method)
        self.connection.send_content(signed16(self.number), content.header, body)

    def on_ack(self, tag: i64, multiple: bool) -> None:
        if self.unsent:  # a peer that guesses tags may ack a delivery that is not sent yet
            self.send_deliveries()
        if self.transactional:
            self.settle_later(tag, multiple, is_ack=True, requeue=False, failed=False)
        elif multiple and self.unacked.count > SETTLED_MAX:
            self.settle_in_parts(tag, is_ack=True)
        else:
            ack(self.connection.front.broker.slots, self, tag, multiple=multiple)

    def settle_in_parts(self, tag: i64, is_ack: bool) -> None:
        """Ack or drop many messages in several turns. Further input of the connection waits."""
        if tag != 0:
            require_unacked(self, tag)
        self.settles_through = tag if tag != 0 else self.unacked.last_tag()
        self.settles_by_ack = is_ack
        self.connection.settling = self
        self.settle_part()

    def settle_part(self) -> None:
        """Settle as many messages as fill a turn. The last part ends `settling`."""
        connection = self.connection
        tag = self.unacked.tag_within(self.settles_through, SETTLED_MAX)
        if tag == self.settles_through:
            connection.settling = None
        slots = connection.front.broker.slots
        if self.settles_by_ack:
            ack(slots, self, tag, multiple=True)
        else:
            reject(slots, self, tag, multiple=True, requeue=False, failed=False)
        connection.has_rest = connection.settling is not None

    def settle_later(
        self, tag: i64, multiple: bool, is_ack: bool, requeue: bool, failed: bool
    ) -> None:
        """Keep an ack or reject until the commit. Its messages cannot be settled again."""
        self._hold_bytes(ENTRY_BYTES)
        messages = take(self, tag, multiple)
        self.tx_settles.append(PendingSettlement(messages, is_ack, requeue, failed))
        self.tx_steps += len(messages)
        self.require_steps(self.tx_steps)

    def require_steps(self, steps: i64) -> None:
        """Raise PreconditionFailedError if a commit of so many steps would take too long.

        A commit is one turn, because a crash must find all of it or nothing.
        """
        most = self.connection.front.limits.transaction_steps_max
        if steps > most:
            raise PreconditionFailedError(
                f"transaction of over {most} steps (publishes, their copies in queues, and settled "
                "messages): commit more often, or raise transaction_steps_max"
            )

    def reply(self, method: MethodWriter) -> None:
        """Answer a method, after the deliveries that were made before it."""
        if self.unsent:
            self.send_deliveries()
        self.connection.send(self.number, method)

    def send_deliveries(self) -> None:
        unsent = self.unsent
        self.unsent = []
        if self.turn.traced != 0:
            self.show(unsent)
        connection = self.connection
        number = self.number
        for message in unsent:
            consumer = message.holder
            assert isinstance(consumer, Consumer)
            connection.send_delivery(number, consumer, message)
            if consumer.no_ack:
                message.holder = None

    def show(self, messages: list[Message]) -> None:
        """Tell the tracer of delivered messages."""
        tracer = self.turn.tracer
        assert tracer is not None
        tracer.on_deliveries(self.outlet, self.number, messages)

    def send_confirm(self, first: i64, last: i64, is_taken: bool) -> None:
        method = MethodWriter(BASIC_ACK if is_taken else BASIC_NACK)
        self.connection.send(self.number, method.longlong(last).octet(1 if last > first else 0))

    def on_send_fault(self) -> None:
        self.connection.fail_internally()

    def send_ended(self, consumer: Consumer) -> None:
        if self.closed:
            return
        if self.connection.wants_cancel_notify:
            method = MethodWriter(BASIC_CANCEL).short_string(consumer.tag).octet(1)
            self.connection.send(self.number, method)
        elif consumer.ended == TIMED_OUT:
            self.connection.fail_channel(
                self.number,
                PreconditionFailedError(
                    f"delivery acknowledgement on channel {self.number} timed out. "
                    f"Timeout value used: {consumer.timeout_ms} ms. This timeout value can be "
                    "configured, see consumers doc guide to learn more"
                ),
            )
