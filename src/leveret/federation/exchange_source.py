"""The upstream end of an exchange link: a queue at the upstream for the messages wanted here.

    upstream exchange ──▶ internal exchange ──▶ queue "federation: X -> cluster" ──▶ this link
             one binding for each binding of the local exchange

The internal exchange is of type `x-federation-upstream`, which stops messages at the limit of hops.
If the upstream lacks this type, it is a fanout, and the link stops these messages. A link that
connects makes a new internal exchange with all bindings and then deletes the old one. So bindings
that were removed here while there was no connection end too. The queue stays, so that no message is
lost meanwhile. RabbitMQ: names and arguments are the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from leveret.amqp.methods import (
    EXCHANGE_BIND,
    EXCHANGE_DECLARE,
    EXCHANGE_DECLARE_OK,
    EXCHANGE_DELETE,
    EXCHANGE_DELETE_OK,
    EXCHANGE_UNBIND,
    QUEUE_BIND,
    QUEUE_BIND_OK,
    QUEUE_DELETE,
    QUEUE_DELETE_OK,
)
from leveret.amqp.writer import MethodWriter
from leveret.amqp_client.client import AmqpClient, ClientListener
from leveret.amqp_client.uri import AmqpUri
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.exchanges.federation_upstream import (
    DOWNSTREAM_NAME,
    DOWNSTREAM_VHOST,
    FEDERATION_UPSTREAM,
    MAX_HOPS,
)
from leveret.errors import ClosedByPeerError, PreconditionFailedError
from leveret.federation.travel import binding_arguments
from leveret.federation.upstream_source import LocalObject, UpstreamSource
from leveret.federation.upstreams import NAME_BYTES_MAX, Upstream
from leveret.shovels.interfaces import ShovelListener
from leveret.shovels.remote import ensure_queue
from leveret.shovels.targets import TargetCheck
from leveret.wire.tables import Field, Table, encode_table, field_of

INTERNAL_PURPOSE: Final = "x-internal-purpose"
# Suffixes of internal exchanges. One is in use; an interrupted link may leave a second or third.
SUFFIXES: Final = ("A", "B", "C", "D")

_PASSIVE: Final = 1
_DURABLE: Final = 2
_AUTO_DELETE: Final = 4
_INTERNAL: Final = 8
_NOWAIT: Final = 1
_LONG: Final = ord("l")
_NOT_FOUND: Final = 404
_UNKNOWN_TYPE: Final = (406, 503)  # codes of Leveret and newer RabbitMQ, and of older RabbitMQ


@dataclass(frozen=True)
class LocalExchange(LocalObject):
    """The federated exchange of this node."""

    find: Callable[[], Exchange]  # raises NotFoundError


class ExchangeSource(UpstreamSource[LocalExchange]):
    """Consumes the messages that the bindings of the local exchange ask for."""

    cluster = ""  # name of the upstream's cluster
    _internal = ""  # name of the internal exchange
    _bound: dict[tuple[str, bytes], Table]  # by routing key and encoded arguments

    async def open(self, listener: ShovelListener) -> None:
        await self._connect(listener)
        self.cluster = self._upstream_cluster()
        self._require_other_cluster()
        queue = upstream_queue(self._exchange, self._uri.vhost, self._local)
        await self._ensure_exchange()
        await ensure_queue(self._client, queue, self._queue_arguments())
        await self._make_bindings(queue)
        await self._set_prefetch()
        await self._consume(queue)

    @property
    def _exchange(self) -> str:
        """Return the name of the exchange at the upstream."""
        return self._upstream.exchange or self._local.name

    async def _ensure_exchange(self) -> None:
        local = self._local.find()
        if not self._exchange or await self._exists(self._exchange):
            return
        flags = _DURABLE if local.durable else 0
        flags |= (_AUTO_DELETE if local.auto_delete else 0) | (_INTERNAL if local.internal else 0)
        declare = _exchange_declare(self._exchange, local.kind, flags, local.arguments)
        await self._client.call(declare, EXCHANGE_DECLARE_OK)

    async def _exists(self, exchange: str) -> bool:
        passive = _exchange_declare(exchange, "direct", _PASSIVE, {})
        try:
            await self._client.call(passive, EXCHANGE_DECLARE_OK)
        except ClosedByPeerError as fault:
            if fault.code != _NOT_FOUND:
                raise
            await self._client.open_channel()
            return False
        return True

    def _queue_arguments(self) -> Table:
        upstream = self._upstream
        arguments: Table = {
            INTERNAL_PURPOSE: field_of("federation"),
            "x-queue-type": field_of(upstream.queue_type),
        }
        if upstream.expires_ms is not None:
            arguments["x-expires"] = Field(_LONG, upstream.expires_ms)
        if upstream.message_ttl_ms is not None:
            arguments["x-message-ttl"] = Field(_LONG, upstream.message_ttl_ms)
        return arguments

    async def _make_bindings(self, queue: str) -> None:
        """Make a new internal exchange with all bindings, then delete the others."""
        names = [f"{queue} {suffix}" for suffix in SUFFIXES]
        others = [name for name in names if await self._exists(name)]
        free = [name for name in names if name not in others]
        self._internal = free[0] if free else others.pop()
        if not free:
            await self._delete_exchange(self._internal)
        await self._declare_internal(self._internal)
        self._bound = {}
        self.update_bindings()
        # The answer to this bind shows that the upstream has made the bindings before it too.
        bind = MethodWriter(QUEUE_BIND).short(0).short_string(queue).short_string(self._internal)
        await self._client.call(bind.short_string("").octet(0).table({}), QUEUE_BIND_OK)
        for name in others:
            await self._delete_exchange(name)

    async def _declare_internal(self, name: str) -> None:
        """Declare the internal exchange.

        Older RabbitMQ closes the connection for an unknown type, so this uses a connection of its
        own.
        """
        flags = _DURABLE | _AUTO_DELETE | _INTERNAL
        arguments: Table = {
            MAX_HOPS: Field(_LONG, self._upstream.hops_max),
            DOWNSTREAM_NAME: field_of(self._local.cluster),
            DOWNSTREAM_VHOST: field_of(self._local.vhost),
            INTERNAL_PURPOSE: field_of("federation"),
        }
        client = AmqpClient(self._uri, self._name, ClientListener(), self._check.resolve)
        try:
            await client.connect()
            declare = _exchange_declare(name, FEDERATION_UPSTREAM, flags, arguments)
            await client.call(declare, EXCHANGE_DECLARE_OK)
            return
        except ClosedByPeerError as fault:
            if fault.code not in _UNKNOWN_TYPE:
                raise
        finally:
            await client.close()
        purpose = {INTERNAL_PURPOSE: field_of("federation")}
        declare = _exchange_declare(name, "fanout", flags, purpose)
        await self._client.call(declare, EXCHANGE_DECLARE_OK)

    async def _delete_exchange(self, name: str) -> None:
        delete = MethodWriter(EXCHANGE_DELETE).short(0).short_string(name).octet(0)
        await self._client.call(delete, EXCHANGE_DELETE_OK)

    def update_bindings(self) -> None:
        """Bind and unbind at the upstream after a change of the local bindings.

        The upstream sends no answers. If it refuses a binding, it closes the channel, and the link
        connects again and makes all bindings again.
        """
        wanted = self._wanted()
        for key, arguments in wanted.items():
            if key not in self._bound:
                self._client.send(self._bind_method(EXCHANGE_BIND, key[0], arguments))
        for key, arguments in self._bound.items():
            if key not in wanted:
                self._client.send(self._bind_method(EXCHANGE_UNBIND, key[0], arguments))
        self._bound = wanted

    def _wanted(self) -> dict[tuple[str, bytes], Table]:
        found: dict[tuple[str, bytes], Table] = {}
        for binding in self._local.find().bindings.values():
            arguments = binding_arguments(
                binding.arguments,
                cluster=self._local.cluster,
                vhost=self._local.vhost,
                exchange=f"{self._local.name} {self._internal[-1]}",
                upstream=(self.cluster, self._uri.vhost),
                hops=self._upstream.hops_max,
            )
            if arguments is not None:
                found[binding.routing_key, encode_table(arguments)] = arguments
        return found

    def _bind_method(self, method: int, key: str, arguments: Table) -> MethodWriter:
        writer = MethodWriter(method).short(0).short_string(self._internal)
        writer.short_string(self._exchange).short_string(key).octet(_NOWAIT)
        return writer.table(arguments)


async def remove_upstream_queue(
    uri: AmqpUri, name: str, check: TargetCheck, upstream: Upstream, local: LocalExchange
) -> None:
    """Delete the queue and the internal exchanges of a link that has ended."""
    queue = upstream_queue(upstream.exchange or local.name, uri.vhost, local)
    check.require_files(uri)
    client = AmqpClient(uri, name, ClientListener(), check.resolve)
    try:
        await client.connect()
        delete = MethodWriter(QUEUE_DELETE).short(0).short_string(queue).octet(0)
        await client.call(delete, QUEUE_DELETE_OK)
        for suffix in SUFFIXES:
            internal = f"{queue} {suffix}"
            delete = MethodWriter(EXCHANGE_DELETE).short(0).short_string(internal).octet(0)
            await client.call(delete, EXCHANGE_DELETE_OK)
    finally:
        await client.close()


def upstream_queue(exchange: str, vhost: str, local: LocalExchange) -> str:
    """Return the name of the queue at the upstream. Raise PreconditionFailedError if too long.

    `exchange` and `vhost` are those of the upstream.
    """
    name = f"federation: {exchange} -> {local.cluster}"
    if local.vhost != vhost:
        name += f":{local.vhost}:{local.name}"
    elif local.name != exchange:
        name += f":{local.name}"
    if len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX - 2:
        raise PreconditionFailedError(
            f"the queue '{name}' at the upstream would have more than {NAME_BYTES_MAX} bytes"
        )
    return name


def _exchange_declare(name: str, kind: str, flags: int, arguments: Table) -> MethodWriter:
    writer = MethodWriter(EXCHANGE_DECLARE).short(0).short_string(name).short_string(kind)
    return writer.octet(flags).table(arguments)
