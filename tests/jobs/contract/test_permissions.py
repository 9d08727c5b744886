"""Permissions of users in the jobs API: each operation without each permission that it needs."""

import base64
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from tests.jobs.api import WAIT_S, WOKEN_WITHIN_S, Answer, Api
from tests.jobs.stores import Service

PROBLEM = "application/problem+json"
TOPIC = "orders"
PERMISSIONS = ("configure", "write", "read")
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
NOTHING = "^$"
_numbers = itertools.count(1)


class Desk:
    """A namespace with one topic, and a user whose rights in it the test chooses."""

    def __init__(self, service: Service) -> None:
        number = next(_numbers)
        self.port = service.port
        self.name = f"clerk{number}"
        self.namespace = f"desk{number}"
        self.owner = Api(service.port, service.token(self.namespace), self.namespace)
        self.manage("PUT", f"vhosts/{self.namespace}", {})
        self.put_user("secret")
        self.grant()

    def manage(
        self, method: str, path: str, body: Any = None, login: str = "guest:guest"
    ) -> Answer:
        sent = {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}
        return Api(self.port, None, "").call(method, f"/api/{path}", body, headers=sent)

    def put_user(self, password: str, tags: str = "management") -> None:
        answer = self.manage("PUT", f"users/{self.name}", {"password": password, "tags": tags})
        assert answer.status in (201, 204), answer.data

    def grant(self, **patterns: str) -> None:
        body = {**EVERYTHING, **patterns}
        answer = self.manage("PUT", f"permissions/{self.namespace}/{self.name}", body)
        assert answer.status in (201, 204), answer.data

    def login(self) -> Api:
        """Return the API with a token of the user."""
        answer = self.manage("POST", "jobs/token", {}, f"{self.name}:secret")
        assert answer.status == 200, answer.data
        return Api(self.port, answer.body["token"], self.namespace)


@pytest.fixture
def desk(service: Service) -> Desk:
    return Desk(service)


def operations(desk: Desk, topic: str) -> Iterator[tuple[str, str, Any, str, str]]:
    """Yield each operation: the call, the permissions on the topic, and those on its dead jobs."""
    namespace = desk.namespace
    place = {"namespace": namespace, "topic": topic}
    query = f"namespace={namespace}&topic={quote(topic)}"
    handle = {**place, "id": 1}
    schedule = {"name": "s", **place, "cron": "* * * * *"}
    yield "POST", "/enqueue", [{**place, "payload": ""}], "write", ""
    yield "GET", f"/dequeue?{query}", None, "read", ""
    yield "POST", f"/dequeue?{query}", [handle], "read", ""
    for path in ("/ack", "/nack", "/extend", "/cancel"):
        yield "POST", path, handle, "read", ""
        yield "POST", path, [handle], "read", ""
    yield "POST", "/deliver-now", handle, "read write", ""
    yield "POST", "/deliver-now", [handle], "read write", ""
    yield "GET", f"/job?{query}&id=1", None, "read", ""
    yield "GET", f"/dead?{query}", None, "", "read"
    yield "POST", "/dead/redrive", place, "write", "read"
    yield "POST", "/dead/delete", place, "", "read"
    yield "GET", f"/topics/{namespace}/{topic}", None, "read", ""
    yield "PUT", f"/topics/{namespace}/{topic}", {}, "configure", ""
    yield "PUT", f"/schedules/{namespace}/s", schedule, "write", ""
    yield "DELETE", f"/schedules/{namespace}/s", None, "write", ""


def put_schedule(desk: Desk, topic: str) -> None:
    body = {"name": "s", "namespace": desk.namespace, "topic": topic, "cron": "* * * * *"}
    assert desk.owner.call("PUT", f"/schedules/{desk.namespace}/s", body).status == 204


def only_on(topic: str) -> str:
    return f"^{topic}$"


