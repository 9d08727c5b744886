"""The client of a request: behind trusted proxies, and behind proxies that no setting names."""

from base64 import b64encode
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from leveret.testing.broker import RunningBroker, broker
from tests.http.management import Api, add_user

PROXY = "127.0.0.9"
SECOND_PROXY = "10.0.0.7"
CLIENT = "192.0.2.7"
GUEST = "Basic Z3Vlc3Q6Z3Vlc3Q="
SHOP = "Basic c2hvcDpzaG9w"
GUESSES_MAX = 100
Headers = list[tuple[str, str]]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    proxies = f"{PROXY},10.0.0.0/8,2001:db8::/32"
    with broker(http=True, http_trusted_proxies=proxies) as running:
        add_user(Api(running), "shop", "administrator")
        yield running


def status(
    server: RunningBroker,
    headers: Headers,
    *,
    source: str,
    login: str = GUEST,
    path: str = "/api/whoami",
    method: str = "GET",
) -> int:
    connection = HTTPConnection(
        server.host, server.http_port, timeout=60, source_address=(source, 0)
    )
    connection.putrequest(method, path)
    for name, value in [*headers, ("Content-Length", "0")]:
        connection.putheader(name, value)
    if login:
        connection.putheader("Authorization", login)
    connection.endheaders()
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def client_seen(server: RunningBroker, headers: Headers, source: str = PROXY) -> str:
    """Return the address in the audit of a request with these headers."""
    path = "/api/vhosts/nothing"
    status(server, headers, source=source, login=SHOP, path=path, method="DELETE")
    newest = Api(server).get("audit?limit=1")[0]
    assert (newest["user"], newest["target"]) == ("shop", path)
    return str(newest["peer"])


@pytest.mark.parametrize(
    ("headers", "client"),
    [
        ([("X-Forwarded-For", CLIENT)], CLIENT),
        ([("X-Forwarded-For", f"127.0.0.1, {CLIENT}")], CLIENT),
        ([("X-Forwarded-For", f"1.1.1.1, {CLIENT}, {SECOND_PROXY}")], CLIENT),
        ([("X-Forwarded-For", CLIENT), ("X-Forwarded-For", SECOND_PROXY)], CLIENT),
        ([("X-Forwarded-For", f"{CLIENT}:4711")], CLIENT),
        ([("X-Forwarded-For", "[2001:db9::1]:4711")], "2001:db9::1"),
        ([("X-Forwarded-For", f"{SECOND_PROXY},10.9.9.9")], SECOND_PROXY),
        ([("Forwarded", f"for=1.1.1.1, for={CLIENT};proto=https")], CLIENT),
        ([("Forwarded", 'for="[2001:db9::1]:4711"')], "2001:db9::1"),
        ([("Forwarded", f"For={CLIENT}"), ("X-Forwarded-For", CLIENT)], CLIENT),
        ([("Forwarded", "for=127.0.0.1"), ("X-Forwarded-For", CLIENT)], PROXY),
        ([("X-Forwarded-For", "nobody")], PROXY),
        ([("X-Forwarded-For", f"{CLIENT}, unknown")], PROXY),
        ([("Forwarded", "for=_hidden")], PROXY),
        ([("Forwarded", "proto=https")], PROXY),
        ([("X-Real-IP", CLIENT)], PROXY),
        ([], PROXY),
    ],
)
def test_client_behind_a_trusted_proxy(
    server: RunningBroker, headers: Headers, client: str
) -> None:
    assert client_seen(server, headers) == client


def test_peer_that_is_not_trusted_names_no_client(server: RunningBroker) -> None:
    assert client_seen(server, [("X-Forwarded-For", CLIENT)], "127.0.0.2") == "127.0.0.2"


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
@pytest.mark.parametrize("source", [PROXY, "127.0.0.1"])
def test_forwarded_request_is_not_local(server: RunningBroker, name: str, source: str) -> None:
    headers = [(name, f"for={CLIENT}" if name == "Forwarded" else CLIENT)]
    assert status(server, headers, source=source) == 401
    assert status(server, headers, source=source, login=SHOP) == 200
    assert status(server, headers, source=source, login="", path="/metrics") == 401
    assert status(server, [], source=source) == 200
    assert status(server, [], source=source, login="", path="/metrics") == 200


def test_client_cannot_claim_to_be_local(server: RunningBroker) -> None:
    spoofed = [("X-Forwarded-For", "127.0.0.1")]
    assert status(server, spoofed, source="127.0.0.2") == 401
    passed_on = [("X-Forwarded-For", f"127.0.0.1, {CLIENT}")]
    assert status(server, passed_on, source=PROXY) == 401


def test_local_client_of_a_local_proxy_is_local(server: RunningBroker) -> None:
    assert status(server, [("X-Forwarded-For", "127.0.0.1")], source=PROXY) == 200


def test_wrong_passwords_of_one_client_do_not_delay_other_clients_of_the_proxy(
    server: RunningBroker,
) -> None:
    guesser = [("X-Forwarded-For", "192.0.2.66")]
    for number in range(GUESSES_MAX):
        guess = f"Basic {b64encode(b'shop:wrong%d' % number).decode()}"
        if status(server, guesser, source=PROXY, login=guess) == 429:
            break
    else:
        pytest.fail("the client was never told to wait")
    others = [("X-Forwarded-For", CLIENT)]
    assert status(server, others, source=PROXY, login=SHOP) == 200
