"""The leases of a topic, by job and by deadline.

The deadlines are in a heap. The entry of a lease that has ended or was extended stays in the heap
until it comes to the top, or until more than half of the entries are stale: then the heap is
rebuilt. Every change is O(log n).
"""

from heapq import heapify, heappop, heappush
from typing import Final

from leveret.engine.message import Message
from leveret.engine.timer_queue import NEVER
from leveret.job_service.embedded.envelope import Envelope

_STALE_MIN: Final = 64  # stale entries that are tolerated without a rebuild


class Lease:
    """One job that a worker holds."""

    __slots__ = ("envelope", "expires_ms", "id", "message", "token")

    def __init__(
        self, id: int, token: int, message: Message, envelope: Envelope, expires_ms: int
    ) -> None:
        self.id = id
        self.token = token
        self.message = message
        self.envelope = envelope
        self.expires_ms = expires_ms


class Leases:
    """All leases of a topic."""

    def __init__(self) -> None:
        self._by_id: dict[int, Lease] = {}
        self._heap: list[tuple[int, int]] = []  # deadline, token

        self._by_token: dict[int, Lease] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, id: int) -> bool:
        return id in self._by_id

    def get(self, id: int) -> Lease | None:
        return self._by_id.get(id)

    def all(self) -> list[Lease]:
        return list(self._by_id.values())

    def hold(self, lease: Lease) -> None:
        """Begin a lease, or record its new deadline."""
        self._by_id[lease.id] = lease
        self._by_token[lease.token] = lease
        heappush(self._heap, (lease.expires_ms, lease.token))
        if len(self._heap) > 2 * len(self._by_id) + _STALE_MIN:
            self._heap = [(held.expires_ms, held.token) for held in self._by_id.values()]
            heapify(self._heap)

    def end(self, lease: Lease) -> None:
        del self._by_id[lease.id]
        del self._by_token[lease.token]

    def pop_due(self, now_ms: int) -> Lease | None:
        """End and return the lease with the earliest deadline, if that has passed."""
        due_ms = self.next_due_ms()
        if due_ms == NEVER or due_ms > now_ms:
            return None
        lease = self._by_token[heappop(self._heap)[1]]
        self.end(lease)
        return lease

    def next_due_ms(self) -> int:
        """Return the earliest deadline, or NEVER."""
        heap = self._heap
        while heap:
            expires_ms, token = heap[0]
            lease = self._by_token.get(token)
            if lease is not None and lease.expires_ms == expires_ms:
                return expires_ms
            heappop(heap)
        return NEVER
