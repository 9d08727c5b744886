"""The ends of a shovel at this node: sessions of the engine, without a socket and a login.

An end acts as the owner of the shovel, with the permissions that AMQP would ask for. They are
checked when the end opens, for each new exchange and routing key, and after every change of the
owner's permissions (`recheck`). Each end sends its commands in turns of its own. Events that the
engine raises in the middle of a turn are only noted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leveret.amqp_client.client import Delivery
from leveret.auth.user import CONFIGURE, READ, WRITE
from leveret.engine.commands.consuming import consume, refill, set_prefetch
from leveret.engine.commands.dead_letter import counted_header
from leveret.engine.commands.local_session import LocalSession
from leveret.engine.commands.publishing import Route, require_public
from leveret.engine.commands.settling import ack, close_session, reject
from leveret.engine.message import COUNTED, REDELIVERED, Message
from leveret.engine.queues.queue import Queue
from leveret.engine.turns.session import Outlet
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import ClosedError
from leveret.shovels.interfaces import ShovelListener, ShovelSource, ShovelTarget
from leveret.shovels.local_node import LocalNode
from leveret.shovels.owner import Owner
from leveret.shovels.remote import publish_address
from leveret.shovels.settings import NO_ACK, ON_CONFIRM, ShovelSettings
from leveret.wire.tables import table_of

ROUTES_MAX: Final = 1024  # kept routes
CREDIT_BYTES: Final = 1024 * 1024  # delivered at most before messages are passed on


class _LocalEnd:
    """An end with a session of the engine, while it is open."""

    def __init__(
        self, node: LocalNode, owner: Owner, settings: ShovelSettings, vhost: str, name: str
    ) -> None:
        self._node = node
        self._owner = owner
        self._settings = settings
        self._vhost_name = vhost
        self._outlet = Outlet()
        self._outlet.name = name
        self._outlet.credit = CREDIT_BYTES
        self._session = LocalSession(
            self._outlet,
            node.broker.turn,
            self._on_deliveries,
            self._on_confirm,
            self._on_ended,
            self._on_fault,
        )
        self._listener: ShovelListener | None = None

    def _vhost(self) -> Vhost:
        return self._node.broker.vhost(self._vhost_name)

    def _ensure_queue(self, name: str, is_predeclared: bool, given: dict[str, object]) -> Queue:
        """Return the queue. Declare it as durable if it is missing, unless it is predeclared."""
        vhost = self._vhost()
        if name in vhost.queues or is_predeclared:
            return vhost.queue(name, None)
        arguments = table_of(given)
        self._owner.require_declare(vhost, name, arguments)
        return vhost.declare_queue(name, durable=True, arguments=arguments)

    def _on_deliveries(self, messages: list[Message]) -> None:
        raise NotImplementedError

    def _on_confirm(self, seq: int, is_acked: bool) -> None:
        raise NotImplementedError

    def _on_ended(self) -> None:
        assert self._listener is not None
        self._listener.on_lost(ClosedError("the queue was deleted"))

    def _on_fault(self) -> None:
        """Let the shovel begin again, which requeues the messages that it could not take."""
        assert self._listener is not None
        self._listener.on_lost(ClosedError("a message could not be taken: see the log"))

    def _end(self) -> None:
        """Close the session, which requeues its messages, and delete its exclusive queues."""
        if self._session.closed:
            return
        with self._node.turn():
            close_session(self._node.broker.slots, self._session)
            vhost = self._node.broker.vhosts.get(self._vhost_name)
            for target in list(self._outlet.exclusive_queues.values()):
                assert isinstance(target, Queue)
                if vhost is not None:
                    vhost.remove_queue(target)


class LocalSource(_LocalEnd, ShovelSource):
    """Consumes from this node."""

    async def open(self, listener: ShovelListener) -> None:
        self._listener = listener
        self.session = self._session
        settings = self._settings
        with self._node.turn():
            vhost = self._vhost()
            self.recheck()
            if settings.src_queue is not None:
                queue = self._ensure_queue(
                    settings.src_queue, settings.src_predeclared, settings.src_queue_args
                )
                self.length = queue.message_count()
            else:
                queue = self._bound_queue(vhost)
            slots = self._node.broker.slots
            if settings.ack_mode != NO_ACK:
                set_prefetch(slots, self._session, count=settings.prefetch, size=0, shared=False)
            consume(
                self._session,
                queue,
                f"shovel-{self._node.token()}",
                no_ack=settings.ack_mode == NO_ACK,
                arguments=table_of(settings.src_consumer_args),
                timeout_ms=self._node.consumer_timeout_ms,
            )

    def _bound_queue(self, vhost: Vhost) -> Queue:
        """Declare an exclusive queue, bind it to the source exchange, and return it."""
        exchange, key = self._settings.src_exchange, self._settings.src_key
        assert exchange is not None
        name = f"amq.gen-{self._node.token()}"
        self._owner.require(CONFIGURE, vhost.name, "queue", name)
        self._owner.require_bind(vhost.name, name, vhost.exchange(exchange), key)
        self._owner.require(READ, vhost.name, "queue", name)
        queue = vhost.declare_queue(
            name, durable=False, owner=self._outlet, user=self._outlet, arguments={}
        )
        vhost.bind(exchange, queue, key, {})
        return queue

    def recheck(self) -> None:
        settings = self._settings
        if settings.src_queue is not None:
            self._owner.require(READ, self._vhost_name, "queue", settings.src_queue)
        else:
            assert settings.src_exchange is not None
            self._owner.require(READ, self._vhost_name, "exchange", settings.src_exchange)

    def settle(
        self, acked: Sequence[int], requeued: Sequence[int], rejected: Sequence[int]
    ) -> None:
        if self._session.closed:
            return
        slots = self._node.broker.slots
        with self._node.turn():
            for tag in acked:
                ack(slots, self._session, tag, multiple=False)
            for tag in requeued:
                reject(slots, self._session, tag, multiple=False, requeue=True, failed=False)
            for tag in rejected:
                reject(slots, self._session, tag, multiple=False, requeue=False, failed=False)

    def request_more(self) -> None:
        if self._outlet.credit < CREDIT_BYTES and not self._session.closed:
            with self._node.turn():
                refill(self._node.broker.slots, self._outlet, CREDIT_BYTES)

    async def close(self) -> None:
        self._end()

    def _on_deliveries(self, messages: list[Message]) -> None:
        assert self._listener is not None
        for message in messages:
            header = counted_header(message) if message.flags & COUNTED else message.header
            self._listener.on_delivery(
                Delivery(
                    message.tag,
                    message.address.exchange,
                    message.address.routing_key,
                    message.flags & REDELIVERED != 0,
                    header,
                    message.body,
                )
            )


class LocalTarget(_LocalEnd, ShovelTarget):
    """Publishes to this node."""

    def __init__(
        self, node: LocalNode, owner: Owner, settings: ShovelSettings, vhost: str, name: str
    ) -> None:
        super().__init__(node, owner, settings, vhost, name)
        self._tags: dict[int, int] = {}  # delivery tag of the source, by number of the publish
        self._routes: dict[tuple[str, str], Route] = {}

    async def open(self, listener: ShovelListener) -> None:
        self._listener = listener
        settings = self._settings
        with self._node.turn():
            vhost = self._vhost()
            self.recheck()
            if settings.dest_queue is not None:
                self._ensure_queue(
                    settings.dest_queue, settings.dest_predeclared, settings.dest_queue_args
                )
            elif settings.dest_exchange:
                vhost.exchange(settings.dest_exchange)
        await self._node.synced()

    def recheck(self) -> None:
        settings = self._settings
        self._routes.clear()
        if settings.dest_queue is not None or settings.dest_exchange is not None:
            exchange = settings.dest_exchange or ""
            self._owner.require(WRITE, self._vhost_name, "exchange", exchange)
        else:  # the message names the exchange
            self._owner.user()

    async def send(self, deliveries: Sequence[Delivery]) -> None:
        assert self._listener is not None
        await self._node.no_alarm()
        is_confirming = self._settings.ack_mode == ON_CONFIRM
        with self._node.turn():
            vhost = self._vhost()
            for delivery in deliveries:
                route = self._route(vhost, *publish_address(self._settings, delivery))
                self._owner.require_extra_keys(vhost.name, route.exchange, delivery.header)
                seq = self._session.publish(vhost, route, delivery.header, delivery.body)
                if is_confirming:
                    self._tags[seq] = delivery.tag
                else:
                    self._listener.on_accepted(delivery.tag)

    def _route(self, vhost: Vhost, exchange: str, key: str) -> Route:
        route = self._routes.get((exchange, key))
        if route is None:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            target = vhost.exchange(exchange)
            require_public(vhost, target)
            self._owner.require_publish(vhost.name, target, key)
            route = Route(target, key, mandatory=self._settings.dest_queue is not None)
            self._routes[exchange, key] = route
        return route

    async def close(self) -> None:
        self._end()

    def _on_confirm(self, seq: int, is_acked: bool) -> None:
        assert self._listener is not None
        for number in list(self._tags):
            if number > seq:
                break
            tag = self._tags.pop(number)
            if is_acked:
                self._listener.on_accepted(tag)
            else:
                self._listener.on_refused(tag, retry=True)
