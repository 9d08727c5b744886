"""From an exchange and the keys of a message to the queues that get a copy.

A routing starts at one exchange and follows bindings to further ones. Where an exchange matches no
binding at all, its alternate exchange is next. RabbitMQ: that goes for every exchange on the way,
not for the first alone; and a binding to an exchange that leads nowhere is a match all the same.

Each routing has a serial number, written into all targets that it reaches: no exchange is visited
twice, so cycles of bindings or of alternates end, and no queue gets two copies. Nothing is
allocated per message but what the found queues need.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.exchanges.delayed import delay_ms
from leveret.engine.exchanges.exchange import Exchange, Headers
from leveret.engine.target import Target

_DEFAULT: Final = ""


class Router:
    """Routes all messages of one vhost, one at a time."""

    def __init__(self, exchanges: dict[str, Exchange]) -> None:
        self.exchanges = exchanges  # those of the vhost by name, shared with it
        # Of the last routing:
        self.key_only: bool = True  # it depended on the keys alone and may be kept
        self.held: list[Exchange] = []  # delayed exchanges that it reached on its way
        self.remembering: list[Exchange] = []  # exchanges on its way that remember
        self._serial: i64 = 0
        # Work lists, kept so that a message allocates none. Empty between routings.
        self._matched: list[Target] = []
        self._pending: list[Exchange] = []

    def route(
        self, exchange: Exchange, keys: list[str], headers: Headers, found: list[Target]
    ) -> bool:
        """Append every queue that gets a copy, each once; False when nobody takes the message.

        The given exchange routes at once, delayed or not: whoever calls has seen to that. Other
        delayed exchanges on the way keep a message that asks for a delay; they are in `held`, and
        the message is to be routed from each of them when it is due.
        """
        self._start(exchange)
        before: i64 = len(found)
        self._visit(exchange, keys, headers, found)
        pending = self._pending
        while pending:
            reached = pending.pop()
            if reached.is_delayed and delay_ms(headers) > 0:
                self._hold(reached)
            else:
                self._visit(reached, keys, headers, found)
        return len(found) > before or len(self.held) > 0

    def _start(self, exchange: Exchange) -> None:
        self._serial += 1
        exchange.last_routing = self._serial
        self.key_only = True
        if self.held:
            self.held = []
        if self.remembering:
            self.remembering = []
        # A header table that cannot be decoded ends a routing in the middle.
        self._matched.clear()
        self._pending.clear()

    def _visit(
        self, exchange: Exchange, keys: list[str], headers: Headers, found: list[Target]
    ) -> None:
        """Sort what one exchange matches into queues found and exchanges to visit."""
        matched = self._matched
        if exchange.per_key:
            for key in keys:
                exchange.match(key, headers, matched)
        else:
            exchange.match(keys[0], headers, matched)
        if not exchange.key_only:
            self.key_only = False
        if exchange.chronicle is not None:
            self.remembering.append(exchange)
            self.key_only = False  # every message is to be looked at
        if not matched and exchange.alternate is not None:
            self._match_alternate(exchange.alternate)
        serial = self._serial
        for target in matched:
            if target.last_routing != serial:
                target.last_routing = serial
                if isinstance(target, Exchange):
                    self._pending.append(target)
                else:
                    found.append(target)
        matched.clear()

    def _match_alternate(self, name: str) -> None:
        # RabbitMQ: the default exchange as an alternate leads nowhere, and a missing one too.
        if name == _DEFAULT:
            return
        alternate = self.exchanges.get(name)
        if alternate is not None:
            self._matched.append(alternate)

    def _hold(self, exchange: Exchange) -> None:
        self.held.append(exchange)
        self.key_only = False