def test_each_operation_needs_its_permissions_and_no_others(desk: Desk) -> None:
    api = desk.login()
    for method, path, body, on_topic, on_dead in operations(desk, TOPIC):
        desk.owner.enqueue(TOPIC, b"")
        put_schedule(desk, TOPIC)
        for missing in PERMISSIONS:
            for place, needed in ((TOPIC, on_topic), (TOPIC + ".dead", on_dead)):
                other = TOPIC + ".dead" if place == TOPIC else TOPIC
                desk.grant(**{missing: only_on(other)})
                answer = api.call(method, path, body)
                is_needed = missing in needed.split()
                assert (answer.status == 403) == is_needed, (method, path, missing, answer.data)
                if is_needed:
                    assert answer.headers["content-type"] == PROBLEM
                    assert f"{missing} access to queue '{place}'" in answer.body["detail"]
                put_schedule(desk, TOPIC)


def test_a_call_that_waits_loses_its_job_with_the_permission(desk: Desk, service: Service) -> None:
    api = desk.login()
    query = f"namespace={desk.namespace}&topic={TOPIC}&wait={WAIT_S}"
    with ThreadPoolExecutor(1) as worker:
        waiting = worker.submit(api.call, "GET", f"/dequeue?{query}")
        while not (service.keeps_leases or _has_consumer(desk) or waiting.done()):
            pass  # a topic that is a queue has a consumer while a call waits
        desk.grant(read=NOTHING)
        (id,) = desk.owner.enqueue(TOPIC, b"secret")
        answer = waiting.result(WOKEN_WITHIN_S)
    assert (answer.status, answer.headers["content-type"]) == (403, PROBLEM)
    assert "read access to queue" in answer.body["detail"]
    assert desk.owner.take(TOPIC, wait=WAIT_S)["id"] == id


def _has_consumer(desk: Desk) -> bool:
    answer = desk.manage("GET", f"queues/{desk.namespace}/{TOPIC}")
    return answer.status == 200 and answer.body["consumers"] > 0


def test_creating_a_queue_needs_configure(desk: Desk, service: Service) -> None:
    if service.keeps_leases:
        pytest.skip("topics of this store are not queues: nothing is created")
    api = desk.login()
    desk.grant(configure=NOTHING)
    creating = [
        one
        for one in operations(desk, "fresh")
        if one[:2] in (("POST", "/enqueue"), ("PUT", f"/schedules/{desk.namespace}/s"))
        or one[1].startswith("/dequeue")
    ]
    assert len(creating) == 4
    for method, path, body, _, _ in creating:
        answer = api.call(method, path, body)
        assert answer.status == 403, (path, answer.data)
        assert "configure access to queue 'fresh'" in answer.body["detail"]
    queues = desk.manage("GET", f"queues/{desk.namespace}").body
    assert [one["name"] for one in queues] == []
    desk.grant(configure="^fresh$")
    for method, path, body, _, _ in creating:
        assert api.call(method, path, body).status in (200, 204, 207), path


def test_one_forbidden_item_refuses_its_batch(desk: Desk) -> None:
    desk.owner.enqueue("mine", b"")
    desk.owner.enqueue("theirs", b"")
    api = desk.login()
    desk.grant(write="^mine$", read="^mine$")
    jobs = [api.item("mine"), api.item("theirs")]
    handles = [api.handle("mine", 1), api.handle("theirs", 2)]
    for path, batch in (("/enqueue", jobs), ("/ack", handles), ("/cancel", handles)):
        answer = api.call("POST", path, batch)
        assert answer.status == 403, path
        assert (answer.body["field"], answer.body["item"]) == ("topic", 1), path
    assert desk.owner.stats("mine")["ready"] == 1


def test_lists_show_only_topics_that_the_user_may_read(desk: Desk) -> None:
    for topic in ("mine", "theirs"):
        desk.owner.enqueue(topic, b"")
        body = {"name": topic, "namespace": desk.namespace, "topic": topic, "cron": "* * * * *"}
        path = f"/schedules/{desk.namespace}/{topic}"
        assert desk.owner.call("PUT", path, body).status == 204
    api = desk.login()
    desk.grant(read="^mine$")
    for answer in (api.get("/stats"), api.get("/stats", namespace=desk.namespace)):
        assert [one["topic"] for one in answer.body] == ["mine"]
    schedules = api.get("/schedules", namespace=desk.namespace).body
    assert [one["topic"] for one in schedules] == ["mine"]


