"""Exchanges of type `x-federation-upstream`: a fanout that limits the hops of messages.

Federation links declare them at the upstream broker, between the federated exchange and the queue
of the link. The header `x-received-from` of a message lists the links that it came by. The
exchange routes a message unless it came by `x-max-hops` links already, or has been at the
downstream broker (`x-downstream-name`, `x-downstream-vhost`). RabbitMQ: same.
"""

from typing import Final

from leveret.engine.exchanges.exchange import Headers
from leveret.engine.exchanges.fanout import FanoutExchange
from leveret.engine.target import Target
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import Field, Table

FEDERATION_UPSTREAM: Final = "x-federation-upstream"
RECEIVED_FROM: Final = "x-received-from"
MAX_HOPS: Final = "x-max-hops"
DOWNSTREAM_NAME: Final = "x-downstream-name"
DOWNSTREAM_VHOST: Final = "x-downstream-vhost"


class FederationUpstreamExchange(FanoutExchange):
    """An exchange of type x-federation-upstream."""

    def __init__(self, name: str, arguments: Table) -> None:
        super().__init__(name)
        self.kind = FEDERATION_UPSTREAM
        self.key_only = False
        hops = arguments.get(MAX_HOPS)
        if hops is None:
            raise PreconditionFailedError(f"Argument {MAX_HOPS} missing")
        if not isinstance(hops.value, int):
            raise PreconditionFailedError(f"Argument {MAX_HOPS} must be of type long")
        self._hops_max: int = hops.value
        self._downstream = _text(arguments, DOWNSTREAM_NAME)
        self._vhost = _text(arguments, DOWNSTREAM_VHOST)

    def match(self, routing_key: str, headers: Headers, found: list[Target]) -> None:
        field = headers.field(RECEIVED_FROM)
        if may_travel(field, self._hops_max, self._downstream, self._vhost):
            super().match(routing_key, headers, found)


def may_travel(
    received_from: Field | None, hops_max: int, downstream: str | None, vhost: str | None
) -> bool:
    """Return True if a message may go on to this downstream broker."""
    links = received_from.value if received_from is not None else None
    if not isinstance(links, list):
        return True
    return len(links) < hops_max and not has_been_at(links, downstream, vhost)


def has_been_at(links: list[Field], cluster: str | None, vhost: str | None) -> bool:
    """Return True if one of these links names this cluster and this vhost."""
    for link in links:
        table = link.value
        if isinstance(table, dict):
            if _text(table, "cluster-name") == cluster and _text(table, "vhost") == vhost:
                return True
    return False


def _text(table: Table, name: str) -> str | None:
    field = table.get(name)
    return field.value if field is not None and isinstance(field.value, str) else None
