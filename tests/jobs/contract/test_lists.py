"""Lists of jobs that are ready, scheduled or leased, as a whole and in pages."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.jobs.api import Answer, Api
from tests.jobs.stores import Service

TOPIC = "listed"


def page(api: Api, state: str, **more: Any) -> Answer:
    return api.get("/jobs", namespace=api.namespace, topic=TOPIC, state=state, **more)


def listed(api: Api, state: str, **more: Any) -> list[dict[str, Any]]:
    answer = page(api, state, **more)
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


def ids_by_pages(api: Api, state: str, limit: int) -> list[int]:
    """Ids of all jobs in a state; every page but the last is full."""
    answer = page(api, state, limit=limit)
    found = ids_of(answer.body)
    while after := answer.headers.get("jobs-next"):
        assert len(answer.body) == limit
        answer = page(api, state, limit=limit, after=after)
        assert answer.status == 200, answer.data
        found += ids_of(answer.body)
    return found


def test_a_list_is_continued_page_by_page(api: Api, service: Service) -> None:
    for priority in (3, -3):
        api.enqueue(TOPIC, b"a", b"b", b"c", priority=priority)
    api.enqueue(TOPIC, b"d", b"e", fair_key="k", priority=3)
    for hours in (2, 1):
        api.enqueue(TOPIC, b"f", b"g", b"h", deliver_after=in_hours(service, hours))
    for lease in (900, 600):
        api.enqueue(TOPIC, b"i", b"j", b"k", priority=-9)
        assert len(api.dequeue(TOPIC, 3, lease=lease)) == 3
    for state, count in (("ready", 8), ("scheduled", 6), ("leased", 6)):
        whole = ids_of(listed(api, state))
        assert len(set(whole)) == count
        assert "jobs-next" not in page(api, state).headers
        assert ids_by_pages(api, state, 1) == whole
        assert ids_by_pages(api, state, 4) == whole


def test_a_page_continues_after_a_job_that_has_gone(api: Api) -> None:
    ids = api.enqueue(TOPIC, b"1", b"2", b"3", b"4", b"5")
    first = page(api, "ready", limit=2)
    assert ids_of(first.body) == ids[:2]
    for _ in range(2):
        assert api.ack(TOPIC, api.take(TOPIC)) == 200
    rest = listed(api, "ready", after=first.headers["jobs-next"])
    assert ids_of(rest) == ids[2:]


@pytest.mark.parametrize("state", ["ready", "scheduled", "leased"])
def test_a_page_after_a_text_that_is_no_cursor_is_refused(api: Api, state: str) -> None:
    api.enqueue(TOPIC, b"x")
    for after in ("x", "1", "1_2_3_4_5", "1_2_x_4", "\u0663_1", "1__2", f"{2**63}_1", "9" * 5000):
        answer = page(api, state, after=after)
        assert answer.status == 400, after
        assert "after" in answer.body["detail"]
    for number in (-(2**63 - 1), 2**63 - 1):  # may be refused, but does no harm
        for count in (2, 4):
            answer = page(api, state, after="_".join([str(number)] * count))
            assert answer.status in (200, 400), answer.data
    assert len(listed(api, "ready")) == 1
