"""Slow down password guessing without hurting other users.

Failures are counted per address and user, and per address alone. The first count slows down
guessing the password of one user, the second trying many users. After some free failures, each
further failure doubles the time in which logins are refused without a password check. Logins from
other addresses are not affected, and refused logins do not prolong the wait. A success clears the
failures of that address and user.

IPv6 addresses are counted by their /64 network, because its owner can use every address in it.
Memory is bounded: the last `RECORDS_MAX` records are kept.
"""

from socket import AF_INET6, inet_pton
from typing import Final

RECORDS_MAX: Final = 10_000
WINDOW_MS: Final = 300_000  # failures are forgotten after this time without a new one
WAIT_MS_MIN: Final = 1_000  # after the first failure beyond the free ones; then doubled
WAIT_MS_MAX: Final = 30_000
FAILURES_FREE: Final = 10  # per address and user; a setting
ADDRESS_FACTOR: Final = 10  # an address alone may fail this many times more often

_ANY_USER: Final = ""
_IPV4_MAPPED: Final = bytes(10) + b"\xff\xff"


class _Record:
    """The failures of one address, with one user or with any."""

    __slots__ = ("failures", "is_reported", "last_ms", "until_ms")

    def __init__(self) -> None:
        self.failures = 0
        self.last_ms = 0
        self.until_ms = 0  # logins are refused until then
        self.is_reported = True  # the current wait was written to the audit log


class LoginThrottle:
    """Recent login failures, and the waits that follow from them."""

    def __init__(self, failures_free: int = FAILURES_FREE) -> None:
        self._free = failures_free  # 0: no throttling
        self._records: dict[tuple[str, str], _Record] = {}  # in the order of the last failure

    def wait_ms(self, host: str, user: str, now_ms: int) -> int:
        """Return how long logins of this user from this address are refused; 0 if they are not."""
        network = _network(host)
        return max(
            self._wait_of((network, _user(user)), now_ms),
            self._wait_of((network, _ANY_USER), now_ms),
        )

    def is_first_report(self, host: str, user: str) -> bool:
        """Return True once for each wait, so that an attacker cannot fill the audit log."""
        network = _network(host)
        found = False
        for key in ((network, _user(user)), (network, _ANY_USER)):
            record = self._records.get(key)
            if record is not None and not record.is_reported:
                record.is_reported = found = True
        return found

    def failed(self, host: str, user: str, now_ms: int) -> None:
        if self._free == 0:
            return
        network = _network(host)
        self._note((network, _user(user)), self._free, now_ms)
        self._note((network, _ANY_USER), self._free * ADDRESS_FACTOR, now_ms)

    def succeeded(self, host: str, user: str) -> None:
        self._records.pop((_network(host), _user(user)), None)

    def _wait_of(self, key: tuple[str, str], now_ms: int) -> int:
        record = self._records.get(key)
        return max(0, record.until_ms - now_ms) if record is not None else 0

    def _note(self, key: tuple[str, str], free: int, now_ms: int) -> None:
        record = self._records.pop(key, None)
        if record is None or now_ms - record.last_ms > WINDOW_MS:
            record = _Record()
        record.failures += 1
        record.last_ms = now_ms
        over = record.failures - free
        if over > 0:
            wait_ms = WAIT_MS_MIN << min(over - 1, 16)
            record.until_ms = now_ms + min(wait_ms, WAIT_MS_MAX)
            record.is_reported = False
        self._records[key] = record
        if len(self._records) > RECORDS_MAX:
            del self._records[next(iter(self._records))]


def _user(name: str) -> str:
    return "u" + name  # an empty name differs from _ANY_USER


def _network(host: str) -> str:
    if ":" not in host:
        return host
    try:
        address = inet_pton(AF_INET6, host.partition("%")[0])
    except OSError:
        return host
    if address.startswith(_IPV4_MAPPED):
        return ".".join(str(part) for part in address[-4:])
    return address[:8].hex(":", 2)
