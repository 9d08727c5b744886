"""The acks of one topic that this node has answered by notes, until the table has them.

The node announces itself on the shard of the topic before it answers acks by notes, and renews the
announcement while it does (`sql/step_17_ack_nodes.sql`). Another node removes an announcement that
is not renewed for a while (`silent_nodes.py`). So this node relies on it for a shorter time.
"""

import math
from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Final

LINGER_S: Final = 5.0  # without an ack, after which the announcement is withdrawn


class OwnAcks:
    """The acks of one topic. Times are seconds by the clock of the event loop, or shard times."""

    def __init__(self, announced_s: float) -> None:
        self._announced_s = announced_s  # how long this node relies on an announcement
        # The notes that are not known to be in the table, and when each was accepted.
        self._kept: dict[bytes, float] = {}
        self._under_way: dict[int, int] = {}  # by number: the shard time when Redis was asked
        self._number = 0
        self._asked_s = 0.0  # when acks came last
        self._announced_until_s = -math.inf
        self.sent: datetime | None = None  # the last announcement that the shard may have

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def is_idle(self) -> bool:
        """Return whether the table has all acks that this node has answered, or may answer."""
        return not (self._kept or self._under_way)

    def ask(self, now_s: float) -> None:
        """Note that acks have come."""
        self._asked_s = now_s

    def begin(self, shard_ms: int) -> int:
        """Note that Redis is asked; return a number for `end`."""
        self._number += 1
        self._under_way[self._number] = shard_ms
        return self._number

    def end(self, number: int, accepted: Iterable[bytes], now_s: float) -> None:
        """Keep the acks that Redis has accepted."""
        self._kept.update(dict.fromkeys(accepted, now_s))
        del self._under_way[number]

    def __contains__(self, note: bytes) -> bool:
        return note in self._kept

    def first(self, most: int) -> list[bytes]:
        """Return the notes that were accepted first."""
        return list(islice(self._kept, most))

    def forget(self, notes: Iterable[bytes]) -> None:
        """Forget notes that the table has."""
        for note in notes:
            self._kept.pop(note, None)

    def age_s(self, now_s: float) -> float:
        """Return how long ago the oldest note was accepted; 0 if there is none."""
        return now_s - next(iter(self._kept.values()), now_s)

    def asked_before_ms(self, shard_ms: int) -> int:
        """Return a time: Redis has answered all acks for which it was asked before."""
        return min(shard_ms, next(iter(self._under_way.values()), shard_ms))

    def on_announced(self, asked_s: float) -> None:
        """Note that the shard has an announcement, which it was asked to store at a time."""
        self._announced_until_s = max(self._announced_until_s, asked_s + self._announced_s)

    def may_note(self, now_s: float) -> bool:
        """Return whether acks may be answered by notes, since the node is announced."""
        return now_s < self._announced_until_s

    def _is_wanted(self, now_s: float) -> bool:
        return now_s < self._asked_s + LINGER_S

    def must_announce(self, now_s: float) -> bool:
        """Return whether it is time for an announcement, because acks have come lately."""
        is_soon = now_s > self._announced_until_s - self._announced_s / 2
        return is_soon and self._is_wanted(now_s)

    def may_withdraw(self, now_s: float) -> bool:
        """Return whether no acks have come for a while, and the announcement is over."""
        return not self._is_wanted(now_s) and not self.may_note(now_s)
