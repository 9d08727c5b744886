"""The account of a queue that several consumers take messages from at the same time.

Each consumer is a thread. One that has lost its connection without knowing may look at a delivery
long after another consumer got the same message and settled it. So this account does not compare
the order of deliveries. A message that was settled for good must not be settled for good again, and
only one delivery of a message may be without the flag `redelivered`.
"""

import threading
from dataclasses import dataclass, field

from tools.chaos.accounts import Account, Key
from tools.chaos.bodies import Label


@dataclass
class SharedAccount(Account):
    """The known state of one queue; all consumers may write it."""

    _first: set[Key] = field(default_factory=set)  # delivered without the flag
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin_session(self) -> None:
        """Other consumers go on: the queue does not begin again at its head."""

    def on_delivery(self, label: Label | None, *, redelivered: bool, now_ms: int) -> None:
        """Note a delivery."""
        with self._lock:
            self.deliveries += 1
            if label is None:
                self._note("delivered a body that nobody sent")
                return
            if self.is_direct and not redelivered:
                if label.key in self._first:
                    self._note(f"delivered {label.key} again without saying so")
                self._first.add(label.key)
            self.seen.add(label.key)

    def settle(self, keys: list[Key]) -> None:
        """Note safe acks or rejects. Each message has one in its life."""
        with self._lock:
            for key in keys:
                if key in self.settled:
                    self._note(f"delivered {key} again, whose ack was on disk")
                self.settled.add(key)
