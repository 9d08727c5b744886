"""The default exchange: a routing key leads to the queue with that name.

It has no bindings and looks the queue up in its vhost. Clients cannot bind, unbind, declare or
delete it.
"""

from leveret.engine.exchanges.binding import Binding
from leveret.engine.exchanges.exchange import Exchange, Headers
from leveret.engine.target import Target
from leveret.errors import AccessRefusedError
from leveret.wire.tables import Table


class DefaultExchange(Exchange):
    """The exchange without a name."""

    def __init__(self, queues: dict[str, Target]) -> None:
        super().__init__("", "direct")
        self.queues = queues  # the vhost's own dict of queues
        self.durable = True

    def check_binding(self, routing_key: str, arguments: Table) -> None:
        raise AccessRefusedError("operation not permitted on the default exchange")

    def match(self, routing_key: str, headers: Headers, found: list[Target]) -> None:
        queue = self.queues.get(routing_key)
        if queue is not None:
            found.append(queue)

    def index(self, binding: Binding) -> None:
        raise AssertionError("the default exchange has no bindings")

    def unindex(self, binding: Binding) -> None:
        raise AssertionError("the default exchange has no bindings")
