"""Publishing: from an address to the queues that take a copy.

A `Route` is what one `basic.publish` method means. Fronts keep one for each distinct method they
receive; it remembers the queues while the vhost's definitions stay as they are and the exchange
routes by the key alone. Everything else (CC and BCC, headers exchanges, delays, deduplication) is
routed anew for each message.
"""

from typing import Final
from zlib import crc32

from mypy_extensions import i64

from leveret.engine.commands.content import Content
from leveret.engine.commands.dead_letter import is_cycle
from leveret.engine.deduplication.deduplication import NO_KEY, Deduplication, key_of
from leveret.engine.exchanges.exchange import Exchange, Headers
from leveret.engine.history.life_events import DUPLICATE, HELD, PUBLISHED, RETURNED, UNROUTABLE
from leveret.engine.history.life_events import ROUTED as WAS_ROUTED
from leveret.engine.message import Address, Message
from leveret.engine.queues.queue import Queue
from leveret.engine.target import Target
from leveret.engine.turns.loss_counts import UNREAD_REPLY
from leveret.engine.turns.session import DELIVERY_BYTES
from leveret.engine.turns.turn import Turn
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import AccessRefusedError
from leveret.wire.scan import LONGSTR
from leveret.wire.tables import Field, Table

UNROUTED: Final = 0
ROUTED: Final = 1
REFUSED: Final = 2  # a queue that it was routed to is full and said no
CYCLED: Final = 3  # a dead letter that would only come back to where it died

# The name that stands for a property instead of a header in `x-deduplication`.
MESSAGE_ID: Final = "message_id"

# Direct reply-to: this name, a dot and a token address a session instead of a queue.
REPLY_NAME: Final = "amq.rabbitmq.reply-to"
REPLY_PREFIX: Final = "amq.rabbitmq.reply-to."
# Replies that a peer may leave unread before further ones are dropped.
REPLY_OVERDRAFT_BYTES: Final = 16_777_216


def reply_name(token: str) -> str:
    """The name of a requester: its token, and a sum that tells it from a made-up one."""
    return f"{REPLY_PREFIX}{token}.{crc32(token.encode()):08x}"


def is_reply_name(name: str) -> bool:
    """Whether a name was once given by `reply_name`."""
    token, _, _ = name.removeprefix(REPLY_PREFIX).rpartition(".")
    return name == reply_name(token)


class Route:
    """What one `basic.publish` method means in a vhost."""

    def __init__(self, exchange: Exchange, routing_key: str, mandatory: bool) -> None:
        self.exchange = exchange
        self.address = Address(exchange.name, routing_key)
        self.mandatory = mandatory
        self.version: i64 = 0  # of the vhost when `queues` was found
        self.queues: list[Queue] = []
        self.fixed = False  # `queues` serves for every plain message
        self.is_reply = not exchange.name and routing_key.startswith(REPLY_PREFIX)


def publish(vhost: Vhost, route: Route, content: Content, body: bytes) -> i64:
    """Put a copy into every queue that the message is routed to."""
    if route.version != vhost.version:
        _resolve(vhost, route)
    if content.extra_keys or content.delay_ms != 0 or not route.fixed:
        return _publish_anew(vhost, route, content, body)
    queues = route.queues
    if not queues:
        return UNROUTED
    route.exchange.published_out += len(queues)
    result: i64 = ROUTED
    for queue in queues:
        if not queue.push(
            route.address,
            content.header,
            body,
            content.ttl_ms,
            content.priority,
            content.flags,
            0,
        ):
            result = REFUSED
    return result


def require_public(vhost: Vhost, exchange: Exchange) -> None:
    """Raise where clients may not publish: only bindings lead to an internal exchange."""
    if exchange.internal:
        raise AccessRefusedError(
            f"cannot publish to internal exchange '{exchange.name}' in vhost '{vhost.name}'"
        )


