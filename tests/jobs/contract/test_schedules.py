"""Schedules: jobs that are enqueued at regular times."""

import base64
from typing import Any

import pytest

from leveret.job_service import limits
from tests.jobs.api import Answer, Api, payload
from tests.jobs.stores import Service

TOPIC = "nightly"


def schedule(api: Api, cron: str, **more: Any) -> dict[str, Any]:
    place = {"name": "report", "namespace": api.namespace, "topic": TOPIC}
    return {**place, "cron": cron, "payload": "ZG8gaXQ=", **more}


def put(api: Api, body: dict[str, Any]) -> int:
    return api.call("PUT", f"/schedules/{api.namespace}/report", body).status


def test_a_schedule_puts_a_job_in_at_each_due_time(api: Api, service: Service) -> None:
    assert put(api, schedule(api, "*/5 * * * *", priority=-3)) == 204
    assert api.dequeue(TOPIC) == []
    service.pass_time(16 * 60)
    jobs = api.dequeue(TOPIC)
    assert len(jobs) == 3
    assert [payload(job) for job in jobs] == [b"do it"] * 3
    assert jobs[0]["priority"] == -3
    assert jobs[0]["created_at"].endswith(("0:00Z", "5:00Z"))
    assert api.call("DELETE", f"/schedules/{api.namespace}/report").status == 204


def test_a_deleted_schedule_puts_nothing_in(api: Api, service: Service) -> None:
    assert put(api, schedule(api, "* * * * *")) == 204
    assert api.call("DELETE", f"/schedules/{api.namespace}/report").status == 204
    assert api.call("DELETE", f"/schedules/{api.namespace}/report").status == 404
    service.pass_time(300)
    assert api.dequeue(TOPIC) == []


def test_a_paused_schedule_waits(api: Api, service: Service) -> None:
    assert put(api, schedule(api, "* * * * *", is_paused=True)) == 204
    service.pass_time(300)
    assert api.dequeue(TOPIC) == []
    assert put(api, schedule(api, "* * * * *")) == 204
    service.pass_time(60)
    assert len(api.dequeue(TOPIC)) == 1
    api.call("DELETE", f"/schedules/{api.namespace}/report")


def test_schedules_of_a_namespace_have_limits(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in memory, and a user with one namespace must not fill it."""
    monkeypatch.setattr(limits, "SCHEDULES_MAX", 3)
    most = base64.b64encode(bytes(limits.SCHEDULE_BYTES_MAX)).decode()

    def add(name: str, payload: str) -> Answer:
        path = f"/schedules/{api.namespace}/{name}"
        return api.call("PUT", path, schedule(api, "@yearly", name=name, payload=payload))

    small = base64.b64encode(bytes(200)).decode()
    assert [add("a", most).status, add("b", "").status] == [204, 204]
    refused = add("c", small)
    assert (refused.status, refused.body["field"]) == (400, "payload")
    assert "at most 4194304 bytes" in refused.body["detail"]
    assert [add("a", small).status, add("c", small).status] == [204, 204]
    refused = add("d", "")
    assert (refused.status, "the number of schedules" in refused.body["detail"]) == (400, True)
    many = ",".join(["0"] * 500)
    path = f"/schedules/{api.namespace}/a"
    refused = api.call("PUT", path, schedule(api, f"{many} 0 1 1 *", name="a"))
    assert (refused.status, refused.body["field"]) == (400, "cron")
    for name in "abc":
        assert api.call("DELETE", f"/schedules/{api.namespace}/{name}").status == 204


def test_schedules_are_listed_and_changed(api: Api, service: Service) -> None:
    wanted = schedule(api, "0 3 * * mon", timezone="Europe/Berlin", is_paused=False, priority=2)
    assert put(api, schedule(api, "@daily")) == 204
    assert put(api, wanted) == 204
    (listed,) = api.get("/schedules", namespace=api.namespace).body
    next_ms = listed.pop("next_ms")
    assert next_ms > service.now_ms() and next_ms % 3_600_000 == 0
    assert listed == wanted
    assert put(api, {**wanted, "next_ms": next_ms}) == 204  # a listed schedule can be put back
    api.call("DELETE", f"/schedules/{api.namespace}/report")
    assert api.get("/schedules", namespace=api.namespace).body == []


def test_what_was_missed_fires_once_after_a_restart(own_service: Service) -> None:
    token = own_service.token("n", lasts_s=10**6)
    api = Api(own_service.port, token, "n")
    assert put(api, schedule(api, "*/10 * * * *")) == 204
    own_service.pass_time(600)
    assert len(api.dequeue(TOPIC, lease=10_000)) == 1
    stopped_and_late(own_service, 3600)
    api = Api(own_service.port, token, "n")
    again = api.dequeue(TOPIC, lease=10_000)
    # One that was missed, and the one that was leased unless its lease has outlived the node.
    assert [job["attempt"] for job in again] == [1] * (1 if own_service.keeps_leases else 2)
    own_service.pass_time(600)
    assert len(api.dequeue(TOPIC, lease=10_000)) == 1


def stopped_and_late(service: Any, seconds: float) -> None:
    """Down for a while."""
    service.stop()
    service.pass_time(seconds)
    service.start()


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"cron": "* * * *"}, "cron"),
        ({"cron": "60 * * * *"}, "cron"),
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"timezone": "../etc/passwd"}, "timezone"),
        ({"topic": ""}, "topic"),
        ({"name": "other"}, "name"),
        ({"namespace": "other"}, "namespace"),
        ({"priority": 2**31}, "priority"),
    ],
)
def test_a_bad_schedule_names_its_field(api: Api, more: dict[str, Any], field: str) -> None:
    body = {**schedule(api, "* * * * *"), **more}
    answer = api.call("PUT", f"/schedules/{api.namespace}/report", body)
    assert answer.status == 400
    assert answer.body["field"] == field
