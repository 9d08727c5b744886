"""Lists of the first jobs that are ready, scheduled or leased."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.jobs.api import Api
from tests.jobs.stores import Service

TOPIC = "listed"


def listed(api: Api, state: str, **more: Any) -> list[dict[str, Any]]:
    answer = api.get("/jobs", namespace=api.namespace, topic=TOPIC, state=state, **more)
    assert answer.status == 200, answer.data
    assert all(job["state"] == state for job in answer.body)
    jobs: list[dict[str, Any]] = answer.body
    return jobs


def ids_of(jobs: list[dict[str, Any]]) -> list[int]:
    return [job["id"] for job in jobs]


def in_hours(service: Service, hours: int) -> str:
    now = datetime.fromtimestamp(service.now_ms() / 1000, UTC)
    return (now + timedelta(hours=hours)).isoformat()


def test_the_first_jobs_of_each_state_are_listed_in_order(api: Api, service: Service) -> None:
    assert listed(api, "ready") == []
    (short,), (long,) = api.enqueue(TOPIC, b"s"), api.enqueue(TOPIC, b"l")
    api.take(TOPIC, lease=900)
    api.take(TOPIC, lease=600)
    (late,) = api.enqueue(TOPIC, b"late", priority=5)
    (urgent,) = api.enqueue(TOPIC, b"urgent", priority=-5)
    (second,) = api.enqueue(TOPIC, b"2", deliver_after=in_hours(service, 2))
    (first,) = api.enqueue(TOPIC, b"1", deliver_after=in_hours(service, 1))
    ready, scheduled, leased = (listed(api, s) for s in ("ready", "scheduled", "leased"))
    assert ids_of(ready) == [urgent, late]
    assert ids_of(scheduled) == [first, second]
    assert ids_of(leased) == [long, short]
    assert all(job["lease_expires_at"] for job in leased)
    assert ids_of(listed(api, "ready", limit=1)) == [urgent]
    assert ids_of(listed(api, "leased", limit=1)) == [long]
    assert api.ack(TOPIC, long) == 200
    assert ids_of(listed(api, "leased")) == [short]


def test_a_list_changes_nothing_and_may_leave_out_payloads(api: Api) -> None:
    ids = api.enqueue(TOPIC, b"one", b"two")
    for _ in range(2):
        assert ids_of(listed(api, "ready")) == ids
    assert [job["payload"] for job in listed(api, "ready")] == ["b25l", "dHdv"]
    assert [job["payload"] for job in listed(api, "ready", payloads="false")] == ["", ""]
    assert ids_of(api.dequeue(TOPIC)) == ids


def test_a_list_of_no_state_or_an_unknown_one_is_refused(api: Api) -> None:
    for query in ({}, {"state": "dead"}, {"state": "ready", "limit": 0}):
        answer = api.get("/jobs", namespace=api.namespace, topic=TOPIC, **query)
        assert answer.status == 400, answer.data