def _resolve(vhost: Vhost, route: Route) -> None:
    """Find the queues once; they serve for all plain messages where the key alone decides."""
    exchange = vhost.exchange(route.exchange.name)
    require_public(vhost, exchange)
    route.exchange = exchange
    route.version = vhost.version
    found: list[Target] = []
    vhost.router.route(route.exchange, route.address.keys, Headers(b"", 0, 0), found)
    queues = queues_of(found)
    route.fixed = vhost.router.key_only and not route.is_reply and not vhost.tracing
    for target in [exchange, *queues]:
        if target.deduplication is not None:
            route.fixed = False
    route.queues = queues if route.fixed else []


def _publish_anew(vhost: Vhost, route: Route, content: Content, body: bytes) -> i64:
    address = route.address
    if route.is_reply:
        return _reply(vhost, address, content, body)
    if content.extra_keys:
        address = content.address(address.exchange, address.routing_key)
    if vhost.tracing:
        vhost.routed = []
    if route.exchange.deduplication is not None:
        result = _publish_once(vhost, route, address, content, body)
    else:
        result = spread(vhost, route.exchange, address, content, body, [], True, route.mandatory)
    if vhost.tracing:
        tracer = vhost.turn.tracer
        assert tracer is not None
        tracer.on_publish(vhost.name, address, content.header, body, vhost.routed)
    return result


def _publish_once(
    vhost: Vhost, route: Route, address: Address, content: Content, body: bytes
) -> i64:
    """Route a message unless the exchange knows it. What is not taken may come again."""
    exchange = route.exchange
    deduplication = exchange.deduplication
    assert deduplication is not None
    key = _key(deduplication, content)
    if _is_duplicate(vhost.turn, exchange, deduplication, key):
        return ROUTED
    result = spread(vhost, exchange, address, content, body, [], True, route.mandatory)
    if result == ROUTED:
        _keep_key(vhost.turn, deduplication, key, vhost.turn.logged)
    return result


def _push_once(
    queue: Queue, address: Address, header: bytes, content: Content, body: bytes, delay_ms: i64
) -> bool:
    """Push a message unless the queue knows it: a duplicate counts as taken."""
    turn = queue.turn
    deduplication = queue.deduplication
    assert deduplication is not None
    key = _key(deduplication, content)
    if _is_duplicate(turn, queue, deduplication, key):
        if queue.chronicle is not None:
            number = turn.publish_id
            queue.chronicle.note(DUPLICATE, number, number, queue.name, "", "", address)
        return True
    was_logged = turn.logged
    turn.logged = False
    is_taken = queue.push(
        address, header, body, content.ttl_ms, content.priority, content.flags, delay_ms
    )
    if is_taken:
        _keep_key(turn, deduplication, key, turn.logged)
    turn.logged = turn.logged or was_logged
    return is_taken


def _key(deduplication: Deduplication, content: Content) -> bytes:
    name = deduplication.header
    if name != MESSAGE_ID:
        return key_of(content.headers.field(name))
    text = content.headers.properties().message_id
    return key_of(Field(LONGSTR, text)) if text is not None else NO_KEY


def _is_duplicate(turn: Turn, target: Target, deduplication: Deduplication, key: bytes) -> bool:
    if not key:
        return False
    added_ms = deduplication.added_ms(key, turn.now_ms)
    if added_ms == 0:
        return False
    target.deduplicated += 1
    if added_ms > 0:
        turn.logged = True  # confirmed when the first one is on disk: its block may be on its way
    return True


def _keep_key(turn: Turn, deduplication: Deduplication, key: bytes, is_logged: bool) -> None:
    if key:
        deduplication.remember(key, turn.now_ms, turn.journal if is_logged else None)


