"""Delayed-message exchanges: messages with the header `x-delay` wait before they are routed.

The argument `x-delayed-type` is the type by which the exchange routes. An inner exchange of that
type has the index and does the matching. The vhost holds the messages back, for `delay_ms`.
"""

from typing import Final

from leveret.engine.arguments.header_values import parse_integer
from leveret.engine.exchanges.binding import Binding
from leveret.engine.exchanges.exchange import Exchange, Headers
from leveret.engine.target import Target
from leveret.wire.tables import INTEGERS, Table

DELAY: Final = "x-delay"
DELAY_MS_MAX: Final = (1 << 32) - 1


class DelayedExchange(Exchange):
    """An exchange that routes as another type does, after a delay."""

    def __init__(self, name: str, inner: Exchange) -> None:
        super().__init__(name, "x-delayed-message")
        self.inner = inner  # has the index; its `bindings` stay empty
        self.is_delayed = True
        self.key_only = False
        self.per_key = inner.per_key
        self.binding_values_max = inner.binding_values_max
        self.classic_only = inner.classic_only

    def check_binding(self, routing_key: str, arguments: Table) -> None:
        self.inner.check_binding(routing_key, arguments)

    def match(self, routing_key: str, headers: Headers, found: list[Target]) -> None:
        self.inner.match(routing_key, headers, found)
        self.looked_at = self.inner.looked_at

    def index(self, binding: Binding) -> None:
        before = self.inner.binding_bytes
        self.inner.index(binding)
        self.binding_bytes += self.inner.binding_bytes - before

    def unindex(self, binding: Binding) -> None:
        before = self.inner.binding_bytes
        self.inner.unindex(binding)
        self.binding_bytes += self.inner.binding_bytes - before


def delay_ms(headers: Headers) -> int:
    """Return the delay that a message asks for; 0 if it has none, or an invalid one."""
    field = headers.field(DELAY)
    if field is None:
        return 0
    value = field.value
    delay: int | None = None
    if isinstance(value, int) and field.kind in INTEGERS:
        delay = value
    elif isinstance(value, float) and 0.0 < value <= DELAY_MS_MAX:
        delay = int(value)
    elif isinstance(value, str):
        delay = parse_integer(value)
    return delay if delay is not None and 0 < delay <= DELAY_MS_MAX else 0
