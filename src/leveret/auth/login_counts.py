"""Count successful and failed logins, by protocol and by source.

A source is an address, a user name and a protocol. Strangers can make up any number of sources, so
only the last `SOURCES_MAX` are kept.
"""

from typing import Final

SOURCES_MAX: Final = 10_000

Source = tuple[str, str, str]  # address, user, protocol


class OutcomeCounts:
    """Counts of logins that succeeded and failed."""

    __slots__ = ("failed", "succeeded")

    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0

    def add(self, succeeded: bool) -> None:
        if succeeded:
            self.succeeded += 1
        else:
            self.failed += 1


class LoginCounts:
    """Counts of logins since the start or the last reset."""

    def __init__(self) -> None:
        self.by_protocol: dict[str, OutcomeCounts] = {}
        self.by_source: dict[Source, OutcomeCounts] = {}  # in the order of the last attempt

    def count(self, host: str, user: str, protocol: str, *, succeeded: bool) -> None:
        self.by_protocol.setdefault(protocol, OutcomeCounts()).add(succeeded)
        source = (host, user, protocol)
        tally = self.by_source.pop(source, None) or OutcomeCounts()
        tally.add(succeeded)
        self.by_source[source] = tally
        if len(self.by_source) > SOURCES_MAX:
            del self.by_source[next(iter(self.by_source))]

    def reset(self) -> None:
        self.by_protocol.clear()
        self.by_source.clear()