def spread(
    vhost: Vhost,
    exchange: Exchange,
    address: Address,
    content: Content,
    body: bytes,
    deaths: list[Table],
    is_new: bool,
    mandatory: bool,
) -> i64:
    """Route a message by its headers and all its keys; hold it first if the exchange delays.

    `deaths` are those of a dead-lettered message that must not run in a cycle. `is_new` says that a
    client publishes it: what the broker moves by itself is no duplicate, whatever its key.
    """
    if content.delay_ms != 0 and exchange.is_delayed:
        _hold(vhost, exchange, address, content, body)
        return ROUTED
    found: list[Target] = []
    is_routed = vhost.router.route(exchange, address.keys, content.headers, found)
    queues = queues_of(found)
    if deaths:
        queues = [queue for queue in queues if not is_cycle(deaths, queue.name)]
    if vhost.router.remembering:
        _remember(vhost, address, content.header, body, queues, mandatory)
    if not is_routed:
        vhost.turn.publish_id = 0
        return UNROUTED
    if vhost.tracing:
        vhost.routed = [queue.name for queue in queues]
    for held in vhost.router.held:
        _hold(vhost, held, address, content, body)
    result: i64 = ROUTED if queues or not deaths or vhost.router.held else CYCLED
    exchange.published_out += len(queues)
    if queues:
        vhost.turn.pushed = queues[0]
    for queue in queues:
        delay_ms: i64 = content.delay_ms if queue.settings.delayed else 0
        header = content.after_delay() if delay_ms != 0 else content.header
        if is_new and queue.deduplication is not None:
            is_taken = _push_once(queue, address, header, content, body, delay_ms)
        else:
            is_taken = queue.push(
                address, header, body, content.ttl_ms, content.priority, content.flags, delay_ms
            )
        if not is_taken:
            result = REFUSED
    vhost.turn.publish_id = 0
    return result


def _remember(
    vhost: Vhost,
    address: Address,
    header: bytes,
    body: bytes,
    queues: list[Queue],
    mandatory: bool,
) -> None:
    """Tell the exchanges that remember what passes through them, and where it goes."""
    turn = vhost.turn
    for exchange in vhost.router.remembering:
        chronicle = exchange.chronicle
        assert chronicle is not None
        before = turn.publish_id  # of the exchange that passed it on, if that remembers too
        number = chronicle.note_content(
            PUBLISHED, 0, before, turn.cause_id, "", address, header, body
        )
        turn.publish_id = number
        for queue in queues:
            chronicle.note(WAS_ROUTED, number, number, queue.name, "", "", address)
        if vhost.router.held:
            chronicle.note(HELD, number, number, "", "", "", address)
        elif not queues:
            event = RETURNED if mandatory else UNROUTABLE
            chronicle.note(event, number, number, "", "", "", address)


def _hold(
    vhost: Vhost, exchange: Exchange, address: Address, content: Content, body: bytes
) -> None:
    """Keep a message in the exchange's own queue until it is due. RabbitMQ: it counts as routed."""
    header = content.after_delay()
    vhost.holding[exchange.name].push(
        address, header, body, -1, content.priority, content.flags, content.delay_ms
    )


def queues_of(targets: list[Target]) -> list[Queue]:
    """The targets of a routing, which are all queues."""
    queues: list[Queue] = []
    for target in targets:
        assert isinstance(target, Queue)
        queues.append(target)
    return queues


def _reply(vhost: Vhost, address: Address, content: Content, body: bytes) -> i64:
    """Deliver straight to the session that waits for replies under this name."""
    consumer = vhost.replies.get(address.routing_key)
    if consumer is None:
        # RabbitMQ 4: a requester that is gone is not the replier's fault, a made-up name is.
        return ROUTED if is_reply_name(address.routing_key) else UNROUTED
    session = consumer.session
    if session.outlet.credit < -REPLY_OVERDRAFT_BYTES:
        vhost.turn.fates.note_dropped(UNREAD_REPLY)
        return ROUTED  # RabbitMQ: replies are delivered at most once; this peer reads none
    session.last_tag += 1
    consumer.delivered += 1
    session.unacked.skip(session.last_tag)
    message = Message(address, content.header, body, 0, 0, 0, 0, consumer.queue)
    message.tag = session.last_tag
    message.holder = consumer
    session.outlet.credit -= len(body) + len(content.header) + DELIVERY_BYTES
    if not session.outbox:
        session.turn.outboxes.append(session)
    session.outbox.append(message)
    return ROUTED
