"""A user without the tag administrator sets a limited number of policies and parameters."""

from collections.abc import Iterator

import pytest

from leveret.definitions.room import BYTES_MAX, ENTRIES_MAX, PATTERNS_SIZE_MAX
from leveret.testing.broker import RunningBroker, broker
from leveret.testing.disk import FakeDisk
from tests.http.asking import ask, reason

MAKER = "maker:secret"
POLICY = {"pattern": "a", "definition": {"max-length": 5}}
UPSTREAM = {"value": {"uri": "amqp://u:p@example.com"}}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        user = {"password": "secret", "tags": "policymaker"}
        assert ask(server, "PUT", "/api/users/maker", user)[0] == 201
        yield server


@pytest.fixture
def vhost(server: RunningBroker) -> Iterator[str]:
    """A vhost of its own for each test, which the policymaker may open."""
    name = "room"
    permission = {"configure": ".*", "write": ".*", "read": ".*"}
    assert ask(server, "PUT", f"/api/vhosts/{name}")[0] == 201
    assert ask(server, "PUT", f"/api/permissions/{name}/maker", permission)[0] == 201
    yield name
    assert ask(server, "DELETE", f"/api/vhosts/{name}")[0] == 204


def put(server: RunningBroker, path: str, body: object, login: str = MAKER) -> tuple[int, str]:
    status, answer = ask(server, "PUT", path, body, login=login)
    return status, answer["reason"] if status >= 400 else ""


def fill(server: RunningBroker, vhost: str, rows: dict[str, list[dict[str, object]]]) -> None:
    assert ask(server, "POST", f"/api/definitions/{vhost}", rows)[0] in (200, 204)


def test_policies_of_a_vhost_are_limited(server: RunningBroker, vhost: str) -> None:
    fill(server, vhost, {"policies": [{"name": f"p{n}", **POLICY} for n in range(ENTRIES_MAX)]})
    text = (
        f"policies of vhost '{vhost}': there are {ENTRIES_MAX}, and only an administrator may set "
        f"more than {ENTRIES_MAX}"
    )
    assert put(server, f"/api/policies/{vhost}/new", POLICY) == (400, text)
    assert put(server, f"/api/policies/{vhost}/p1", {**POLICY, "priority": 1}) == (204, "")
    assert put(server, f"/api/policies/{vhost}/new", POLICY, "guest:guest") == (201, "")


def test_patterns_of_a_vhost_are_limited_in_their_cost(server: RunningBroker, vhost: str) -> None:
    slow = {**POLICY, "pattern": "(((a|b)?){30}){30}c"}  # 1,805 instructions
    path = f"/api/policies/{vhost}"
    answers = [put(server, f"{path}/p{n}", slow) for n in range(PATTERNS_SIZE_MAX // 1_805 + 1)]
    assert {status for status, _ in answers[:-1]} == {201}
    assert answers[-1][0] == 400
    assert "instructions of RE2" in answers[-1][1]
    assert put(server, f"{path}/p0", {**slow, "priority": 1}) == (204, "")


def test_values_of_policies_are_limited_in_bytes(server: RunningBroker, vhost: str) -> None:
    def policy(size: int) -> dict[str, object]:
        return {**POLICY, "definition": {"ha-params": ["x" * size]}}

    fill(server, vhost, {"policies": [{"name": "large", **policy(BYTES_MAX - 100_000)}]})
    status, text = put(server, f"/api/policies/{vhost}/new", policy(100_000))
    assert (status, text.endswith(f"may set more than {BYTES_MAX}")) == (400, True)
    assert put(server, f"/api/policies/{vhost}/new", policy(50_000)) == (201, "")


def test_parameters_of_a_vhost_are_limited(server: RunningBroker, vhost: str) -> None:
    component = "federation-upstream"
    rows: list[dict[str, object]] = [
        {"component": component, "name": f"u{n}", **UPSTREAM} for n in range(ENTRIES_MAX)
    ]
    fill(server, vhost, {"parameters": rows})
    path = f"/api/parameters/{component}/{vhost}"
    status, text = put(server, f"{path}/new", UPSTREAM)
    assert (status, text.startswith(f"parameters of vhost '{vhost}'")) == (400, True)
    assert put(server, f"{path}/u1", UPSTREAM) == (204, "")
    assert put(server, f"{path}/new", UPSTREAM, "guest:guest") == (201, "")


def test_global_parameters_are_limited(server: RunningBroker) -> None:
    rows = [{"name": f"g{n}", "value": n} for n in range(ENTRIES_MAX)]
    assert ask(server, "POST", "/api/definitions", {"global_parameters": rows})[0] in (200, 204)
    status, text = put(server, "/api/global-parameters/new", {"value": 1})
    assert (status, text.startswith("global parameters")) == (400, True)
    assert put(server, "/api/global-parameters/g1", {"value": 2}) == (204, "")


def test_policymaker_cannot_change_the_name_of_the_cluster(server: RunningBroker) -> None:
    path = "/api/global-parameters/cluster_name"
    assert put(server, path, {"value": "mine"})[0] == 401
    assert reason(ask(server, "DELETE", path, login=MAKER)) == (401, "Not administrator user")
    assert put(server, path, {"value": "ours"}, "guest:guest")[0] in (201, 204)
    assert ask(server, "GET", "/api/cluster-name") == (200, {"name": "ours"})


def test_definitions_beyond_a_smaller_limit_survive_a_restart() -> None:
    """A node that begins to lead a cluster with another limit recovers in the same way."""
    disk = FakeDisk()
    path = "/api/queues/%2F/q"
    with broker(http=True, disk=disk) as server:
        for number in range(9):
            assert put(server, f"{path}{number}", {"durable": True}, "guest:guest") == (201, "")
        binding = {"routing_key": "k"}
        assert ask(server, "POST", "/api/bindings/%2F/e/amq.direct/q/q8", binding)[0] == 201
    with broker(http=True, disk=disk, definitions_bytes_max=1024) as server:
        assert len(ask(server, "GET", "/api/queues/%2F")[1]) == 9
        assert len(ask(server, "GET", "/api/bindings/%2F/e/amq.direct/q/q8")[1]) == 1
        assert put(server, f"{path}8", {"durable": True}, "guest:guest") == (204, "")
        status, text = put(server, f"{path}9", {"durable": True}, "guest:guest")
        assert (status, text.count("`definitions_bytes_max`")) == (400, 1)
        assert ask(server, "DELETE", f"{path}0")[0] == 204


def test_import_is_limited_by_the_setting_alone() -> None:
    queues = [{"name": f"q{n}", "vhost": "/", "durable": True} for n in range(5)]
    with broker(http=True, definitions_bytes_max=1024) as server:
        status, answer = ask(server, "POST", "/api/definitions", {"queues": queues})
        assert (status, ask(server, "GET", "/api/queues")[1]) == (400, [])
        assert "limit of 1024" in answer["reason"]
        assert ask(server, "POST", "/api/definitions", {"queues": queues[:3]})[0] in (200, 204)
