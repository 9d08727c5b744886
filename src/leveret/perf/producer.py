"""A producer: blocks of messages as fast as socket, confirms and rate allow.

One that has sent its share of a counted load waits for the confirms that are missing and is `done`.
"""

import time
from typing import Final

from leveret.perf.client import Client
from leveret.perf.confirms import Confirms
from leveret.perf.load import Load
from leveret.perf.protocol import STAMP_BYTES, Publishes, Template
from leveret.perf.schedule import Pace, Phases, pace
from leveret.perf.worker import Worker
from leveret.wire.tables import table_of

WAIT_S: Final = 0.1  # the longest wait in one piece, so that a stop is noticed


class Producer(Worker):
    """One connection that publishes."""

    def __init__(self, load: Load, queues: list[str], number: int) -> None:
        self.confirms = Confirms(load.confirm_window, load.burst)
        super().__init__(Client(load, self.confirms))
        self._load = load
        self._keys = list(load.routing_keys) or queues
        headers = table_of(dict(load.headers))
        self._template = Template(load.exchange, load.persistent, headers, load.mandatory)
        self._publishes = self._publishes_of(load.sizes)
        # Counted loads are shared out: the first ones take what is left over.
        self._left = share(load.messages, load.producers, number) if load.messages else -1
        self.done = False
        self.last_s = 0.0  # when it last sent or had an answer, by the monotonic clock
        if load.confirm_window:
            self.client.select_confirms()

    def work(self) -> None:
        """Send until told to stop, or until the share is sent and settled."""
        load = self._load
        steps = pace(load.rate, load.variable_rate, load.producers, self.start_s)
        sizes = Phases(load.variable_size, self.start_s) if load.variable_size else None
        if sizes is not None:
            self._publishes = self._publishes_of((sizes.value,))
        confirms = self.confirms
        client = self.client
        # Returned messages must be read, or the broker stops reading from us.
        looks = load.mandatory and not load.confirm_window
        while not self.stopping and self._left != 0:
            count = int(confirms.allowed())
            if count == 0:
                client.read()
                continue
            if self._left > 0:
                count = min(count, self._left)
            if steps is not None and not self._wait(steps):
                continue
            if sizes is not None and sizes.move(time.monotonic()):
                self._publishes = self._publishes_of((sizes.value,))
            now_ns = time.monotonic_ns()
            confirms.note_block(count, now_ns)
            client.send(self._publishes.block(count, now_ns))
            if self._left > 0:
                self._left -= count
            if looks:
                client.read_within(0.0)
        self._finish()

    def _finish(self) -> None:
        """Wait for what is not settled, unless the time is over."""
        while not self.stopping and self._load.confirm_window and self.confirms.unsettled():
            self.client.read()
        self.last_s = time.monotonic()
        self.done = True
        while not self.stopping:
            self.client.read_within(WAIT_S)

    def _wait(self, steps: Pace) -> bool:
        """Wait for the time of the next block; whether it has come."""
        wait_s = steps.wait_s(int(self.confirms.sent), time.monotonic())
        if wait_s <= 0:
            return True
        if self._load.confirm_window:
            self.client.read_within(min(wait_s, WAIT_S))
            return False
        time.sleep(min(wait_s, WAIT_S))
        return wait_s <= WAIT_S

    def _publishes_of(self, sizes: tuple[int, ...]) -> Publishes:
        stamped = is_stamped(self._load)
        return Publishes(self._template, self._keys, list(sizes), stamped, self._load.burst)


def share(total: int, workers: int, number: int) -> int:
    """What worker `number` does of so much."""
    return total // workers + (1 if number < total % workers else 0)


def is_stamped(load: Load) -> bool:
    """Whether every body has room for its send time."""
    return min([*load.sizes, *(size for size, _ in load.variable_size)]) >= STAMP_BYTES
