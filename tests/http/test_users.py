"""Users, permissions, login counts and the audit over HTTP, as RabbitMQ's clients see them."""

from collections.abc import Iterator

import pika
import pytest

from leveret.storage.disk import Disk
from leveret.testing import ManualClock
from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask

SHA256 = "rabbit_password_hashing_sha256"
HASH = "AAAAALEkKvUBGEzMSFzin0zK97z+wnfsndrUYKOF2RUry1wo"  # hash of "pw"
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


def opens(server: RunningBroker, name: str, password: str, vhost: str = "/") -> bool:
    credentials = pika.PlainCredentials(name, password)
    parameters = pika.ConnectionParameters(server.host, server.port, vhost, credentials)
    try:
        pika.BlockingConnection(parameters).close()
    except (pika.exceptions.ProbableAuthenticationError, pika.exceptions.AMQPConnectionError):
        return False
    return True


def test_user_is_created_changed_and_deleted(server: RunningBroker) -> None:
    assert (
        ask(server, "PUT", "/api/users/amy", {"password": "one", "tags": "monitoring, x"})[0] == 201
    )
    status, amy = ask(server, "GET", "/api/users/amy")
    assert status == 200
    assert amy["password_hash"].startswith("$scrypt$")
    assert {k: v for k, v in amy.items() if k != "password_hash"} == {
        "name": "amy",
        "hashing_algorithm": "leveret_password_hashing_scrypt",
        "tags": ["monitoring", "x"],
        "limits": {},
    }
    assert ask(server, "GET", "/api/whoami", login="amy:one")[1]["tags"] == ["monitoring", "x"]
    body = {"password_hash": HASH, "hashing_algorithm": SHA256, "tags": ["administrator"]}
    assert ask(server, "PUT", "/api/users/amy", body)[0] == 204
    assert ask(server, "GET", "/api/whoami", login="amy:one")[0] == 401
    assert ask(server, "GET", "/api/users/amy", login="amy:pw")[1] == {
        "name": "amy",
        "password_hash": HASH,
        "hashing_algorithm": SHA256,
        "tags": ["administrator"],
        "limits": {},
    }
    assert ask(server, "DELETE", "/api/users/amy")[0] == 204
    assert ask(server, "DELETE", "/api/users/amy")[0] == 404
    assert ask(server, "GET", "/api/users/amy")[0] == 404
    assert ask(server, "GET", "/api/whoami", login="amy:pw")[0] == 401


def test_put_without_a_password_removes_it(server: RunningBroker) -> None:
    ask(server, "PUT", "/api/users/bob", {"password_hash": HASH, "tags": "management"})
    assert ask(server, "GET", "/api/whoami", login="bob:pw")[0] == 200
    assert ask(server, "PUT", "/api/users/bob", {"tags": "management"})[0] == 204
    assert ask(server, "GET", "/api/whoami", login="bob:pw")[0] == 401
    assert ask(server, "GET", "/api/whoami", login="bob:")[0] == 401
    assert ask(server, "GET", "/api/users/bob")[1]["password_hash"] == ""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"password": "y"}, "tags_not_present"),
        (
            {"tags": "", "password": "x", "password_hash": HASH},
            "both_password_and_password_hash_are_provided",
        ),
        ({"tags": "", "password_hash": "AAAA"}, "does not have the length"),
        ({"tags": 5}, "must be a text or a list"),
        ({"tags": "", "permissions": {"nope": EVERYTHING}}, "vhost_or_user_not_found"),
        ({"tags": "", "permissions": {"/": EVERYTHING | {"read": "(?=a)"}}}, "look-around"),
    ],
)
def test_bad_bodies_are_refused_and_change_nothing(
    server: RunningBroker, body: dict[str, object], reason: str
) -> None:
    status, failure = ask(server, "PUT", "/api/users/bad", body)
    assert (status, failure["error"]) == (400, "bad_request")
    assert reason in failure["reason"]
    assert ask(server, "GET", "/api/users/bad")[0] == 404


