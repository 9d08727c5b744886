"""Applying policies: from what a vhost's policies say to what its queues and exchanges do.

An object that is made obeys at once. When policies change, all objects of the vhost are looked at
again, a slice with every beat of the pulse, so that ten thousand queues do not stop the others;
`is_busy` says whether that is still going on. At a start everything is looked at in one go, before
any message is there.

An object whose effect has not changed is left alone. Whatever could change a route (an alternate
exchange, deduplication, remembering) makes cached routes be found anew.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.arguments.policies import EXCHANGE, Policies
from leveret.engine.arguments.policy_keys import effective_arguments
from leveret.engine.arguments.queue_arguments import (
    DeduplicationSettings,
    exchange_deduplication,
    remembering_stream,
    settings_of,
)
from leveret.engine.deduplication.deduplication import Deduplication
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.history.life_events import Chronicle
from leveret.engine.history.tracing import add_tracing, remove_tracing
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.chronicle import StreamChronicle
from leveret.engine.target import Target
from leveret.engine.timer_queue import NEVER
from leveret.engine.vhosts.definition_records import exchange_made
from leveret.engine.vhosts.governor import Governor
from leveret.engine.vhosts.making import chronicle_of
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import EngineError
from leveret.wire.tables import Table

SLICE: Final = 32  # objects of one beat: a few milliseconds, interpreted too


class PolicyEnforcer(Governor):
    """Lets the objects of one vhost obey its policies."""

    def __init__(self, vhost: Vhost) -> None:
        super().__init__()
        self.policies = Policies()
        self._vhost = vhost
        self._left: list[Target] = []  # to be looked at

    @property
    def is_busy(self) -> bool:
        return len(self._left) > 0

    def review(self) -> None:
        """Policies have changed: look at everything, in slices."""
        self._left = self._everything()
        self._vhost.turn.timers.arm(self, self._vhost.turn.now_ms)

    def review_now(self) -> None:
        """The same in one go."""
        self._left = []
        for target in self._everything():
            self.apply(target)

    def _everything(self) -> list[Target]:
        found: list[Target] = list(self._vhost.queues.values())
        found.extend(self._vhost.exchanges.values())
        return found

    def work(self) -> None:
        """Look at the next slice."""
        left = SLICE
        while self._left and left > 0:
            self.apply(self._left.pop())
            left -= 1

    def on_due(self, now_ms: i64) -> i64:
        self.work()
        return now_ms if self._left else NEVER

    def stop(self) -> None:
        """The vhost is deleted."""
        self._left = []
        self._vhost.turn.timers.disarm(self)

    def apply(self, target: Target) -> None:
        if isinstance(target, Queue):
            if not target.deleted and target.holds_for is None:
                self._apply_to_queue(target)
        elif isinstance(target, Exchange) and target.name:
            self._apply_to_exchange(target)

    def _apply_to_queue(self, queue: Queue) -> None:
        kind = queue.settings.kind
        effect = self.policies.combined_for(queue.name, kind)
        if effect is queue.combined_policy:
            return
        queue.combined_policy = effect
        arguments = effective_arguments(kind, queue.arguments, effect.definition)
        queue.reconfigure(settings_of(kind, arguments))
        present = remove_tracing(queue.chronicle)
        chronicle = self._chronicle(present, f"queue '{queue.name}'", arguments)
        queue.chronicle = add_tracing(chronicle, self._vhost.turn.traced_messages)
        self._deduplicate(queue, queue.settings.deduplication, queue.ledger.id, queue.durable)

    def _apply_to_exchange(self, exchange: Exchange) -> None:
        effect = self.policies.combined_for(exchange.name, EXCHANGE)
        if effect is exchange.combined_policy:
            return
        exchange.combined_policy = effect
        arguments = effective_arguments(EXCHANGE, exchange.arguments, effect.definition)
        what = f"exchange '{exchange.name}'"
        exchange.chronicle = self._chronicle(exchange.chronicle, what, arguments)
        if "alternate-exchange" not in exchange.arguments:
            alternate = effect.definition.get("alternate-exchange")
            exchange.alternate = str(alternate.value) if alternate is not None else None
        self._routes_changed()
        if not exchange.internal:  # nobody publishes to an internal one
            settings = exchange_deduplication(exchange.name, self._vhost.name, False, arguments)
            self._remember_keys(exchange, settings)

    def _remember_keys(self, exchange: Exchange, settings: DeduplicationSettings | None) -> None:
        """What an exchange remembers has a number of its own, which the log must know."""
        number = exchange.deduplication_id
        if settings is not None and number == 0:
            number = self._vhost.slots.new_id()
            exchange.deduplication_id = number
            if exchange.durable and not self._vhost.turn.is_restoring:
                self._log(exchange)
        self._deduplicate(exchange, settings, number, exchange.durable)

    def _log(self, exchange: Exchange) -> None:
        journal = self._vhost.turn.journal
        holding = self._vhost.holding.get(exchange.name)
        if journal is not None:
            number = int(holding.ledger.id) if holding is not None else 0
            journal.write_definition(exchange_made(self._vhost.name, exchange, number))

    def _routes_changed(self) -> None:
        self._vhost.version += 1
        self._vhost.stuck.retry()

    def _chronicle(
        self, present: Chronicle | None, what: str, arguments: Table
    ) -> Chronicle | None:
        """Who is told what happens; a stream that cannot be had is nobody."""
        name = remembering_stream(what, self._vhost.name, arguments)
        if isinstance(present, StreamChronicle) and present.stream == name:
            return present
        if present is not None or name:
            self._routes_changed()
        try:
            return chronicle_of(self._vhost, what, arguments)
        except EngineError:
            return None

    def _deduplicate(
        self, target: Target, settings: DeduplicationSettings | None, number: i64, durable: bool
    ) -> None:
        """Keys stay known where only the window is another; what has gone is forgotten."""
        present = target.deduplication
        if present is None and settings is None:
            return
        self._routes_changed()
        if present is not None and settings is not None and present.is_like(settings):
            present.window_ms = settings.window_ms
            return
        if present is not None:
            present.close()
        target.deduplication = None
        if settings is not None:
            target.deduplication = Deduplication(settings, number, durable, self._vhost.turn.timers)
