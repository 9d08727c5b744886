"""Limit the open HTTP connections: in all, of one address, and by descriptors.

A connection is idle while no complete request of it waits for an answer: between two requests, and
while a request is arriving. A connection that is one too many closes the connection that has been
idle longest, of the same address if the address has reached its limit. So clients that connect and
send nothing, or send slowly, cannot keep others out. Each part of a body begins a new idle
time, so that an upload is not closed first. If no connection is idle, the new one is refused, with
two exceptions in `RESERVED` further places:

- a client of this machine is served as usual;
- a client of another machine gets answers to health checks alone, and 503 for everything else.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from leveret.addresses import is_loopback, network_of
from leveret.config.settings import Settings
from leveret.listening import NO_DESCRIPTORS, Networks, Refusals

log = logging.getLogger(__name__)

RESERVED: Final = 64  # places for local clients and for health checks
HEALTH_PATH: Final = b"/api/health"  # and everything below it

TOO_MANY: Final = "there are too many HTTP connections"
TOO_MANY_OF_ADDRESS: Final = "its address has too many HTTP connections"


class Network:
    """The connections of one address."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.idle: OrderedDict[Place, None] = OrderedDict()  # longest idle first


class Place:
    """One open connection, while its protocol exists."""

    def __init__(self, network: Network, abort: Callable[[], None], *, is_reserved: bool) -> None:
        self.network = network
        self.abort = abort
        self.is_reserved = is_reserved  # it is one of those above the limit


class OpenConnections:
    """All HTTP connections of a node."""

    def __init__(
        self, *, most: int, of_address_max: int, descriptors_end: int, proxies: Networks
    ) -> None:
        self._most = most
        self._of_address_max = of_address_max  # 0: no limit
        self._descriptors_end = descriptors_end  # first descriptor that is refused; 0: no limit
        self._proxies = proxies  # their many clients share one address
        self._networks: dict[str, Network] = {}
        self._idle: OrderedDict[Place, None] = OrderedDict()  # longest idle first
        self._count = 0
        self._refusals = Refusals(log)

    def enter(self, host: str, descriptor: int) -> bool:
        """Count a new connection. Return False, and count nothing, to refuse it."""
        name = network_of(host)
        network = self._networks.get(name)
        if network is not None and self._is_full(network) and not self._close_one(network.idle):
            self._refusals.note(TOO_MANY_OF_ADDRESS, host)
            return False
        is_over = 0 < self._descriptors_end <= descriptor
        if is_over and not self._close_one(self._idle):
            self._refusals.note(NO_DESCRIPTORS, host)
            return False
        if self._count >= self._most and not is_over and not self._close_one(self._idle):
            if self._count >= self._most + RESERVED:
                self._refusals.note(TOO_MANY, host)
                return False
        network = self._networks.setdefault(name, Network(name))
        network.count += 1
        self._count += 1
        return True

    def _is_full(self, network: Network) -> bool:
        is_limited = self._of_address_max > 0 and not self._proxies.has(network.name)
        return is_limited and network.count >= self._of_address_max

    def _close_one(self, idle: OrderedDict[Place, None]) -> bool:
        """Close the connection that has been idle longest. Return False if none is idle."""
        if not idle:
            return False
        place = next(iter(idle))
        self.note_busy(place)  # it is closed once, even if more clients come before it is gone
        place.abort()
        return True

    def leave(self, host: str) -> None:
        """Uncount a connection that has ended."""
        self._uncount(self._networks.get(network_of(host)))

    def _uncount(self, network: Network | None) -> None:
        if network is None:
            return
        self._count -= 1
        network.count -= 1
        if network.count == 0:
            del self._networks[network.name]

    def place(self, host: str, abort: Callable[[], None]) -> Place:
        """Return the place of a connection that has entered. It is idle at first."""
        name = network_of(host)
        network = self._networks.setdefault(name, Network(name))
        is_reserved = self._count > self._most and not is_loopback(host)
        place = Place(network, abort, is_reserved=is_reserved)
        self.note_idle(place)
        return place

    def end(self, place: Place) -> None:
        """Give up a place."""
        self.note_busy(place)
        self._uncount(place.network)

    def note_idle(self, place: Place) -> None:
        self._idle[place] = None
        place.network.idle[place] = None

    def note_busy(self, place: Place) -> None:
        self._idle.pop(place, None)
        place.network.idle.pop(place, None)

    def note_sending(self, place: Place) -> None:
        """Note that a part of a body has arrived."""
        if place in self._idle:
            self._idle.move_to_end(place)
            place.network.idle.move_to_end(place)

    def serves(self, place: Place, path: bytes) -> bool:
        """Return False for a request that must be refused, because it came in a reserved place."""
        if not place.is_reserved or self._count <= self._most:
            return True
        return path == HEALTH_PATH or path.startswith(HEALTH_PATH + b"/")


def open_connections(settings: Settings, descriptors_end: int = 0) -> OpenConnections:
    """Return the limits that a node has for its HTTP connections."""
    return OpenConnections(
        most=settings.http_connections_max,
        of_address_max=settings.http_connections_per_address_max,
        descriptors_end=descriptors_end,
        proxies=Networks(settings.http_trusted_proxies),
    )
