"""Leases: the deadlines of a queue's messages in flight, by receipt.

A heap by deadline. The entry of a lease that has ended or was extended stays in the heap until it
comes up, or until such entries are the greater part: then the heap is built again. So a queue whose
messages are acked in time keeps a heap as large as the number of messages in flight, and every
change costs O(log n) on average.
"""

from heapq import heapify, heappop, heappush
from typing import Final

from leveret.engine.timer_queue import NEVER

_DEAD_MIN: Final = 64  # entries without a lease that are not worth a new heap


class Leases:
    """Deadlines by receipt."""

    def __init__(self) -> None:
        self._deadlines: dict[int, int] = {}
        self.heap: list[tuple[int, int]] = []  # (deadline, receipt)

    def __contains__(self, receipt: int) -> bool:
        return receipt in self._deadlines

    def hold(self, receipt: int, deadline_ms: int) -> None:
        """Begin a lease, or move its deadline."""
        self._deadlines[receipt] = deadline_ms
        heappush(self.heap, (deadline_ms, receipt))
        if len(self.heap) > 2 * len(self._deadlines) + _DEAD_MIN:
            self.heap = [(deadline, held) for held, deadline in self._deadlines.items()]
            heapify(self.heap)

    def end(self, receipt: int) -> bool:
        """End a lease. Return False if there is none."""
        return self._deadlines.pop(receipt, None) is not None

    def pop_due(self, now_ms: int) -> int | None:
        """End one lease whose deadline has passed. Return its receipt, or None."""
        due_ms = self.next_due_ms()
        if due_ms == NEVER or due_ms > now_ms:
            return None
        receipt = heappop(self.heap)[1]
        del self._deadlines[receipt]
        return receipt

    def next_due_ms(self) -> int:
        """Return the earliest deadline, or NEVER."""
        heap = self.heap
        while heap:
            deadline_ms, receipt = heap[0]
            if self._deadlines.get(receipt) == deadline_ms:
                return deadline_ms
            heappop(heap)
        return NEVER