def test_new_user_with_permissions_and_limits(server: RunningBroker) -> None:
    body = {
        "password_hash": HASH,
        "tags": "",
        "permissions": {"/": EVERYTHING},
        "limits": {"max-connections": 1},
    }
    assert ask(server, "PUT", "/api/users/cyd", body)[0] == 201
    assert ask(server, "GET", "/api/users/cyd")[1]["limits"] == {"max-connections": 1}
    credentials = pika.PlainCredentials("cyd", "pw")
    first = pika.BlockingConnection(
        pika.ConnectionParameters(server.host, server.port, credentials=credentials)
    )
    assert not opens(server, "cyd", "pw")
    first.close()
    assert opens(server, "cyd", "pw")


def test_users_without_permissions_and_bulk_delete(server: RunningBroker) -> None:
    for name in ("x1", "x2"):
        ask(server, "PUT", f"/api/users/{name}", {"tags": ""})
    ask(server, "PUT", "/api/permissions/%2F/x2", EVERYTHING)
    names = [u["name"] for u in ask(server, "GET", "/api/users/without-permissions")[1]]
    assert "x1" in names
    assert "x2" not in names
    assert "guest" not in names
    assert ask(server, "POST", "/api/users/bulk-delete", {"users": ["x1", "x2", "none"]})[0] == 204
    names = [u["name"] for u in ask(server, "GET", "/api/users")[1]]
    assert not {"x1", "x2"} & set(names)


def test_permission_is_given_listed_and_taken(server: RunningBroker) -> None:
    ask(server, "PUT", "/api/users/dan", {"password_hash": HASH, "tags": "management"})
    path = "/api/permissions/%2F/dan"
    assert ask(server, "GET", path)[0] == 404
    assert not opens(server, "dan", "pw")
    assert ask(server, "PUT", path, {"configure": "^dan", "write": "", "read": ".*"})[0] == 201
    assert ask(server, "PUT", path, {"configure": "^d", "write": "", "read": ".*"})[0] == 204
    row = {"user": "dan", "vhost": "/", "configure": "^d", "write": "", "read": ".*"}
    assert ask(server, "GET", path)[1] == row
    assert row in ask(server, "GET", "/api/permissions")[1]
    assert row in ask(server, "GET", "/api/vhosts/%2F/permissions")[1]
    assert ask(server, "GET", "/api/users/dan/permissions")[1] == [row]
    assert ask(server, "GET", "/api/users/dan/permissions", login="dan:pw")[1] == [row]
    assert ask(server, "GET", "/api/users/guest/permissions", login="dan:pw")[0] == 401
    assert opens(server, "dan", "pw")
    assert ask(server, "DELETE", path)[0] == 204
    assert ask(server, "DELETE", path)[0] == 404
    assert not opens(server, "dan", "pw")


def test_monitoring_sees_vhosts_that_it_may_not_enter(server: RunningBroker) -> None:
    for tag, expected in (("management", 401), ("monitoring", 404), ("administrator", 404)):
        ask(server, "PUT", f"/api/users/no-{tag}", {"password_hash": HASH, "tags": tag})
        login = f"no-{tag}:pw"
        assert ask(server, "GET", "/api/queues/%2F/none", login=login)[0] == expected


def test_topic_permission_is_given_listed_and_taken(server: RunningBroker) -> None:
    ask(server, "PUT", "/api/users/eve", {"password_hash": HASH, "tags": "management"})
    path = "/api/topic-permissions/%2F/eve"
    body = {"exchange": "amq.topic", "write": "^a", "read": "^b"}
    assert ask(server, "GET", path)[0] == 404
    assert ask(server, "PUT", path, body)[0] == 201
    assert ask(server, "PUT", path, body)[0] == 204
    rows = [{"user": "eve", "vhost": "/", **body}]
    for listing in (
        path,
        f"{path}/amq.topic",
        "/api/topic-permissions",
        "/api/vhosts/%2F/topic-permissions",
        "/api/users/eve/topic-permissions",
    ):
        assert ask(server, "GET", listing) == (200, rows)
    assert ask(server, "GET", f"{path}/other")[0] == 404
    assert ask(server, "DELETE", f"{path}/other")[0] == 404
    assert ask(server, "DELETE", f"{path}/amq.topic")[0] == 204
    assert ask(server, "GET", "/api/topic-permissions")[1] == []
    ask(server, "PUT", path, body)
    assert ask(server, "DELETE", path)[0] == 204


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/api/permissions/%2F/nobody", EVERYTHING, "vhost_or_user_not_found"),
        ("/api/permissions/nowhere/guest", EVERYTHING, "vhost_or_user_not_found"),
        ("/api/permissions/%2F/guest", {"configure": ""}, "'write' is missing"),
        ("/api/permissions/%2F/guest", EVERYTHING | {"write": "(a)\\1"}, "back-references"),
        ("/api/topic-permissions/%2F/nobody", {}, "vhost_or_user_not_found"),
    ],
)
def test_permissions_that_cannot_be_given(
    server: RunningBroker, path: str, body: dict[str, str], reason: str
) -> None:
    status, failure = ask(server, "PUT", path, body)
    assert status == 400
    assert reason in failure["reason"]


