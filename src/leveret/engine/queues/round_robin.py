"""Whose turn it is: the consumers of one queue, by priority, round robin inside one priority.

A consumer that cannot take a message (its prefetch window is full, or its outlet has no credit) is
suspended: it is removed from the round robin, so that nothing searches past it. When it has room
again it comes back as the next one. It does not lose its turn by waiting.

Groups are found by binary search, and an empty one is dropped: a queue may have a hundred thousand
consumers, each with a priority of its own.

Invariants: a consumer is in exactly one group, or suspended, or not in the round robin at all.
Every group has a member.
"""

from bisect import bisect_left

from mypy_extensions import i64

from leveret.engine.turns.session import Consumer


class PriorityGroup:
    """Consumers of one priority."""

    def __init__(self, priority: i64) -> None:
        self.priority = priority
        self.members: list[Consumer] = []
        self.at: i64 = 0  # index of the next consumer


class RoundRobin:
    """Groups of consumers, lowest priority first: the last group is served first."""

    def __init__(self) -> None:
        self.groups: list[PriorityGroup] = []
        self._priorities: list[int] = []  # of the groups

    def add(self, consumer: Consumer) -> None:
        """Add a consumer at the end of the round."""
        group = self._group(consumer.priority)
        group.members.insert(group.at, consumer)
        group.at += 1
        if group.at >= len(group.members):
            group.at = 0

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer, which may be suspended or may never have joined."""
        consumer.suspended = False
        place = bisect_left(self._priorities, consumer.priority)
        if place == len(self.groups) or self.groups[place].priority != consumer.priority:
            return
        group = self.groups[place]
        if consumer in group.members:
            index: i64 = group.members.index(consumer)
            group.members.pop(index)
            if index < group.at:
                group.at -= 1
            if not group.members:
                self._drop(place)

    def remove_all(self, gone: set[Consumer]) -> None:
        """Remove many consumers in one pass."""
        kept: list[PriorityGroup] = []
        for group in self.groups:
            before = [consumer for consumer in group.members[: group.at] if consumer not in gone]
            after = [consumer for consumer in group.members[group.at :] if consumer not in gone]
            group.at = len(before)
            group.members = before + after
            if group.members:
                kept.append(group)
        self.groups = kept
        self._priorities = [group.priority for group in kept]
        for consumer in gone:
            consumer.suspended = False

    def resume_consumer(self, consumer: Consumer) -> None:
        """Bring a suspended consumer back, as the next one of its priority."""
        assert consumer.suspended
        consumer.suspended = False
        group = self._group(consumer.priority)
        if group.at > len(group.members):
            group.at = 0
        group.members.insert(group.at, consumer)

    def next(self) -> Consumer | None:
        """Return the next consumer that can take a message, and move it to the end of its round."""
        while self.groups:
            group = self.groups[-1]
            members = group.members
            while members:
                at = group.at
                if at >= len(members):
                    at = 0
                consumer = members[at]
                if consumer.session.outlet.credit <= 0:
                    consumer.session.outlet.starved.append(consumer)
                elif consumer.has_room():
                    group.at = at + 1
                    return consumer
                consumer.suspended = True
                members.pop(at)
                group.at = at
            self._drop(len(self.groups) - 1)
        return None

    def _drop(self, place: i64) -> None:
        del self.groups[place]
        del self._priorities[place]

    def _group(self, priority: i64) -> PriorityGroup:
        place = bisect_left(self._priorities, priority)
        if place < len(self.groups) and self.groups[place].priority == priority:
            return self.groups[place]
        group = PriorityGroup(priority)
        self.groups.insert(place, group)
        self._priorities.insert(place, priority)
        return group
