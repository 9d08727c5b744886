"""Direct exchanges: a message goes to the bindings whose key equals its routing key."""

from leveret.engine.exchanges.binding import Binding, add_to_row, append_targets, remove_from_row
from leveret.engine.exchanges.exchange import Exchange, Headers
from leveret.engine.target import Target


class DirectExchange(Exchange):
    """An exchange of type direct, with a row of bindings for each key in use."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "direct")
        self._rows: dict[str, list[Binding]] = {}

    def match(self, routing_key: str, headers: Headers, found: list[Target]) -> None:
        row = self._rows.get(routing_key)
        if row is not None:
            append_targets(row, found)

    def index(self, binding: Binding) -> None:
        row = self._rows.get(binding.routing_key)
        if row is None:
            row = []
            self._rows[binding.routing_key] = row
        add_to_row(row, binding)

    def unindex(self, binding: Binding) -> None:
        row = self._rows[binding.routing_key]
        remove_from_row(row, binding)
        if not row:
            del self._rows[binding.routing_key]
