"""The messages that publishers and consumers have seen, and the broken promises.

A message is a publisher and its number. Broken promises are found at once, or by `check` at the
end: a confirmed message that never came, a message at two positions of the log, a delivery after an
accepted settle, a delivery before an earlier message of the same publisher.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """All of one queue."""

    confirmed: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    places: dict[tuple[int, int], int] = field(default_factory=dict)  # index in the log
    last: dict[int, int] = field(default_factory=dict)  # by publisher: delivered last
    settled: set[int] = field(default_factory=set)  # indexes
    faults: list[str] = field(default_factory=list)
    repeats: int = 0  # deliveries of what was not settled yet
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_confirmed(self, publisher: int, seq: int) -> None:
        self.confirmed[publisher].add(seq)
        self.changed.set()

    def on_delivered(self, publisher: int, seq: int, index: int) -> None:
        key = (publisher, seq)
        if index in self.settled:
            self.faults.append(f"{key} at {index} is delivered after its settle")
        before = self.places.setdefault(key, index)
        if before != index:
            self.faults.append(f"{key} is at {before} and at {index}")
        last = self.last.get(publisher, 0)
        if seq == last + 1:
            self.last[publisher] = seq
        elif seq <= last:
            self.repeats += 1
        else:
            self.faults.append(f"{key} comes after {last}")

    def on_settled(self, index: int) -> None:
        self.settled.add(index)
        self.changed.set()

    @property
    def confirmed_count(self) -> int:
        return sum(map(len, self.confirmed.values()))

    def lost(self) -> int:
        """Messages that were confirmed and did not come."""
        return sum(
            (publisher, seq) not in self.places
            for publisher, seqs in self.confirmed.items()
            for seq in seqs
        )

    def check(self) -> None:
        """Everything was consumed: whatever is missing now is lost."""
        assert not self.faults, "\n".join(self.faults[:20])
        assert self.lost() == 0, f"{self.lost()} of {self.confirmed_count} confirmed are lost"
        order: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for (publisher, seq), index in self.places.items():
            order[publisher].append((seq, index))
        for publisher, found in order.items():
            indexes = [index for _, index in sorted(found)]
            assert indexes == sorted(indexes), f"publisher {publisher} is out of order"

    async def until_confirmed(self, count: int, within_s: float) -> None:
        """So many more than now."""
        goal = self.confirmed_count + count
        async with asyncio.timeout(within_s):
            while self.confirmed_count < goal:
                self.changed.clear()
                await self.changed.wait()