def test_hash_of_a_password_makes_a_user(server: RunningBroker) -> None:
    hashed = ask(server, "GET", "/api/auth/hash_password/p%40ss")[1]["ok"]
    ask(server, "PUT", "/api/users/fay", {"password_hash": hashed, "tags": "management"})
    assert ask(server, "GET", "/api/whoami", login="fay:p@ss")[0] == 200


def test_attempts_are_counted_by_protocol_and_source(server: RunningBroker) -> None:
    assert ask(server, "DELETE", "/api/auth/attempts/test")[0] == 204
    assert not opens(server, "mallory", "x")
    assert opens(server, "guest", "guest")
    ask(server, "GET", "/api/whoami", login="mallory:x")
    rows = {row["protocol"]: row for row in ask(server, "GET", "/api/auth/attempts/test")[1]}
    assert rows["amqp091"] == {
        "protocol": "amqp091",
        "auth_attempts": 2,
        "auth_attempts_failed": 1,
        "auth_attempts_succeeded": 1,
    }
    assert rows["http"]["auth_attempts_failed"] == 1
    sources = ask(server, "GET", "/api/auth/attempts/test/source")[1]
    mine = [s for s in sources if s["username"] == "mallory" and s["protocol"] == "amqp091"]
    assert mine[0]["remote_address"] == "127.0.0.1"
    assert ask(server, "GET", "/api/auth/attempts/other")[0] == 404


def test_audit_shows_who_did_what(server: RunningBroker) -> None:
    ask(server, "PUT", "/api/users/gil", {"password": "s3cret", "tags": ""})
    ask(server, "PUT", "/api/users/gil", {"password": "s3cret"})
    ask(server, "DELETE", "/api/users/gil", login="mallory:not asked before")
    connection = pika.BlockingConnection(pika.URLParameters(server.url))
    channel = connection.channel()
    channel.queue_declare("audited")
    channel.queue_purge("audited")
    channel.queue_delete("audited")
    channel.exchange_declare("audited")
    channel.exchange_delete("audited")
    name = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_delete(name)
    connection.close()
    status, events = ask(server, "GET", "/api/audit?limit=8")
    assert status == 200
    seen = [(e["user"], e["action"], e["target"], e["result"]) for e in reversed(events)]
    assert seen[-7:] == [
        ("guest", "PUT", "/api/users/gil", "201"),
        ("guest", "PUT", "/api/users/gil", "400"),
        ("mallory", "login", "http", "invalid credentials"),
        ("guest", "login", "amqp091", "ok"),
        ("guest", "queue.purge", "/: audited", "ok"),
        ("guest", "queue.delete", "/: audited", "ok"),
        ("guest", "exchange.delete", "/: audited", "ok"),
    ]
    assert all(event["peer"].startswith("127.0.0.1") for event in events)
    assert "s3cret" not in str(events)
    assert ask(server, "GET", "/api/audit?limit=x")[0] == 400


def test_deleted_user_loses_open_connections(server: RunningBroker) -> None:
    body = {"password_hash": HASH, "tags": "", "permissions": {"/": EVERYTHING}}
    ask(server, "PUT", "/api/users/hal", body)
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(
            server.host, server.port, credentials=pika.PlainCredentials("hal", "pw")
        )
    )
    ask(server, "DELETE", "/api/users/hal")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(time_limit=20)
    assert closed.value.reply_code == 320
    assert closed.value.reply_text == "CONNECTION_FORCED - user 'hal' is deleted"


