"""The consumers of one queue: who there is, and who is served.

Usually all of them are, in turn (`RoundRobin`). With a single active consumer only one is in the
rota;
the others wait for it to go. On quorum queues a consumer of higher priority takes over as soon as
the active one has settled what it holds (RabbitMQ 4): until then the active one is parked.

Invariant: a consumer is in the rota, or parked, exactly while it is `active`.
"""

from leveret.engine.queues.round_robin import RoundRobin
from leveret.engine.turns.session import QUEUE_GONE, Consumer


class Subscribers:
    """The consumers of a queue."""

    def __init__(self, single_active: bool, hands_over: bool) -> None:
        self.single_active = single_active
        self.hands_over = hands_over  # to a higher priority
        self.members: list[Consumer] = []  # in order of arrival
        self.rota = RoundRobin()
        self.active: Consumer | None = None  # the one that is served, if single active
        self.has_exclusive = False

    def add(self, consumer: Consumer) -> None:
        """A consumer comes; the caller has checked that it may."""
        self.members.append(consumer)
        self.has_exclusive = consumer.exclusive
        if not self.single_active:
            self.rota.add(consumer)
            return
        active = self.active
        if active is None:
            self._activate(consumer)
        else:
            consumer.active = False
            self._maybe_succeed(active, consumer)

    def remove(self, consumer: Consumer) -> None:
        """A consumer goes."""
        self.members.remove(consumer)
        self.rota.remove(consumer)
        _note_gone(consumer)
        if consumer.exclusive:
            self.has_exclusive = False
        if self.active is consumer:
            self.active = None
            waiting = self._best_waiting()
            if waiting is not None:
                self._activate(waiting)

    def unpark(self, consumer: Consumer) -> None:
        """A parked consumer may have room again, or be drained."""
        if not (self.single_active and self._hand_over(consumer)):
            self.rota.unpark(consumer)

    def end_all(self) -> list[Consumer]:
        """The queue is gone: everybody's subscription ends."""
        ended = self.members
        for consumer in ended:
            consumer.parked = False
            consumer.ended = QUEUE_GONE
            consumer.session.consumers.pop(consumer.tag, None)
            _note_gone(consumer)
        self.members = []
        self.rota = RoundRobin()
        self.active = None
        return ended

    def _activate(self, consumer: Consumer) -> None:
        self.active = consumer
        consumer.active = True
        self.rota.add(consumer)

    def _best_waiting(self) -> Consumer | None:
        """The waiting consumer of highest priority, the oldest of those."""
        best: Consumer | None = None
        for consumer in self.members:
            if not consumer.active and (best is None or consumer.priority > best.priority):
                best = consumer
        return best

    def _maybe_succeed(self, active: Consumer, newcomer: Consumer) -> None:
        """Stop serving the active consumer if the newcomer is to take over from it."""
        if not self.hands_over or newcomer.priority <= active.priority:
            return
        if not active.parked:
            self.rota.remove(active)
            active.parked = True
        if active.unacked == 0:
            self._hand_over(active)

    def _hand_over(self, active: Consumer) -> bool:
        """Whether a higher priority takes over, now or when the active one is drained."""
        waiting = self._best_waiting()
        if not self.hands_over or waiting is None or waiting.priority <= active.priority:
            return False
        if active.unacked == 0:
            active.parked = False
            active.active = False
            self._activate(waiting)
        return True


def _note_gone(consumer: Consumer) -> None:
    """Let the session keep what its consumer has counted."""
    if consumer.no_ack:
        consumer.session.retired_no_ack += consumer.delivered
