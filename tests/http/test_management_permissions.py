"""Permissions over HTTP: the same as over AMQP, and lists show only visible objects."""

from collections.abc import Iterator

import pytest

from leveret.testing.broker import RunningBroker, broker
from tests.http.management import Api, add_user

GET = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
PUBLISH = {"routing_key": "k", "payload": "x"}
DEAD = {"arguments": {"x-dead-letter-exchange": "x"}}

# Method, path, body, and the permissions that are necessary and sufficient.
NEEDED = [
    ("PUT", "queues/%2F/new", {}, {"configure": "^new$"}),
    ("PUT", "queues/%2F/new", DEAD, {"configure": "^new$", "read": "^new$", "write": "^x$"}),
    ("DELETE", "queues/%2F/q", None, {"configure": "^q$"}),
    ("DELETE", "queues/%2F/q/contents", None, {"read": "^q$"}),
    ("POST", "queues/%2F/q/get", GET, {"read": "^q$"}),
    ("PUT", "exchanges/%2F/new", {}, {"configure": "^new$"}),
    (
        "PUT",
        "exchanges/%2F/new",
        {"arguments": {"alternate-exchange": "x"}},
        {"configure": "^new$", "read": "^new$", "write": "^x$"},
    ),
    ("DELETE", "exchanges/%2F/x", None, {"configure": "^x$"}),
    ("POST", "exchanges/%2F/x/publish", PUBLISH, {"write": "^x$"}),
    ("POST", "exchanges/%2F/amq.default/publish", PUBLISH, {"write": "^amq.default$"}),
    ("POST", "bindings/%2F/e/x/q/q", {}, {"write": "^q$", "read": "^x$"}),
    ("POST", "bindings/%2F/e/x/e/y", {}, {"write": "^y$", "read": "^x$"}),
    ("DELETE", "bindings/%2F/e/x/q/q/bound", None, {"write": "^q$", "read": "^x$"}),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


@pytest.fixture
def api(server: RunningBroker) -> Iterator[Api]:
    api = Api(server)
    api.put("queues/%2F/q")
    for name in ("x", "y"):
        api.put(f"exchanges/%2F/{name}", {"type": "topic"})
    api.post("bindings/%2F/e/x/q/q", {"routing_key": "bound"})
    yield api
    api.delete("users/u")
    api.delete("queues/%2F/new")
    api.delete("exchanges/%2F/new")


@pytest.mark.parametrize(("method", "path", "body", "needed"), NEEDED)
def test_each_permission_is_needed_and_all_are_enough(
    api: Api, method: str, path: str, body: object, needed: dict[str, str]
) -> None:
    user = add_user(api, "u", "management", configure="")
    for missing in needed:
        given = {"configure": ".*", "write": ".*", "read": ".*", missing: "^other$"}
        assert api.put("permissions/%2F/u", given) == 204
        answer = user.ask(method, path, body)
        assert (answer.status, answer.json["error"]) == (401, "not_authorised"), missing
    api.put("permissions/%2F/u", {"configure": "", "write": "", "read": "", **needed})
    assert user.ask(method, path, body).status in (200, 201, 204)


def test_topic_permissions_are_checked(api: Api) -> None:
    user = add_user(api, "u", "management", write=".*", read=".*")
    topics = {"exchange": "x", "write": "^mine\\.", "read": "^mine\\."}
    assert api.put("topic-permissions/%2F/u", topics) == 201
    for key, status in (("mine.a", 200), ("yours.a", 401)):
        body = {"routing_key": key, "payload": "x"}
        assert user.post("exchanges/%2F/x/publish", body).status == status
    for key, status in (("mine.#", 201), ("#", 401)):
        assert user.post("bindings/%2F/e/x/q/q", {"routing_key": key}).status == status
    hidden = {"routing_key": "mine.a", "payload": "x", "properties": {"headers": {"CC": ["no"]}}}
    assert user.post("exchanges/%2F/x/publish", hidden).status == 401


def test_topic_permissions_are_checked_for_ways_into_the_exchange(api: Api) -> None:
    user = add_user(api, "u", "management", configure=".*", write=".*", read=".*")
    topics = {"exchange": "x", "write": "^mine\\.", "read": ".*"}
    assert api.put("topic-permissions/%2F/u", topics) == 201
    dead = {"x-dead-letter-exchange": "x"}
    fixed = {**dead, "x-dead-letter-routing-key": "mine.a"}
    other = {**dead, "x-dead-letter-routing-key": "yours.a"}
    for arguments, status in ((dead, 401), (other, 401), (fixed, 201)):
        assert user.put("queues/%2F/way", {"arguments": arguments}) == status
    alternate = {"type": "fanout", "arguments": {"alternate-exchange": "x"}}
    assert user.put("exchanges/%2F/way", alternate) == 401
    assert user.post("bindings/%2F/e/amq.fanout/e/x").status == 401
    assert api.put("topic-permissions/%2F/u", {**topics, "write": ".*"}) == 204
    assert user.put("exchanges/%2F/way", alternate) == 201
    assert user.post("bindings/%2F/e/amq.fanout/e/x").status == 201
    for path in ("queues/%2F/way", "exchanges/%2F/way", "bindings/%2F/e/amq.fanout/e/x/~"):
        assert user.delete(path) == 204


LISTS = ("queues", "exchanges", "bindings", "consumers", "channels", "connections")


@pytest.mark.parametrize("kind", LISTS)
def test_lists_show_vhosts_that_a_user_may_open(api: Api, kind: str) -> None:
    api.put("vhosts/other")
    api.put("queues/other/hidden")
    try:
        stranger = add_user(api, "u", "management")
        assert stranger.get(kind) == []
        if kind not in ("channels", "connections"):
            assert stranger.ask("GET", f"{kind}/%2F").status == 401
            assert stranger.ask("GET", f"{kind}/nonesuch").status == 404
        api.delete("users/u")
        stranger = add_user(api, "u", "monitoring")
        assert stranger.get(kind) == api.get(kind) or kind in ("queues", "exchanges")
        if kind == "queues":
            assert {q["vhost"] for q in stranger.get(kind)} == {"/", "other"}
    finally:
        api.delete("vhosts/other")


def test_monitoring_sees_a_vhost_and_cannot_work_in_it(api: Api) -> None:
    user = add_user(api, "u", "monitoring")
    assert user.get("queues/%2F/q")["name"] == "q"
    assert user.put("queues/%2F/new") == 401
    assert user.post("queues/%2F/q/get", GET).status == 401
    assert user.post("exchanges/%2F/x/publish", PUBLISH).status == 401


OPERATOR_POLICY = {
    "pattern": "^no",
    "definition": {"max-length": 1},
    "apply-to": "queues",
    "priority": 0,
}
SHOVEL = {"src-uri": "amqp://u:secret@127.0.0.1:1", "src-queue": "a", "dest-uri": "amqp://"}


def test_parameters_with_passwords_need_access_to_the_vhost(api: Api) -> None:
    value = {**SHOVEL, "dest-queue": "b"}
    assert api.put("parameters/shovel/%2F/s", {"value": value}) == 201
    user = add_user(api, "u", "monitoring", "policymaker")
    try:
        assert user.get("parameters") == user.get("parameters/shovel") == []
        for path in ("parameters/shovel/%2F", "parameters/shovel/%2F/s", "policies/%2F"):
            assert user.ask("GET", path).status == 401
        assert user.ask("DELETE", "tasks/shovel:%252F:s").status == 401
        assert api.put("permissions/%2F/u", {"configure": "", "write": "", "read": ""}) == 201
        assert [row["value"] for row in user.get("parameters/shovel")] == [value]
        assert user.ask("DELETE", "tasks/shovel:%252F:s").status == 204
    finally:
        api.delete("parameters/shovel/%2F/s")


@pytest.mark.parametrize(
    ("component", "name", "value"),
    [
        ("operator_policy", "o", OPERATOR_POLICY),
        ("vhost-limits", "limits", {"max-queues": 1000}),
    ],
)
def test_operator_policies_and_limits_need_an_administrator(
    api: Api, component: str, name: str, value: object
) -> None:
    user = add_user(api, "u", "policymaker", configure=".*")
    path = f"parameters/{component}/%2F/{name}"
    assert user.put(path, {"value": value}) == 401
    assert api.put(path, {"value": value}) == 201
    assert [row["name"] for row in user.get(f"parameters/{component}/%2F")] == [name]
    assert user.delete(path) == 401
    assert api.delete(path) == 204


def test_users_with_access_to_a_vhost_may_read_its_policies(api: Api) -> None:
    policy = {"pattern": "^no", "definition": {"max-length": 1}}
    api.put("vhosts/other")
    try:
        for kind in ("policies", "operator-policies"):
            for vhost in ("%2F", "other"):
                assert api.put(f"{kind}/{vhost}/p", policy) == 201
        user = add_user(api, "u", "management", configure="")
        for kind in ("policies", "operator-policies"):
            assert [row["vhost"] for row in user.get(kind)] == ["/"]
            assert [row["name"] for row in user.get(f"{kind}/%2F")] == ["p"]
            assert user.ask("GET", f"{kind}/other").status == 401
            assert user.ask("GET", f"{kind}/%2F/p").status == 401
    finally:
        api.delete("vhosts/other")
        for kind in ("policies", "operator-policies"):
            api.delete(f"{kind}/%2F/p")


def test_health_checks_are_for_every_user_of_the_api(api: Api) -> None:
    user = add_user(api, "u", "management")
    assert user.get("health/checks/alarms") == {"status": "ok"}
    assert user.get("healthchecks/node") == {"status": "ok"}


def test_page_of_another_site_changes_nothing(api: Api) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 201)):
        headers = {"Sec-Fetch-Site": site, "Content-Type": "text/plain"}
        assert api.ask("PUT", "queues/%2F/new", {}, headers).status == status
        assert api.ask("GET", "queues/%2F/q", None, headers).status == 200
        assert (api.ask("GET", "queues/%2F/new").status == 200) is (status == 201)


def test_overview_counts_what_a_user_may_see(api: Api) -> None:
    user = add_user(api, "u", "management")
    assert user.get("overview")["object_totals"]["queues"] == 0
    assert api.get("overview")["object_totals"]["queues"] >= 1


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "config/effective"),
        ("DELETE", "reset"),
        ("POST", "rebalance/queues"),
        ("PUT", "feature-flags/quorum_queue/enable"),
    ],
)
def test_operations_that_need_an_administrator(api: Api, method: str, path: str) -> None:
    user = add_user(api, "u", "monitoring", "policymaker")
    assert user.ask(method, path, None if method == "GET" else {}).status == 401
