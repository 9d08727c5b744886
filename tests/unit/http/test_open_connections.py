"""Which connection is closed or refused when there are too many."""

from leveret.http.transport.open_connections import RESERVED, OpenConnections, Place
from leveret.listening import Networks

LOCAL = "127.0.0.1"
REMOTE = "192.0.2.1"


class Crowd:
    """Open connections, and the names of those that were closed to make room."""

    def __init__(self, most: int, of_address_max: int = 0, end: int = 0, proxies: str = "") -> None:
        self.connections = OpenConnections(
            most=most,
            of_address_max=of_address_max,
            descriptors_end=end,
            proxies=Networks(proxies),
        )
        self.closed: list[str] = []
        self._places: dict[str, Place] = {}

    def open(self, name: str, host: str, *, is_busy: bool = False, descriptor: int = 1) -> bool:
        if not self.connections.enter(host, descriptor):
            return False
        self._places[name] = self.connections.place(host, lambda: self._end(name))
        if is_busy:
            self.connections.note_busy(self._places[name])
        return True

    def _end(self, name: str) -> None:
        self.closed.append(name)
        self.connections.end(self._places[name])

    def serves(self, name: str, path: str) -> bool:
        return self.connections.serves(self._places[name], path.encode())


def test_connection_over_the_limit_closes_the_one_that_is_idle_longest() -> None:
    crowd = Crowd(most=2)
    crowd.open("busy", REMOTE, is_busy=True)
    crowd.open("idle", REMOTE)
    assert crowd.open("new", "192.0.2.2")
    assert crowd.closed == ["idle"]
    assert crowd.serves("new", "/api/overview")


def test_address_over_its_limit_closes_its_own_connections_alone() -> None:
    crowd = Crowd(most=10, of_address_max=2)
    crowd.open("other", "192.0.2.2")
    for name in ("first", "second", "third"):
        assert crowd.open(name, REMOTE)
    assert crowd.closed == ["first"]


def test_address_over_its_limit_is_refused_if_all_its_connections_are_busy() -> None:
    crowd = Crowd(most=10, of_address_max=1)
    crowd.open("busy", "2001:db8::1", is_busy=True)
    assert not crowd.open("same network", "2001:db8::2")
    assert crowd.open("other network", "2001:db8:0:1::2")


def test_clients_of_a_trusted_proxy_have_no_limit_of_their_address() -> None:
    crowd = Crowd(most=10, of_address_max=1, proxies="192.0.2.0/24")
    assert crowd.open("one", REMOTE, is_busy=True)
    assert crowd.open("two", REMOTE, is_busy=True)


def test_reserved_places_serve_local_clients_and_health_checks() -> None:
    crowd = Crowd(most=1)
    crowd.open("busy", REMOTE, is_busy=True)
    assert crowd.open("local", LOCAL, is_busy=True)
    assert crowd.serves("local", "/api/overview")
    assert crowd.open("remote", "192.0.2.2", is_busy=True)
    assert not crowd.serves("remote", "/api/overview")
    assert not crowd.serves("remote", "/api/healthy")
    assert crowd.serves("remote", "/api/health")
    assert crowd.serves("remote", "/api/health/checks/alarms")
    assert crowd.serves("busy", "/api/overview")


def test_connections_are_refused_when_the_reserve_is_used_up() -> None:
    crowd = Crowd(most=1)
    for number in range(1 + RESERVED):
        assert crowd.open(str(number), REMOTE, is_busy=True)
    assert not crowd.open("one too many", LOCAL)


def test_connection_with_a_descriptor_over_the_limit_takes_the_place_of_an_idle_one() -> None:
    crowd = Crowd(most=10, end=100)
    crowd.open("idle", REMOTE)
    assert crowd.open("new", LOCAL, descriptor=100, is_busy=True)
    assert crowd.closed == ["idle"]
    assert not crowd.open("another", LOCAL, descriptor=100)


def test_connection_that_left_before_it_was_connected_is_not_counted() -> None:
    crowd = Crowd(most=10, of_address_max=1)
    assert crowd.connections.enter(REMOTE, 1)
    crowd.connections.leave(REMOTE)
    assert crowd.open("next", REMOTE)
