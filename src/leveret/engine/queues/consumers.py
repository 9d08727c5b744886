"""The consumers of one queue, and the choice of those that are served.

Usually all consumers are served in turn (`RoundRobin`). With a single active consumer only one is
in the round robin, and the others wait until it ends. On quorum queues a consumer of higher
priority takes over as soon as the active one has settled its messages (RabbitMQ 4). Until then the
active one is suspended.

A single active consumer that ends may still hold messages. The next one is served when these are
settled or back in the queue, so that it gets them in their order. RabbitMQ: the next consumer of a
classic queue is served at once, and gets the returned messages after later ones.

Invariants:

- A consumer is in the round robin, or suspended, exactly while it is `active`.
- While `departed` is set, no consumer is active.
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
        self.departed: Consumer | None = None  # was active, has ended, and still holds messages
        self.has_exclusive = False

    def add(self, consumer: Consumer) -> None:
        """Add a consumer. The caller has checked that it may consume."""
        self.members.append(consumer)
        self.has_exclusive = consumer.exclusive
        if not self.single_active:
            self.round_robin.add(consumer)
            return
        consumer.active = False
        active = self.active
        if active is not None:
            self._maybe_succeed(active, consumer)
        elif self.departed is None:
            self._activate(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer. If it was the active one, activate the next one, now or later."""
        self.members.remove(consumer)
        self.round_robin.remove(consumer)
        self._after_removal(consumer)

    def remove_all(self, consumers: list[Consumer]) -> None:
        """Remove many consumers in one pass. One by one, each removal would search all of them."""
        gone = set(consumers)
        self.members = [consumer for consumer in self.members if consumer not in gone]
        self.round_robin.remove_all(gone)
        for consumer in consumers:
            self._after_removal(consumer)

    def _after_removal(self, consumer: Consumer) -> None:
        _note_gone(consumer)
        if consumer.exclusive:
            self.has_exclusive = False
        if self.active is consumer:
            self.active = None
            if consumer.unacked != 0:
                self.departed = consumer
                consumer.suspended = (
                    True  # so that `resume_consumer` is called for each message it settles
                )
            else:
                self._activate_next()

    def resume_consumer(self, consumer: Consumer) -> None:
        """Serve a suspended consumer again, or hand over if it has settled everything."""
        if consumer is self.departed:
            if consumer.unacked == 0:
                self._forget_departed()
                self._activate_next()
        elif not (self.single_active and self._hand_over(consumer)):
            self.round_robin.resume_consumer(consumer)

    def holders(self) -> list[Consumer]:
        """Return the consumers, and the ended consumer whose messages keep the next one waiting."""
        return self.members if self.departed is None else [*self.members, self.departed]

    def end_all(self) -> list[Consumer]:
        """End all subscriptions, because the queue is deleted. Return the consumers."""
        ended = self.members
        for consumer in ended:
            consumer.suspended = False
            consumer.ended = QUEUE_GONE
            consumer.session.consumers.pop(consumer.tag, None)
            _note_gone(consumer)
        self.members = []
        self.round_robin = RoundRobin()
        self.active = None
        self._forget_departed()
        return ended

    def _forget_departed(self) -> None:
        if self.departed is not None:
            self.departed.suspended = False
            self.departed = None

    def _activate_next(self) -> None:
        waiting = self._best_waiting()
        if waiting is not None:
            self._activate(waiting)

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
        if not active.suspended:
            self.round_robin.remove(active)
            active.suspended = True
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
            active.suspended = False
            active.active = False
            self._activate(waiting)
        return True


def _note_gone(consumer: Consumer) -> None:
    """Add the counts of a consumer that ends to its session."""
    if consumer.no_ack:
        consumer.session.retired_no_ack += consumer.delivered
