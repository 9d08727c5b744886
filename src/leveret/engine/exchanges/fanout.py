"""Fanout exchanges: every message goes to all bindings, whatever its key."""

from leveret.engine.exchanges.binding import Binding, add_to_row, append_targets, remove_from_row
from leveret.engine.exchanges.exchange import Exchange, Headers
from leveret.engine.target import Target


class FanoutExchange(Exchange):
    """An exchange of type fanout."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "fanout")
        self.per_key = False
        self._row: list[Binding] = []

    def match(self, routing_key: str, headers: Headers, found: list[Target]) -> None:
        append_targets(self._row, found)

    def index(self, binding: Binding) -> None:
        add_to_row(self._row, binding)

    def unindex(self, binding: Binding) -> None:
        remove_from_row(self._row, binding)
