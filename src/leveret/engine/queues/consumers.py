"""The consumers of one queue: which there are, and which are served.

Usually all of them are served in turn (`RoundRobin`). With a single active consumer only one is in
the round robin, and the others wait until it goes. On quorum queues a consumer of higher priority
takes over as soon as the active one has settled its messages (RabbitMQ 4). Until then the active
one is parked.

Invariant: a consumer is in the round robin, or parked, exactly while it is `active`.
"""

from leveret.engine.queues.round_robin import RoundRobin
from leveret.engine.turns.session import QUEUE_GONE, Consumer


class Subscribers:
    """The consumers of a queue."""

    def __init__(self, single_active: bool, hands_over: bool) -> None:
        self.single_active = single_active
        self.hands_over = hands_over  # a consumer of higher priority takes over
        self.members: list[Consumer] = []  # in order of arrival
        self.round_robin = RoundRobin()
        self.active: Consumer | None = None  # the consumer that is served, if single active
        self.has_exclusive = False

    def add(self, consumer: Consumer) -> None:
        """Add a consumer. The caller has checked that it may consume."""
        self.members.append(consumer)
        self.has_exclusive = consumer.exclusive
        if not self.single_active:
            self.round_robin.add(consumer)
            return
        active = self.active
        if active is None:
            self._activate(consumer)
        else:
            consumer.active = False
            self._maybe_succeed(active, consumer)

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer, and activate the next one if it was the active one."""
        self.members.remove(consumer)
        self.round_robin.remove(consumer)
        _note_gone(consumer)
        if consumer.exclusive:
            self.has_exclusive = False
        if self.active is consumer:
            self.active = None
            waiting = self._best_waiting()
            if waiting is not None:
                self._activate(waiting)

    def unpark(self, consumer: Consumer) -> None:
        """Serve a parked consumer again, or hand over if it has settled everything."""
        if not (self.single_active and self._hand_over(consumer)):
            self.round_robin.unpark(consumer)

    def end_all(self) -> list[Consumer]:
        """End all subscriptions, because the queue is deleted. Return the consumers."""
        ended = self.members
        for consumer in ended:
            consumer.parked = False
            consumer.ended = QUEUE_GONE
            consumer.session.consumers.pop(consumer.tag, None)
            _note_gone(consumer)
        self.members = []
        self.round_robin = RoundRobin()
        self.active = None
        return ended

    def _activate(self, consumer: Consumer) -> None:
        self.active = consumer
        consumer.active = True
        self.round_robin.add(consumer)

    def _best_waiting(self) -> Consumer | None:
        """Return the waiting consumer of highest priority, the oldest first."""
        best: Consumer | None = None
        for consumer in self.members:
            if not consumer.active and (best is None or consumer.priority > best.priority):
                best = consumer
        return best

    def _maybe_succeed(self, active: Consumer, newcomer: Consumer) -> None:
        """Stop serving the active consumer if the newcomer has a higher priority."""
        if not self.hands_over or newcomer.priority <= active.priority:
            return
        if not active.parked:
            self.round_robin.remove(active)
            active.parked = True
        if active.unacked == 0:
            self._hand_over(active)

    def _hand_over(self, active: Consumer) -> bool:
        """Return True if a consumer of higher priority takes over.

        It takes over now, or when the active one has settled everything.
        """
        waiting = self._best_waiting()
        if not self.hands_over or waiting is None or waiting.priority <= active.priority:
            return False
        if active.unacked == 0:
            active.parked = False
            active.active = False
            self._activate(waiting)
        return True


def _note_gone(consumer: Consumer) -> None:
    """Add the counts of a consumer that ends to its session."""
    if consumer.no_ack:
        consumer.session.retired_no_ack += consumer.delivered
