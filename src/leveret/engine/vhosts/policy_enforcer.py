"""Apply policies: from the policies of a vhost to the settings of its queues and exchanges.

A new object gets the policies at once. When policies change, all objects of the vhost are reviewed,
one slice at each wake-up of the timer, so that ten thousand queues do not stop the others.
`is_busy` says whether a review is under way. At a start everything is reviewed in one go, before
there is any message.

An object whose effective policy has not changed is left alone. A change that could alter a route
(an alternate exchange, deduplication, a chronicle) makes cached routes invalid.
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
from leveret.engine.turns.turn import WORK_MAX
from leveret.engine.vhosts.definition_records import encode_exchange
from leveret.engine.vhosts.queue_creation import open_chronicle
from leveret.engine.vhosts.state import PolicyEnforcerBase
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import EngineError
from leveret.wire.tables import Table

SLICE: Final = 32  # objects reviewed by one wake-up: a few milliseconds, also interpreted
# Instructions of patterns times bytes of a name, in one unit of `WORK_MAX`. Slow patterns take five
# times as long.
MATCHED_PER_WORK: Final = 64


class PolicyEnforcer(PolicyEnforcerBase):
    """Applies the policies of one vhost to its objects."""

    def __init__(self, vhost: Vhost) -> None:
        super().__init__()
        self.policies = Policies()
        self._vhost = vhost
        self._to_review: list[Target] = []  # still to be reviewed

    @property
    def is_busy(self) -> bool:
        return len(self._to_review) > 0

    def review(self) -> None:
        """Review all objects in slices, because policies have changed."""
        self._to_review = self._all_objects()
        self._vhost.turn.timers.arm(self, self._vhost.turn.now_ms)

    def review_now(self) -> None:
        """Review all objects at once."""
        self._to_review = []
        for target in self._all_objects():
            self.apply(target)

    def _all_objects(self) -> list[Target]:
        found: list[Target] = list(self._vhost.queues.values())
        found.extend(self._vhost.exchanges.values())
        return found

    def work(self) -> None:
        """Review the next slice."""
        turn = self._vhost.turn
        count = SLICE
        work_max = turn.work + WORK_MAX // 2
        while self._to_review and count > 0 and turn.work < work_max:
            self.apply(self._to_review.pop())
            count -= 1

    def on_due(self, now_ms: i64) -> i64:
        self.work()
        return now_ms if self._to_review else NEVER

    def stop(self) -> None:
        """End the review, because the vhost is deleted."""
        self._to_review = []
        self._vhost.turn.timers.disarm(self)

    def apply(self, target: Target) -> None:
        """Apply the policies to one object. Note a fault, so that other objects get theirs."""
        self._vhost.turn.work += self.policies.size * len(target.name) // MATCHED_PER_WORK
        try:
            self._apply(target)
        except Exception as fault:
            turn = self._vhost.turn
            turn.note_fault(f"applying policies to '{target.name}'", fault)

    def _apply(self, target: Target) -> None:
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
        if not exchange.internal:  # clients cannot publish to an internal one
            settings = exchange_deduplication(exchange.name, self._vhost.name, False, arguments)
            self._set_deduplication(exchange, settings)

    def _set_deduplication(
        self, exchange: Exchange, settings: DeduplicationSettings | None
    ) -> None:
        """Set up deduplication of an exchange. The log must know the number of its keys."""
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
            journal.write_definition(encode_exchange(self._vhost.name, exchange, number))

    def _routes_changed(self) -> None:
        self._vhost.version += 1
        self._vhost.stuck.retry()

    def _chronicle(
        self, present: Chronicle | None, what: str, arguments: Table
    ) -> Chronicle | None:
        """Return the chronicle for these arguments, or None if its stream cannot be made."""
        name = remembering_stream(what, self._vhost.name, arguments)
        if isinstance(present, StreamChronicle) and present.stream == name:
            return present
        if present is not None or name:
            self._routes_changed()
        try:
            return open_chronicle(self._vhost, what, arguments)
        except EngineError as refusal:  # a policy refuses no queue: it goes on without a chronicle
            place = f"{what} in vhost '{self._vhost.name}'"
            self._vhost.turn.note_unusable(
                f"no life events are written for {place}", f"its policy cannot be used: {refusal}"
            )
            return None

    def _deduplicate(
        self, target: Target, settings: DeduplicationSettings | None, number: i64, durable: bool
    ) -> None:
        """Change deduplication. Known keys are kept if only the window has changed."""
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
            target.deduplication = Deduplication(
                settings, number, durable, self._vhost.turn.timers, self._vhost.key_room
            )
