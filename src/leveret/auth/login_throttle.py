"""Slow down password guessing without refusing right passwords.

Guesses are counted per address and user. A guess is a password that must be hashed: passwords that
were right before, and wrong passwords that are repeated, need no hash and are not guesses. The
first `failures_free` failures are free. After them, each failure keeps a place for a while: for one
second at first, and twice as long after each further failure. A guess that is being checked has a
place too, so that many sockets at once gain nothing. When all `failures_free` places are taken, the
next guess is refused unchecked, and the client may try again later. A success forgets the failures.

An unchecked guess may be the right password, on an address from which somebody else guesses. A
program with the right password comes back with the same password, and a guesser with another one.
So a guess that was refused unchecked, and comes back after a second, is checked although all places
are taken: one guess in `PATIENT_MS` for each address and user.

Other users and other addresses are not affected, so that nobody can lock them out.

IPv6 addresses are counted by their /64 network, because its owner can use every address in it.
Memory is bounded: the last `RECORDS_MAX` records are kept.
"""

from collections import deque
from typing import Final

from leveret.addresses import network_of

RECORDS_MAX: Final = 10_000
WINDOW_MS: Final = 300_000  # failures are forgotten after this time without a new one
WAIT_MS_MIN: Final = 1_000  # wait after the first failure that is not free; then doubled
WAIT_MS_MAX: Final = 30_000
FAILURES_FREE: Final = 10  # per address and user; a setting
PATIENT_MS: Final = 1_000  # least time between two checks of guesses that came back
UNCHECKED_MAX: Final = 20_000  # remembered unchecked guesses, about 150 bytes each


Pair = tuple[str, str]  # network and user


class _Record:
    """The guesses of one address for one user."""

    __slots__ = ("checking", "failures", "held", "is_reported", "last_ms", "patient_ms")

    def __init__(self) -> None:
        self.failures = 0
        self.last_ms = 0
        self.checking = 0  # guesses that are being checked
        self.held: deque[int] = deque()  # until when each failed guess keeps its place
        self.patient_ms = 0  # when the next guess that came back is checked
        self.is_reported = True  # the last refusal was written to the audit log


class LoginThrottle:
    """Recent wrong guesses, and the waits that follow from them."""

    def __init__(self, failures_free: int = FAILURES_FREE) -> None:
        self._free = failures_free  # 0: no throttling
        self._records: dict[Pair, _Record] = {}  # in the order of the last guess
        # When guesses were first refused unchecked, by digest; the oldest first.
        self._unchecked: dict[bytes, int] = {}

    def begin(self, host: str, user: str, now_ms: int, digest: bytes = b"") -> int:
        """Count a guess that will be checked. Return 0, or how long it must wait instead.

        `digest` tells guesses of user and password apart. A guess that was begun ends with
        `failed`, `succeeded` or `dropped`.
        """
        if self._free == 0:
            return 0
        pair = (network_of(host), user)
        record = self._records.pop(pair, None)
        if record is None or (not record.checking and now_ms - record.last_ms > WINDOW_MS):
            record = _Record()
        self._records[pair] = record
        if len(self._records) > RECORDS_MAX:
            del self._records[next(iter(self._records))]
        while record.held and record.held[0] <= now_ms:
            record.held.popleft()
        if record.checking + len(record.held) >= self._free:
            if not self._is_patient(record, digest, now_ms):
                return record.held[0] - now_ms if record.held else WAIT_MS_MIN
            record.patient_ms = now_ms + PATIENT_MS
        record.checking += 1
        record.last_ms = now_ms
        return 0

    def _is_patient(self, record: _Record, digest: bytes, now_ms: int) -> bool:
        """Return True if a guess came back and may be checked now. Remember any other guess."""
        if not digest:
            return False
        first_ms = self._unchecked.get(digest)
        if first_ms is None:
            self._unchecked[digest] = now_ms
            if len(self._unchecked) > UNCHECKED_MAX:
                del self._unchecked[next(iter(self._unchecked))]
            return False
        if now_ms - first_ms < WAIT_MS_MIN or now_ms < record.patient_ms:
            return False
        del self._unchecked[digest]
        return True

    def is_first_report(self, host: str, user: str) -> bool:
        """Return True once after each failure, so that an attacker cannot fill the audit log."""
        record = self._records.get((network_of(host), user))
        if record is None or record.is_reported:
            return False
        record.is_reported = True
        return True

    def failed(self, host: str, user: str, now_ms: int) -> None:
        record = self._ended(host, user)
        if record is None:
            return
        record.failures += 1
        record.last_ms = now_ms
        record.is_reported = False
        over = record.failures - self._free
        if over > 0:
            wait_ms = WAIT_MS_MIN << min(over - 1, 16)
            record.held.append(now_ms + min(wait_ms, WAIT_MS_MAX))

    def succeeded(self, host: str, user: str) -> None:
        record = self._ended(host, user)
        if record is not None:
            record.failures = 0
            record.held.clear()

    def dropped(self, host: str, user: str) -> None:
        """Forget a guess that was not checked."""
        self._ended(host, user)

    def _ended(self, host: str, user: str) -> _Record | None:
        record = self._records.get((network_of(host), user))
        if record is not None:
            record.checking = max(0, record.checking - 1)
        return record
