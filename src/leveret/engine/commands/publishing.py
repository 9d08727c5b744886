"""Publishing: from an address to the queues that take a copy.

A `Route` is the meaning of one `basic.publish` method in a vhost. Fronts keep one for each distinct
method that they receive. A route remembers its queues while the definitions of the vhost stay the
same and the exchange routes by the key alone. Messages with CC, BCC or a delay, headers exchanges
and deduplication need a new routing for each message.

The result of a publish is a number (`leveret.engine.turns.outcomes`).
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.commands.content import Content
from leveret.engine.commands.dead_letter import (
    header_with_copies,
    is_cycle,
    may_spread,
    spread_of,
)
from leveret.engine.commands.direct_reply import REPLY_PREFIX, reply
from leveret.engine.commands.stream_copies import CHECKED_BYTES, count_copies, stream_bytes
from leveret.engine.deduplication.deduplication import NO_KEY, Deduplication, key_of
from leveret.engine.exchanges.exchange import Exchange, Headers
from leveret.engine.history.life_events import DUPLICATE, HELD, PUBLISHED, RETURNED, UNROUTABLE
from leveret.engine.history.life_events import ROUTED as WAS_ROUTED
from leveret.engine.message import Address
from leveret.engine.queues.queue import Queue
from leveret.engine.target import Target
from leveret.engine.turns.outcomes import (
    CHAINED,
    CYCLED,
    IN_LOG,
    KEYS_FULL,
    QUEUE_FULL,
    ROUTED,
    UNROUTED,
)
from leveret.engine.turns.turn import Turn
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import AccessRefusedError
from leveret.wire.scan import LONGSTR
from leveret.wire.tables import Field, Table

# In `x-deduplication` this name stands for the property, not for a header of that name.
MESSAGE_ID: Final = "message_id"

# A route remembers this many queues. A connection keeps thousands of routes, and each of them could
# lead to all queues of a vhost. A message to more queues is routed anew.
ROUTE_QUEUES_MAX: Final = 256

# A routing of this many steps is as much work as one copy of a message.
LOOKS_PER_COPY: Final = 16


class Route:
    """The meaning of one `basic.publish` method in a vhost."""

    def __init__(self, exchange: Exchange, routing_key: str, *, mandatory: bool) -> None:
        self.exchange = exchange
        self.address = Address(exchange.name, routing_key)
        self.mandatory = mandatory
        self.version: i64 = 0  # of the vhost when the route was resolved
        self.fixed = False  # every plain message goes to the same queues
        # If `fixed`, those queues; else the first ones of the last message.
        self.queues: list[Queue] = []
        self.is_reply = not exchange.name and routing_key.startswith(REPLY_PREFIX)


def publish(vhost: Vhost, route: Route, content: Content, body: bytes) -> i64:
    """Put a copy into every queue that the message is routed to. Return the outcome."""
    if route.version != vhost.version:
        _resolve(vhost, route)
    if content.extra_keys or content.delay_ms != 0 or not route.fixed:
        return _publish_anew(vhost, route, content, body)
    queues = route.queues
    count: i64 = len(queues)
    if count == 0:
        return UNROUTED
    turn = vhost.turn
    if count * len(body) > CHECKED_BYTES:
        count_copies(turn, queues, 0, len(body))
    route.exchange.published_out += count
    turn.work += count
    outcome: i64 = ROUTED
    for queue in queues:
        outcome |= queue.push(
            route.address,
            content.header,
            body,
            ttl_ms=content.ttl_ms,
            priority=content.priority,
            flags=content.flags,
            delay_ms=0,
        )
    return outcome


def bytes_in_streams(vhost: Vhost, route: Route, content: Content, size: i64) -> i64:
    """Return how many bytes a publish of this size would write to streams now."""
    address = route.address
    if content.extra_keys:
        address = content.address(address.exchange, address.routing_key)
    found: list[Target] = []
    router = vhost.router
    router.route(vhost.exchange(address.exchange), address.keys, content.headers, found)
    return stream_bytes(queues_of(found), len(router.remembering), size)


def publish_work(vhost: Vhost, route: Route, content: Content) -> i64:
    """Return the work of a publish in the unit of `WORK_MAX`.

    It is the number of copies that the publish would make now, and the cost of its routing.
    Raise the same errors as `publish`.
    """
    if route.version != vhost.version:
        _resolve(vhost, route)
    if route.is_reply:
        return 1
    if route.fixed and not content.extra_keys and content.delay_ms == 0:
        return len(route.queues)
    address = route.address
    if content.extra_keys:
        address = content.address(address.exchange, address.routing_key)
    found: list[Target] = []
    router = vhost.router
    router.route(route.exchange, address.keys, content.headers, found)
    return len(found) + router.looked_at // LOOKS_PER_COPY


def require_public(vhost: Vhost, exchange: Exchange) -> None:
    """Raise AccessRefusedError for an internal exchange: clients may not publish to it."""
    if exchange.internal:
        raise AccessRefusedError(
            f"cannot publish to internal exchange '{exchange.name}' in vhost '{vhost.name}'"
        )


def _resolve(vhost: Vhost, route: Route) -> None:
    """Resolve a route. If the key alone decides, its queues serve all plain messages."""
    exchange = vhost.exchange(route.exchange.name)
    require_public(vhost, exchange)
    found: list[Target] = []
    router = vhost.router
    router.route(exchange, route.address.keys, Headers(b"", 0, 0), found)
    vhost.turn.work += router.looked_at // LOOKS_PER_COPY
    route.exchange = exchange
    route.version = vhost.version
    queues = queues_of(found)
    route.fixed = router.key_only and not route.is_reply and not vhost.tracing
    for target in [exchange, *queues]:
        if target.deduplication is not None:
            route.fixed = False
    if len(queues) > ROUTE_QUEUES_MAX:
        route.fixed = False
    route.queues = queues if route.fixed else []


def _publish_anew(vhost: Vhost, route: Route, content: Content, body: bytes) -> i64:
    """Publish a message that needs a routing of its own."""
    address = route.address
    if route.is_reply:
        return reply(vhost, address, content, body)
    if content.extra_keys:
        address = content.address(address.exchange, address.routing_key)
    reached: list[Queue] = []
    outcome = _publish_once(vhost, route, address, content, body, reached)
    if not route.fixed:
        route.queues = reached[:ROUTE_QUEUES_MAX] if len(reached) > ROUTE_QUEUES_MAX else reached
    if vhost.tracing:
        tracer = vhost.turn.tracer
        assert tracer is not None
        names = [queue.name for queue in reached]
        tracer.on_publish(vhost.name, address, content.header, body, names)
    return outcome


def _publish_once(
    vhost: Vhost,
    route: Route,
    address: Address,
    content: Content,
    body: bytes,
    reached: list[Queue],
) -> i64:
    """Route a message unless its exchange knows its key.

    The exchange forgets the key of a message that is not taken: it may come again.
    """
    exchange = route.exchange
    deduplication = exchange.deduplication
    key = b""
    if deduplication is not None:
        key = _deduplication_key(deduplication, content)
        duplicate = _duplicate_outcome(vhost.turn, exchange, deduplication, key)
        if duplicate != 0:
            return duplicate
        if key and not deduplication.takes_key(vhost.turn.now_ms):
            return ROUTED | _refuse_key(vhost)
    outcome = _route_and_push(
        vhost,
        exchange,
        address,
        content,
        body,
        reached,
        deaths=None,
        came_by=None,
        accepted=None,
        is_new=True,
        mandatory=route.mandatory,
    )
    if deduplication is not None and outcome & ROUTED and not outcome & QUEUE_FULL:
        _keep_key(vhost.turn, deduplication, key, outcome)
    return outcome


def _push_once(
    vhost: Vhost,
    queue: Queue,
    address: Address,
    header: bytes,
    content: Content,
    body: bytes,
    delay_ms: i64,
) -> i64:
    """Push a message unless its queue knows its key. A duplicate counts as queued."""
    turn = queue.turn
    deduplication = queue.deduplication
    assert deduplication is not None
    key = _deduplication_key(deduplication, content)
    duplicate = _duplicate_outcome(turn, queue, deduplication, key)
    if duplicate != 0:
        if queue.chronicle is not None:
            number = turn.publish_id
            queue.chronicle.note(DUPLICATE, number, number, queue.name, "", "", address)
        return duplicate
    if key and not deduplication.takes_key(turn.now_ms):
        return _refuse_key(vhost)
    outcome = queue.push(
        address,
        header,
        body,
        ttl_ms=content.ttl_ms,
        priority=content.priority,
        flags=content.flags,
        delay_ms=delay_ms,
    )
    if not outcome & QUEUE_FULL:
        _keep_key(turn, deduplication, key, outcome)
    return outcome


def _deduplication_key(deduplication: Deduplication, content: Content) -> bytes:
    name = deduplication.header
    if name != MESSAGE_ID:
        return key_of(content.headers.field(name))
    text = content.headers.properties().message_id
    return key_of(Field(LONGSTR, text)) if text is not None else NO_KEY


def _duplicate_outcome(turn: Turn, target: Target, deduplication: Deduplication, key: bytes) -> i64:
    """Return the outcome of a publish whose key is known, or 0 if its key is new."""
    if not key:
        return 0
    added_ms = deduplication.added_ms(key, turn.now_ms)
    if added_ms == 0:
        return 0
    target.deduplicated += 1
    # The block with the first message may not be on disk yet: confirm when it is.
    return ROUTED | IN_LOG if added_ms > 0 else ROUTED


def _refuse_key(vhost: Vhost) -> i64:
    """Return the outcome of a publish whose key cannot be remembered. The log says it once."""
    if vhost.key_room.must_tell():
        vhost.turn.note_unusable("a message is refused", vhost.key_room.refusal())
    return QUEUE_FULL | KEYS_FULL


def _keep_key(turn: Turn, deduplication: Deduplication, key: bytes, outcome: i64) -> None:
    """Remember the key of a message. The log keeps it if it keeps the message."""
    if key:
        deduplication.remember(key, turn.now_ms, turn.journal if outcome & IN_LOG else None)


def route_and_push(
    vhost: Vhost,
    exchange: Exchange,
    address: Address,
    content: Content,
    body: bytes,
    *,
    deaths: list[Table] | None = None,
    came_by: Address | None = None,
    accepted: list[Target] | None = None,
) -> i64:
    """Route a message that the broker itself sends, and push it. Return the outcome.

    `deaths` are the deaths of a dead letter, which must not run in a cycle or spread without limit.
    `came_by` is the address by which it came to the queue in which it died. Targets in `accepted`
    have taken the message before and do not get it again; new targets are added to the list. The
    message never counts as a duplicate, whatever its key.
    """
    return _route_and_push(
        vhost,
        exchange,
        address,
        content,
        body,
        [],
        deaths=deaths,
        came_by=came_by,
        accepted=accepted,
        is_new=False,
        mandatory=False,
    )


def _route_and_push(
    vhost: Vhost,
    exchange: Exchange,
    address: Address,
    content: Content,
    body: bytes,
    reached: list[Queue],
    *,
    deaths: list[Table] | None,
    came_by: Address | None,
    accepted: list[Target] | None,
    is_new: bool,
    mandatory: bool,
) -> i64:
    """Route a message by its headers and all its keys, and push it. Return the outcome.

    A delayed exchange holds the message first. The queues that the message is routed to are
    appended to `reached`. `is_new` says that a client publishes the message, so that queues look
    for duplicates.
    """
    if content.delay_ms != 0 and exchange.is_delayed:
        return _hold(vhost, exchange, address, content, body)
    found: list[Target] = []
    router = vhost.router
    is_routed = router.route(exchange, address.keys, content.headers, found)
    for target in found:
        assert isinstance(target, Queue)
        if deaths is None or not is_cycle(deaths, target.name):
            reached.append(target)
    if (
        deaths is not None
        and came_by is not None
        and len(reached) > 1
        and not _spread(vhost, deaths, came_by, content, len(reached))
    ):
        return CHAINED
    _count_copies(vhost, reached, len(body))
    if router.remembering:
        _remember(vhost, address, content.header, body, reached, mandatory)
    if not is_routed:
        vhost.turn.work += router.looked_at // LOOKS_PER_COPY
        vhost.turn.publish_id = 0
        return UNROUTED
    outcome: i64 = CYCLED
    if reached or not deaths or router.held:
        outcome = ROUTED
    for held in router.held:
        if accepted is None or held not in accepted:
            outcome |= _hold(vhost, held, address, content, body)
            if accepted is not None:
                accepted.append(held)
    exchange.published_out += len(reached)
    vhost.turn.work += len(reached) + router.looked_at // LOOKS_PER_COPY
    for queue in reached if content.delay_ms == 0 else _delayed_last(reached):
        if accepted is not None and queue in accepted:
            continue
        delay_ms: i64 = content.delay_ms if queue.settings.delayed else 0
        header = content.after_delay() if delay_ms != 0 else content.header
        if is_new and queue.deduplication is not None:
            outcome |= _push_once(vhost, queue, address, header, content, body, delay_ms)
            continue
        pushed = queue.push(
            address,
            header,
            body,
            ttl_ms=content.ttl_ms,
            priority=content.priority,
            flags=content.flags,
            delay_ms=delay_ms,
        )
        outcome |= pushed
        if accepted is not None and pushed & QUEUE_FULL == 0:
            accepted.append(queue)
    vhost.turn.publish_id = 0
    return outcome


def _count_copies(vhost: Vhost, queues: list[Queue], size: i64) -> None:
    """Count the copies of the routed message in streams; raise if they are too large."""
    recorders = len(vhost.router.remembering)
    if (len(queues) + recorders) * size > CHECKED_BYTES:
        count_copies(vhost.turn, queues, recorders, size)


def _delayed_last(queues: list[Queue]) -> list[Queue]:
    """Return the queues in an order in which copies with the same header follow each other."""
    plain = [queue for queue in queues if not queue.settings.delayed]
    return plain + [queue for queue in queues if queue.settings.delayed]


def _spread(
    vhost: Vhost, deaths: list[Table], came_by: Address, content: Content, queues: i64
) -> bool:
    """Write the number of copies into a dead letter that goes to several queues.

    Return False if there would be too many copies.
    """
    before = spread_of(deaths)
    arrivals = before if before > 0 else _count_reached(vhost, came_by, content)
    if not may_spread(before, arrivals, queues):
        return False
    content.header = header_with_copies(content.header, content.body_size, arrivals * queues)
    return True


def _count_reached(vhost: Vhost, address: Address, content: Content) -> int:
    """Return how many queues an address leads to now. Keep the results of the last routing."""
    exchange = vhost.exchanges.get(address.exchange)
    if exchange is None:
        return 1
    router = vhost.router
    held = router.held
    remembering = router.remembering
    found: list[Target] = []
    router.route(exchange, address.keys, content.headers, found)
    router.held = held
    router.remembering = remembering
    return max(1, len(found))


def _remember(
    vhost: Vhost,
    address: Address,
    header: bytes,
    body: bytes,
    queues: list[Queue],
    mandatory: bool,
) -> None:
    """Tell each chronicle on the way which message passed and which queues it goes to."""
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


def _hold(vhost: Vhost, exchange: Exchange, address: Address, content: Content, body: bytes) -> i64:
    """Keep a message in the exchange's own queue until it is due. RabbitMQ: it counts as routed."""
    header = content.after_delay()
    return vhost.holding[exchange.name].push(
        address,
        header,
        body,
        ttl_ms=-1,
        priority=content.priority,
        flags=content.flags,
        delay_ms=content.delay_ms,
    )


def queues_of(targets: list[Target]) -> list[Queue]:
    """Return the targets of a routing, which are all queues, as queues."""
    queues: list[Queue] = []
    for target in targets:
        assert isinstance(target, Queue)
        queues.append(target)
    return queues
