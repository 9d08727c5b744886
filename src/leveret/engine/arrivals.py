"""When the messages of a queue came, about: marks of time by sequence number.

No message carries its time of arrival. Instead a queue that has taken messages notes, at most once
a second, which number was the first one of that moment: a message came with the last mark before it
or within a second after. There are at most `MARKS_MAX` marks; when there are more, every second one
of the older half goes, so that an old time is known less well than a young one.

What came before the node was started has no mark.
"""

from typing import Final

from mypy_extensions import i64

MARKS_MAX: Final = 256
STEP_MS: Final = 1000
UNKNOWN: Final = 0


class Arrivals:
    """Times by sequence number, both ascending."""

    def __init__(self) -> None:
        self.next_seq: i64 = 0  # all before have been accounted for
        self._last_ms: i64 = 0
        self._seqs: list[int] = []
        self._times: list[int] = []

    def note(self, next_seq: i64, now_ms: i64) -> None:
        """The messages up to a number have come by now."""
        if now_ms - self._last_ms >= STEP_MS:
            self._last_ms = now_ms
            self._seqs.append(self.next_seq)
            self._times.append(now_ms)
            if len(self._seqs) > MARKS_MAX:
                self._thin()
        self.next_seq = next_seq

    def _thin(self) -> None:
        half = MARKS_MAX // 2
        self._seqs = self._seqs[:half:2] + self._seqs[half:]
        self._times = self._times[:half:2] + self._times[half:]

    def time_of(self, seq: i64) -> i64:
        """When a message came; UNKNOWN where nobody noted it."""
        if seq >= self.next_seq:
            return UNKNOWN
        low: i64 = 0
        high: i64 = len(self._seqs)
        while low < high:
            middle = (low + high) // 2
            if self._seqs[middle] <= seq:
                low = middle + 1
            else:
                high = middle
        return self._times[low - 1] if low != 0 else UNKNOWN