def test_schedule_of_a_foreign_topic_cannot_be_replaced_or_deleted(desk: Desk) -> None:
    desk.owner.enqueue("mine", b"")
    put_schedule(desk, "theirs")
    api = desk.login()
    desk.grant(write="^mine$")
    body = {"name": "s", "namespace": desk.namespace, "topic": "mine", "cron": "* * * * *"}
    path = f"/schedules/{desk.namespace}/s"
    assert api.call("PUT", path, body).status == 403
    assert api.call("DELETE", path).status == 403
    found = desk.owner.get("/schedules", namespace=desk.namespace).body
    assert [one["topic"] for one in found] == ["theirs"]


def test_dead_job_is_found_only_with_read_on_the_dead_jobs(desk: Desk) -> None:
    desk.owner.enqueue(TOPIC, b"")
    job = desk.owner.take(TOPIC)
    assert desk.owner.nack(TOPIC, job, dead=True) == 200
    api = desk.login()
    assert api.job(TOPIC, job["id"])["state"] == "dead"
    desk.grant(read=only_on(TOPIC))
    answer = api.get("/job", namespace=desk.namespace, topic=TOPIC, id=job["id"])
    assert answer.status == 403


def test_vhost_of_others_is_403(desk: Desk, service: Service) -> None:
    other = Desk(service)
    api = desk.login()
    for namespace in (other.namespace, "no-such-vhost"):
        answer = api.get("/dequeue", namespace=namespace, topic=TOPIC)
        assert answer.status == 403, namespace
        assert "vhost" in answer.body["detail"]
        assert api.get("/stats", namespace=namespace).status == 403
        assert api.get("/schedules", namespace=namespace).status == 403


def taking(desk: Desk, api: Api) -> int:
    return api.get("/dequeue", namespace=desk.namespace, topic=TOPIC).status


def test_token_dies_with_its_user(desk: Desk) -> None:
    api = desk.login()
    assert taking(desk, api) == 200
    assert desk.manage("DELETE", f"users/{desk.name}").status == 204
    assert taking(desk, api) == 401
    desk.put_user("secret")  # a new user with the same name and password
    desk.grant()
    assert taking(desk, api) == 401


def test_token_dies_with_the_password(desk: Desk) -> None:
    api = desk.login()
    assert taking(desk, api) == 200
    desk.put_user("another")
    assert taking(desk, api) == 401


def test_token_needs_the_tag_that_gave_it(desk: Desk) -> None:
    api = desk.login()
    kept = desk.manage("GET", f"users/{desk.name}").body["password_hash"]
    body = {"password_hash": kept, "tags": ""}
    assert desk.manage("PUT", f"users/{desk.name}", body).status == 204
    assert taking(desk, api) == 403


def test_removed_permissions_count_at_the_next_call(desk: Desk) -> None:
    api = desk.login()
    assert taking(desk, api) == 200
    path = f"permissions/{desk.namespace}/{desk.name}"
    assert desk.manage("DELETE", path).status == 204
    assert taking(desk, api) == 403


def test_deleted_vhost_is_closed_to_the_token(desk: Desk) -> None:
    api = desk.login()
    assert taking(desk, api) == 200
    assert desk.manage("DELETE", f"vhosts/{desk.namespace}").status == 204
    assert taking(desk, api) == 403
    assert desk.manage("GET", f"vhosts/{desk.namespace}").status == 404


def test_administrator_needs_permissions_in_a_vhost_and_may_create_one(desk: Desk) -> None:
    desk.put_user("secret", "administrator")
    api = desk.login()
    desk.grant(read=NOTHING)
    assert taking(desk, api) == 403
    basic = {"Authorization": "Basic " + base64.b64encode(f"{desk.name}:secret".encode()).decode()}
    path = f"/dequeue?namespace={desk.namespace}&topic={TOPIC}"
    assert Api(desk.port, None, "").call("GET", path, headers=basic).status == 403
    path = f"/dequeue?namespace={desk.namespace}-new&topic={TOPIC}"
    assert Api(desk.port, None, "").call("GET", path, headers=basic).status == 200