def test_users_and_permissions_survive_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("data")
    with broker(http=True, disk=Disk(folder)) as server:
        body = {"password": "pw", "tags": "administrator", "permissions": {"/": EVERYTHING}}
        ask(server, "PUT", "/api/users/ivy", body)
        topic = {"exchange": "amq.topic", "write": "^a", "read": "^b"}
        ask(server, "PUT", "/api/topic-permissions/%2F/ivy", topic)
        ask(server, "DELETE", "/api/users/guest", login="ivy:pw")
        paths = ("/api/users", "/api/permissions", "/api/topic-permissions")
        before = [ask(server, "GET", path, login="ivy:pw") for path in paths]
    with broker(http=True, disk=Disk(folder)) as server:
        assert [ask(server, "GET", path, login="ivy:pw") for path in paths] == before
        assert ask(server, "GET", "/api/whoami")[0] == 401
        assert opens(server, "ivy", "pw")


def test_audit_shows_exports_once_a_minute() -> None:
    clock = ManualClock()
    with broker(http=True, clock=clock) as server:
        ask(server, "PUT", "/api/queues/%2F/q", {"durable": True})
        paths = ["/api/definitions", "/api/definitions/%2F", "/api/all-configuration"]
        for path in [*paths, *paths]:
            assert ask(server, "GET", path)[0] == 200
        got = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
        assert ask(server, "POST", "/api/queues/%2F/q/get", got)[0] == 200
        assert ask(server, "POST", "/api/queues/%2F/q/search", {})[0] == 200
        ask(server, "GET", "/api/streams/%2F/none/batches?from=0")
        ask(server, "GET", "/api/streams/%2F/none/segments?from=0")
        ask(server, "GET", "/api/backup")
        _, events = ask(server, "GET", "/api/audit?limit=8")
        assert [(e["action"], e["target"], e["result"]) for e in reversed(events)] == [
            ("GET", "/api/definitions", "200"),
            ("GET", "/api/definitions/%2F", "200"),
            ("GET", "/api/all-configuration", "200"),
            ("POST", "/api/queues/%2F/q/get", "200"),
            ("POST", "/api/queues/%2F/q/search", "200"),
            ("GET", "/api/streams/%2F/none/batches", "404"),
            ("GET", "/api/streams/%2F/none/segments", "404"),
            ("GET", "/api/backup", "503"),
        ]
        clock.advance(minutes=1)
        assert ask(server, "GET", "/api/definitions")[0] == 200
        _, events = ask(server, "GET", "/api/audit?limit=1")
        assert events[0]["target"] == "/api/definitions"


def test_audit_shows_changes_of_the_jobs_api() -> None:
    with broker(http=True) as server:
        assert ask(server, "PUT", "/topics/%2F/t", {})[0] == 204
        ask(server, "POST", "/dead/delete", {"namespace": "/", "topic": "t"})
        job = {"namespace": "/", "topic": "t", "id": "7"}
        assert ask(server, "POST", "/cancel", [job])[0] == 207
        assert ask(server, "POST", "/deliver-now", [job])[0] == 207
        schedule = {"topic": "t", "cron": "0 0 * * *", "name": "s", "namespace": "/"}
        assert ask(server, "PUT", "/schedules/%2F/s", schedule)[0] == 204
        assert ask(server, "DELETE", "/schedules/%2F/s")[0] in (200, 204)
        _, events = ask(server, "GET", "/api/audit?limit=6")
        assert [(e["user"], e["action"], e["target"], e["result"]) for e in reversed(events)] == [
            ("guest", "PUT", "/topics/%2F/t", "204"),
            ("guest", "POST", "/dead/delete", "200"),
            ("guest", "POST", "/cancel", "207"),
            ("guest", "POST", "/deliver-now", "207"),
            ("guest", "PUT", "/schedules/%2F/s", "204"),
            ("guest", "DELETE", "/schedules/%2F/s", events[0]["result"]),
        ]
