"""Accounts of messages: sent, confirmed, seen and settled; and the faults in them.

A `Sender` is the account of one publisher, an `Account` that of one queue. Each is written by one
thread. Faults of a delivery (`Account.on_delivery`) are noted at once. The others are found when
nothing moves any more (`Account.faults`, `Account.balance`).
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tools.chaos.bodies import Label

Key = tuple[int, int]  # sender and number
CLOCKS_MS: Final = 50  # by which the clocks of two busy processes may differ


@dataclass
class Sender:
    """The messages that one publisher sent to the queues of its route."""

    number: int
    sent: set[Key] = field(default_factory=set)
    confirmed: set[Key] = field(default_factory=set)
    refused: set[Key] = field(default_factory=set)


@dataclass
class Account:
    """The known state of one queue."""

    name: str
    senders: list[Sender] = field(default_factory=list)
    # Clients publish to it; a queue that only gets dead letters has no order of its own.
    is_direct: bool = True
    keeps_place: bool = True  # returned messages go back to their place, not to the head
    seen: set[Key] = field(default_factory=set)
    deliveries: int = 0
    settled: set[Key] = field(default_factory=set)  # for good: the acks are in the log
    noted: list[str] = field(default_factory=list)
    _fresh: dict[tuple[int, int], int] = field(default_factory=dict)  # last number, by lane
    _session: dict[tuple[int, int], int] = field(default_factory=dict)

    def begin_session(self) -> None:
        """Note a new consumer: it gets everything from the head on."""
        self._session = {}

    def on_delivery(self, label: Label | None, *, redelivered: bool, now_ms: int) -> None:
        """Note a delivery."""
        self.deliveries += 1
        if label is None:
            self._note("delivered a body that nobody sent")
            return
        key = label.key
        if key in self.settled:
            self._note(f"delivered {key} again, whose ack was on disk")
        if label.due_ms > now_ms + CLOCKS_MS:
            self._note(f"delivered {key} {label.due_ms - now_ms} ms too early")
        if self.is_direct:
            self._check_order(label, redelivered)
        self.seen.add(key)

    def _check_order(self, label: Label, redelivered: bool) -> None:
        """Note a repeated delivery without the flag `redelivered`, and one out of order.

        This holds only for queues that messages are published to. A queue that gets dead letters
        may deliver one before it is synced, and get it again after a kill.
        """
        if not redelivered and label.key in self.seen:
            self._note(f"delivered {label.key} again without saying so")
        lane = (label.sender, label.lane)
        lines = [self._session] if self.keeps_place else []
        if not redelivered:
            lines.append(self._fresh)
        for line in lines:
            if label.number <= line.get(lane, 0):
                self._note(f"delivered {label.key} after {line[lane]}")
            line[lane] = label.number

    def settle(self, keys: list[Key]) -> None:
        """Note messages whose acks or rejects are safe: none of them may be delivered again."""
        self.settled.update(keys)

    def _note(self, fault: str) -> None:
        self.noted.append(f"{self.name}: {fault}")

    def lost(self) -> set[Key]:
        """Return confirmed messages that were never seen."""
        return _union([sender.confirmed for sender in self.senders]) - self.seen

    def invented(self) -> set[Key]:
        """Return seen messages that were never sent."""
        return self.seen - _union([sender.sent for sender in self.senders])

    def turned_up(self) -> set[Key]:
        """Return seen messages without confirm: it was on its way when the broker was killed."""
        confirmed = _union([sender.confirmed for sender in self.senders])
        sent = _union([sender.sent for sender in self.senders])
        return (sent - confirmed) & self.seen

    def balance(self) -> int:
        """Return the messages that went in, confirmed or seen, minus those that came out."""
        confirmed = _union([sender.confirmed for sender in self.senders])
        return len(confirmed) + len(self.turned_up()) - len(self.seen)

    def faults(self) -> list[str]:
        """Return all faults, each kind once; empty if all is well."""
        found = list(self.noted)
        for what, keys in (("lost", self.lost()), ("invented", self.invented())):
            if keys:
                found.append(f"{self.name}: {len(keys)} {what}, such as {sorted(keys)[:5]}")
        if self.balance() != 0:
            found.append(f"{self.name}: the balance is {self.balance()}")
        return found


def _union(sets: list[set[Key]]) -> set[Key]:
    return set().union(*sets)


def summary(faults: list[str], most: int = 20) -> list[str]:
    """Return the first of many faults."""
    kinds = Counter(fault.partition(":")[0] for fault in faults)
    more = [f"… {len(faults)} in all: {dict(kinds)}"] if len(faults) > most else []
    return faults[:most] + more
