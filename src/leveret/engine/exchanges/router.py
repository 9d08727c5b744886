"""Find the queues that get a copy of a message, from an exchange and the keys of the message.

A routing starts at one exchange and follows bindings to further exchanges. If no binding of an
exchange matches, its alternate exchange is visited next. RabbitMQ: this holds for every exchange on
the way, not only for the first. A binding to an exchange that leads nowhere is still a match.

Each routing has a serial number, which is written into all targets that it reaches. So no exchange
is visited twice, cycles of bindings or alternates end, and no queue gets two copies. A routing
allocates nothing but the list of found queues.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.exchanges.delayed import delay_ms
from leveret.engine.exchanges.exchange import (
    COPY_STEPS,
    VISIT_STEPS,
    Exchange,
    Headers,
    require_steps,
)
from leveret.engine.target import Target

_DEFAULT: Final = ""


class Router:
    """Routes all messages of one vhost, one at a time."""

    def __init__(self, exchanges: dict[str, Exchange]) -> None:
        self.exchanges = exchanges  # the vhost's own dict of exchanges
        # Results of the last routing:
        self.key_only: bool = True  # it depended on the keys alone and may be cached
        self.held: list[Exchange] = []  # delayed exchanges that hold the message
        self.remembering: list[Exchange] = []  # visited exchanges with a chronicle
        self.looked_at: i64 = 0  # steps of the last routing (`ROUTING_STEPS_MAX`)
        self._serial: i64 = 0
        # Work lists, reused so that a message allocates none. Empty between routings.
        self._matched: list[Target] = []
        self._pending: list[Exchange] = []

    def route(
        self, exchange: Exchange, keys: list[str], headers: Headers, found: list[Target]
    ) -> bool:
        """Append every queue that gets a copy, each once; return False if there is none.

        The given exchange routes at once, even if it is delayed: the caller has handled its delay.
        If the message asks for a delay, it stops at every other delayed exchange. These are in
        `held`, which also counts as routable: the caller must route the message from each of them
        when it is due.
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
        self.looked_at = 0
        if self.held:
            self.held = []
        if self.remembering:
            self.remembering = []
        # The last routing may have ended in an error: a header table that cannot be decoded, or
        # too many steps.
        self._matched.clear()
        self._pending.clear()

    def _visit(
        self, exchange: Exchange, keys: list[str], headers: Headers, found: list[Target]
    ) -> None:
        """Add the matches of one exchange to the found queues and the exchanges to visit."""
        matched = self._matched
        self.looked_at += VISIT_STEPS
        if exchange.per_key:
            for key in keys:
                exchange.match(key, headers, matched)
                self.looked_at += exchange.looked_at + 1
                require_steps(self.looked_at + len(matched))
        else:
            exchange.match(keys[0], headers, matched)
            self.looked_at += exchange.looked_at
        self.looked_at += len(matched)
        require_steps(self.looked_at)
        if not exchange.key_only:
            self.key_only = False
        if exchange.chronicle is not None:
            self.remembering.append(exchange)
            self.key_only = False  # each message has its own events
        if not matched and exchange.alternate is not None:
            self._match_alternate(exchange.alternate)
        serial = self._serial
        before: i64 = len(found)
        for target in matched:
            if target.last_routing != serial:
                target.last_routing = serial
                if isinstance(target, Exchange):
                    self._pending.append(target)
                else:
                    found.append(target)
        matched.clear()
        self.looked_at += (len(found) - before) * COPY_STEPS
        require_steps(self.looked_at)

    def _match_alternate(self, name: str) -> None:
        # RabbitMQ: the default exchange as an alternate leads nowhere, as does a missing exchange.
        if name == _DEFAULT:
            return
        alternate = self.exchanges.get(name)
        if alternate is not None:
            self._matched.append(alternate)

    def _hold(self, exchange: Exchange) -> None:
        self.held.append(exchange)
        self.key_only = False
