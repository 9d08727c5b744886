"""A producer: send blocks of messages as fast as the socket, the confirms and the rate allow.

If the load has a number of messages, each producer sends its share, waits for the missing confirms
and is then `done`.
"""

import time
from typing import Final

from leveret.perf.client import Client
from leveret.perf.confirms import Confirms
from leveret.perf.load import Load
from leveret.perf.pacing import Pace, Phases, make_pace
from leveret.perf.protocol import STAMP_BYTES, Publishes, Template
from leveret.perf.worker import Worker
from leveret.wire.tables import table_of

WAIT_S: Final = 0.1  # maximum sleep, so that a stop is noticed


class Producer(Worker):
    """One connection that publishes."""

    def __init__(self, load: Load, queues: list[str], number: int) -> None:
        self.confirms = Confirms(load.confirm_window, load.burst)
        super().__init__(Client(load, self.confirms))
        self._load = load
        self._keys = list(load.routing_keys) or queues
        headers = table_of(dict(load.headers))
        self._template = Template(load.exchange, load.persistent, headers, load.mandatory)
        self._publishes = self._make_publishes(load.sizes)
        # Messages still to send; -1 = no limit.
        self._left = share(load.messages, load.producers, number) if load.messages else -1
        self.done = False
        self.last_s = 0.0  # when it last sent or was answered, by the monotonic clock
        if load.confirm_window:
            self.client.select_confirms()

    def work(self) -> None:
        """Send until `stopping`, or until the share is sent and settled."""
        load = self._load
        pace = make_pace(load.rate, load.variable_rate, load.producers, self.start_s)
        sizes = Phases(load.variable_size, self.start_s) if load.variable_size else None
        if sizes is not None:
            self._publishes = self._make_publishes((sizes.value,))
        confirms = self.confirms
        client = self.client
        # Read returned messages, or the broker stops reading from us.
        reads_returns = load.mandatory and not load.confirm_window
        while not self.stopping and self._left != 0:
            count = int(confirms.allowed())
            if count == 0:
                client.read()
                continue
            if self._left > 0:
                count = min(count, self._left)
            if pace is not None and not self._wait(pace):
                continue
            if sizes is not None and sizes.move(time.monotonic()):
                self._publishes = self._make_publishes((sizes.value,))
            now_ns = time.monotonic_ns()
            confirms.note_block(count, now_ns)
            client.send(self._publishes.block(count, now_ns))
            if self._left > 0:
                self._left -= count
            if reads_returns:
                client.read_within(0.0)
        self._finish()

    def _finish(self) -> None:
        """Wait for missing confirms, then keep the connection open until `stopping`."""
        while not self.stopping and self._load.confirm_window and self.confirms.unsettled():
            self.client.read()
        self.last_s = time.monotonic()
        self.done = True
        while not self.stopping:
            self.client.read_within(WAIT_S)

    def _wait(self, pace: Pace) -> bool:
        """Wait for the time of the next block, at most WAIT_S. Return True if it is due."""
        wait_s = pace.wait_s(int(self.confirms.sent), time.monotonic())
        if wait_s <= 0:
            return True
        if self._load.confirm_window:
            self.client.read_within(min(wait_s, WAIT_S))
            return False
        time.sleep(min(wait_s, WAIT_S))
        return wait_s <= WAIT_S

    def _make_publishes(self, sizes: tuple[int, ...]) -> Publishes:
        stamped = is_stamped(self._load)
        return Publishes(self._template, self._keys, list(sizes), stamped, self._load.burst)


def share(total: int, workers: int, number: int) -> int:
    """Return the part of `total` for worker `number`. The first workers take the remainder."""
    return total // workers + (1 if number < total % workers else 0)


def is_stamped(load: Load) -> bool:
    """Return True if every body is large enough for its send time."""
    return min([*load.sizes, *(size for size, _ in load.variable_size)]) >= STAMP_BYTES
