"""Scheduled messages of one queue: held back until their time has come.

A heap by due time, then by order of arrival: adding and taking cost O(log n), looking at the next
costs nothing, so that a million waiting messages do not slow the pulse.
"""

from heapq import heappop, heappush

from mypy_extensions import i64

from leveret.engine.message import Message


class Scheduled:
    """Messages by due time."""

    def __init__(self) -> None:
        self.body_bytes: i64 = 0
        self._heap: list[tuple[int, int, Message]] = []
        self._serial: int = 0  # order of arrival among equal due times

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, message: Message, due_ms: i64) -> None:
        self._serial += 1
        self.body_bytes += len(message.body)
        heappush(self._heap, (due_ms, self._serial, message))

    def next_due_ms(self) -> i64:
        """When the next message is due; 0 = there is none."""
        return self._heap[0][0] if self._heap else 0

    def pop_due(self, now_ms: i64) -> Message | None:
        """Take the next message if it is due."""
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        message = heappop(self._heap)[2]
        self.body_bytes -= len(message.body)
        return message

    def clear(self) -> list[object]:
        """Forget everything; what was held is returned so that it can be freed in slices."""
        held: list[object] = list(self._heap)
        self._heap = []
        self.body_bytes = 0
        return held

    def entries(self) -> list[tuple[int, Message]]:
        """All messages with their due times, in the order in which they will be due."""
        return [(due, message) for due, _, message in sorted(self._heap)]
