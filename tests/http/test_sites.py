"""Requests that pages of other sites make a browser send, and requests under foreign names."""

import socket
from collections.abc import Iterator

import pytest

from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask, ask_whole

JOBS = ("/enqueue", "/dequeue", "/ack", "/nack", "/extend", "/cancel", "/dead/delete")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    names = "mq.example.com, other.example.com:8443"
    with broker(http=True, http_allowed_hosts=names, http_trusted_proxies="127.0.0.9") as running:
        yield running


def status(server: RunningBroker, method: str, path: str, **headers: str) -> int:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    body: dict[str, str] | None = None if method == "GET" else {}
    return ask_whole(server, method, path, body, headers=sent)[0]


OTHER_SITES = [
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
    {"Origin": "http://evil.example"},
    {"Origin": "http://localhost:3000"},
    {"Origin": "null"},
    {"Origin": "http://["},
    {"Origin": "http://evil.example", "Sec_Fetch_Site": "cross-site"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "https://other.example.com"},
]


@pytest.mark.parametrize("headers", OTHER_SITES)
@pytest.mark.parametrize("path", ["/api/vhosts/v", "/api/queues/%2F/q", *JOBS])
def test_pages_of_other_sites_may_not_change_anything(
    server: RunningBroker, path: str, headers: dict[str, str]
) -> None:
    method = "PUT" if path.startswith("/api") else "POST"
    assert status(server, method, path, **headers) == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_every_method_that_may_change_something_is_checked(
    server: RunningBroker, method: str
) -> None:
    path = {"POST": "/api/definitions", "PUT": "/api/vhosts/v", "DELETE": "/api/vhosts/v"}[method]
    assert status(server, method, path, Origin="http://evil.example") == 403


def test_refusal_names_the_setting(server: RunningBroker) -> None:
    found = ask(server, "PUT", "/api/vhosts/v", {}, headers={"Origin": "http://evil.example"})
    assert "http_allowed_hosts" in found[1]["reason"]
    found = ask(server, "POST", "/enqueue", {}, headers={"Origin": "http://evil.example"})
    assert "http_allowed_hosts" in found[1]["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec_Fetch_Site": "same-origin"},
        {"Sec_Fetch_Site": "none"},
        {"Origin": "https://anything.example", "Sec_Fetch_Site": "same-origin"},
        {"Host": "broker:15672", "Origin": "http://broker:15672"},
        {"Host": "broker", "Origin": "http://broker:80"},
        {"Host": "Broker:443", "Origin": "https://BROKER"},
        {"Origin": "https://mq.example.com"},
        {"Origin": "https://mq.example.com:99", "Sec_Fetch_Site": "same-site"},
        {"Origin": "https://other.example.com:8443"},
    ],
)
def test_own_page_and_programs_may_change_things(
    server: RunningBroker, headers: dict[str, str]
) -> None:
    assert status(server, "PUT", "/api/vhosts/v", **headers) in (201, 204)


def test_pages_of_other_sites_may_link_to_the_page(server: RunningBroker) -> None:
    assert status(server, "GET", "/", Sec_Fetch_Site="cross-site", Origin="http://x.example") == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:15672", "evil.example.", "a.b:1:2", "1.2.3.4.evil.com"]
)
@pytest.mark.parametrize("path", ["/", "/metrics", "/api/overview", "/api/health"])
def test_local_request_under_a_foreign_name_is_refused(
    server: RunningBroker, host: str, path: str
) -> None:
    code, data, _ = ask_whole(server, "GET", path, headers={"Host": host})
    assert code == 421
    assert b"http_allowed_hosts" in data


@pytest.mark.parametrize("path", JOBS)
def test_jobs_are_refused_under_a_foreign_name(server: RunningBroker, path: str) -> None:
    assert status(server, "POST", path, Host="evil.example") == 421


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:15672",
        "localhost.",
        "app.localhost",
        "127.0.0.1:15672",
        "192.0.2.7",
        "[::1]:15672",
        "leveret:15672",
        "leveret.default.svc.cluster.local:15672",
        "leveret.default.svc",
        "host.docker.internal",
        "mq.example.com",
        "mq.example.com:9",
        "other.example.com:8443",
        socket.gethostname(),
    ],
)
def test_own_names_are_accepted(server: RunningBroker, host: str) -> None:
    assert status(server, "GET", "/api/overview", Host=host) == 200


def test_setting_can_allow_every_name_but_not_every_site() -> None:
    with broker(http=True, http_allowed_hosts="*") as server:
        assert status(server, "GET", "/api/overview", Host="evil.example") == 200
        assert status(server, "PUT", "/api/vhosts/v", Origin="http://evil.example") == 403


@pytest.mark.parametrize("name", ["Host", "Origin"])
def test_request_that_names_two_sites_is_refused(server: RunningBroker, name: str) -> None:
    lines = [f"{name}: 127.0.0.1", f"{name}: evil.example", "Connection: close"]
    if name != "Host":
        lines.insert(0, "Host: 127.0.0.1")
    head = "\r\n".join(["GET /api/overview HTTP/1.1", *lines, "", ""])
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as client:
        client.sendall(head.encode())
        assert client.makefile("rb").readline().startswith(b"HTTP/1.1 400 ")
