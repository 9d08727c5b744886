"""Throttling of logins: who guesses passwords must wait, and nobody else.

Failures are counted for an address together with the user that it tried, and for the address alone:
the first slows down guessing at one user, the second going through many. After some free failures
each further one doubles the time in which attempts are refused without being looked at. A right
password from another address is never refused, and attempts that are refused do not prolong the
wait. A success forgets the failures of that address and user.

IPv6 addresses count by their /64: whoever has one of these has them all. Memory is bounded: the
`RECORDS_MAX` that failed last are kept.
"""

from socket import AF_INET6, inet_pton
from typing import Final

RECORDS_MAX: Final = 10_000
WINDOW_MS: Final = 300_000  # failures are forgotten after so long without another
WAIT_MS_MIN: Final = 1_000  # after the first failure that is not free; then doubled
WAIT_MS_MAX: Final = 30_000
FAILURES_FREE: Final = 10  # of an address and user; a setting
ADDRESS_FACTOR: Final = 10  # of an address with any users: so many times more

_ANY_USER: Final = ""
_IPV4_MAPPED: Final = bytes(10) + b"\xff\xff"


class _Record:
    """The failures of one address, alone or with a user."""

    __slots__ = ("failures", "is_told", "last_ms", "until_ms")

    def __init__(self) -> None:
        self.failures = 0
        self.last_ms = 0
        self.until_ms = 0  # attempts are refused until then
        self.is_told = True  # the present wait was reported


class LoginThrottle:
    """Failures of the recent past."""

    def __init__(self, failures_free: int = FAILURES_FREE) -> None:
        self._free = failures_free  # 0: no throttling
        self._records: dict[tuple[str, str], _Record] = {}  # in the order of the last failure

    def wait_ms(self, host: str, user: str, now_ms: int) -> int:
        """How long attempts from there are refused; 0 where they are not."""
        network = _network(host)
        return max(
            self._wait_of((network, _user(user)), now_ms),
            self._wait_of((network, _ANY_USER), now_ms),
        )

    def is_news(self, host: str, user: str) -> bool:
        """Whether the present wait is told for the first time: an attacker must not fill logs."""
        network = _network(host)
        found = False
        for key in ((network, _user(user)), (network, _ANY_USER)):
            record = self._records.get(key)
            if record is not None and not record.is_told:
                record.is_told = found = True
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
            record.is_told = False
        self._records[key] = record
        if len(self._records) > RECORDS_MAX:
            del self._records[next(iter(self._records))]


def _user(name: str) -> str:
    return "u" + name  # so that an empty name is not any user


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
