"""The line of password checks that wait for the hashing thread, fair between addresses.

Networks take turns: a flood from one network delays a check of another by one hash. The users of
one network take turns too. One network has at most `NETWORK_WAITING_MAX` checks in the line. When
that limit or the limit of the line is reached, a check of a user or network with few checks takes
the place of the youngest check of the user or network with the most.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

WAITING_MAX: Final = 1_024  # limit for all networks together: about a minute of hashing
# Limit for one network: two seconds of hashing, or eight on a slow machine. A login may take ten.
NETWORK_WAITING_MAX: Final = 32

Answer = Callable[[bool | None], None]  # None: not checked, because too many checks wait


class PasswordCheck:
    """One hash to compute, and the callbacks that wait for its result."""

    __slots__ = ("askers", "digest", "network", "on_end", "user", "work")

    def __init__(
        self, network: str, user: str, digest: bytes, work: Callable[[], bool], on_end: Answer
    ) -> None:
        self.network = network
        self.user = user
        self.digest = digest
        self.work = work
        self.on_end = on_end  # called once, before the callbacks
        self.askers: list[Answer] = []


class FairQueue:
    """Waiting checks by network and user."""

    def __init__(self) -> None:
        # The network whose turn it is comes first.
        self._networks: OrderedDict[str, _NetworkLine] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, check: PasswordCheck) -> PasswordCheck | None:
        """Add a check. Return the check that got no place in a full line; it may be this one."""
        own = self._networks.get(check.network)
        displaced: PasswordCheck | None = None
        if own is not None and own.count >= NETWORK_WAITING_MAX:
            displaced = own.maybe_displaced(check.user)
            if displaced is None:
                return check
        elif self._count >= WAITING_MAX:
            longest = max(self._networks.values(), key=_count)
            if longest.count <= (own.count if own is not None else 0) + 1:
                return check
            displaced = longest.youngest()
        if displaced is not None:
            self.remove(displaced)
        self._networks.setdefault(check.network, _NetworkLine()).add(check)
        self._count += 1
        return displaced

    def remove(self, check: PasswordCheck) -> bool:
        """Remove a check. Return False if it is not in the line."""
        line = self._networks.get(check.network)
        if line is None or not line.remove(check):
            return False
        self._count -= 1
        if line.count == 0:
            del self._networks[check.network]
        return True

    def take(self) -> PasswordCheck | None:
        """Remove and return the next check; None if none waits."""
        if not self._networks:
            return None
        network, line = next(iter(self._networks.items()))
        check = line.next()
        self._networks.move_to_end(network)
        self.remove(check)
        return check


class _NetworkLine:
    """The waiting checks of one network."""

    def __init__(self) -> None:
        self.count = 0
        # The user whose turn it is comes first; the checks of each are in the order of arrival.
        self._users: OrderedDict[str, OrderedDict[bytes, PasswordCheck]] = OrderedDict()

    def add(self, check: PasswordCheck) -> None:
        self._users.setdefault(check.user, OrderedDict())[check.digest] = check
        self.count += 1

    def remove(self, check: PasswordCheck) -> bool:
        checks = self._users.get(check.user)
        if checks is None or checks.pop(check.digest, None) is None:
            return False
        self.count -= 1
        if not checks:
            del self._users[check.user]
        return True

    def next(self) -> PasswordCheck:
        """Return the check whose turn it is, and give the turn to the next user."""
        user, checks = next(iter(self._users.items()))
        self._users.move_to_end(user)
        return next(iter(checks.values()))

    def maybe_displaced(self, user: str) -> PasswordCheck | None:
        """Return the check that a new check of this user displaces, or None."""
        own = len(self._users.get(user, ()))
        return self.youngest() if max(map(len, self._users.values())) > own + 1 else None

    def youngest(self) -> PasswordCheck:
        """Return the youngest check of the user with most checks."""
        return next(reversed(max(self._users.values(), key=len).values()))


def _count(line: _NetworkLine) -> int:
    return line.count
