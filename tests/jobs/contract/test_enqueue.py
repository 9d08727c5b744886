"""Enqueue: fields, order, batches, idempotency keys."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from leveret.job_service.snowflake import first_of
from tests.jobs.api import Api, payload
from tests.jobs.conftest import api_of
from tests.jobs.stores import Service

TOPIC = "process-refund"
HOUR_S = 3600


def test_a_job_comes_out_as_it_was_put_in(api: Api, service: Service) -> None:
    (id,) = api.enqueue(TOPIC, b"\x00\xff refund", priority=1)
    job = api.take(TOPIC)
    assert job["id"] == id
    assert payload(job) == b"\x00\xff refund"
    assert job["priority"] == 1
    assert job["attempt"] == 1
    ends = datetime.fromisoformat(job["lease_expires_at"])
    assert ends.timestamp() * 1000 > service.now_ms()


def test_ids_are_snowflakes_in_the_order_of_the_items(api: Api, service: Service) -> None:
    ids = api.enqueue(TOPIC, *[b"%d" % n for n in range(100)])
    assert ids == sorted(set(ids))
    now_ms = service.now_ms()
    assert first_of(now_ms - 120_000) < ids[0] < first_of(now_ms + 120_000)
    assert [payload(job) for job in api.dequeue(TOPIC)] == [b"%d" % n for n in range(100)]


def test_a_batch_with_one_bad_item_puts_nothing_in(api: Api) -> None:
    items = [api.item(TOPIC, b"good"), api.item(TOPIC, b"bad", priority=2**31)]
    answer = api.call("POST", "/enqueue", items)
    assert answer.status == 400
    assert (answer.body["item"], answer.body["field"]) == (1, "priority")
    assert api.dequeue(TOPIC) == []


def test_a_batch_may_be_for_several_topics(api: Api) -> None:
    answer = api.call("POST", "/enqueue", [api.item("a", b"1"), api.item("b", b"2")])
    assert [api.take("a")["id"], api.take("b")["id"]] == answer.body


@pytest.mark.parametrize("more", [{}, {"fair_key": "f"}], ids=["plain", "fair"])
def test_each_job_of_a_batch_keeps_its_fields(
    api: Api, service: Service, more: dict[str, str]
) -> None:
    due = datetime.fromtimestamp(service.now_ms() // 1000 + HOUR_S, UTC)
    times = [due.replace(microsecond=ms * 1000).isoformat() for ms in (1, 999)]
    items = [
        api.item(TOPIC, b"", deliver_after=times[1], priority=-7, **more),
        api.item(TOPIC, b"\x00,{}'NULL", priority=2**31 - 1, **more),
        api.item(TOPIC, b"z" * 5_000, deliver_after=times[0], **more),
    ]
    jobs = [api.job(TOPIC, id) for id in api.call("POST", "/enqueue", items).body]
    assert [job["state"] for job in jobs] == ["scheduled", "ready", "scheduled"]
    assert [job["priority"] for job in jobs] == [-7, 2**31 - 1, 0]
    assert [payload(job) for job in jobs] == [b"", b"\x00,{}'NULL", b"z" * 5_000]
    dues = [datetime.fromisoformat(jobs[n]["deliver_after"]) for n in (2, 0)]
    assert dues == [datetime.fromisoformat(time) for time in times]


def test_lower_priorities_come_first_and_equal_ones_as_they_came(api: Api) -> None:
    wanted = [2**31 - 1, 7, -(2**31), 0, -1, 7, 255, 256, -(2**31) + 1, 0]
    ids = [api.enqueue(TOPIC, b"", priority=priority)[0] for priority in wanted]
    order = sorted(range(len(wanted)), key=lambda n: (wanted[n], n))
    jobs = api.dequeue(TOPIC)
    assert [job["id"] for job in jobs] == [ids[n] for n in order]
    assert [job["priority"] for job in jobs] == sorted(wanted)


def test_an_urgent_job_overtakes_a_backlog(api: Api) -> None:
    api.enqueue(TOPIC, *[b"slow"] * 500, priority=5)
    (urgent,) = api.enqueue(TOPIC, b"now", priority=-5)
    assert api.take(TOPIC)["id"] == urgent


def test_a_job_is_not_handed_out_before_its_time(api: Api, service: Service) -> None:
    due = datetime.fromtimestamp(service.now_ms() / 1000 + 1.0, UTC)
    (later,) = api.enqueue(TOPIC, b"later", deliver_after=due.isoformat())
    (now,) = api.enqueue(TOPIC, b"now")
    assert [job["id"] for job in api.dequeue(TOPIC)] == [now]
    assert api.job(TOPIC, later)["state"] == "scheduled"
    service.pass_time(1.1)
    assert [job["id"] for job in api.dequeue(TOPIC)] == [later]


def test_scheduled_jobs_come_in_the_order_of_their_times(api: Api, service: Service) -> None:
    base = service.now_ms() / 1000
    ids = {}
    for after in (0.9, 0.3, 0.6):
        due = datetime.fromtimestamp(base + after, UTC).isoformat()
        (ids[after],) = api.enqueue(TOPIC, b"", deliver_after=due)
    service.pass_time(1.0)
    assert [job["id"] for job in api.dequeue(TOPIC)] == [ids[0.3], ids[0.6], ids[0.9]]


def test_a_time_that_has_passed_means_now(api: Api) -> None:
    (first,) = api.enqueue(TOPIC, b"first")
    (second,) = api.enqueue(TOPIC, b"second", deliver_after="2023-10-27T10:00:00Z")
    assert [job["id"] for job in api.dequeue(TOPIC)] == [first, second]


def test_the_same_key_is_the_same_job(api: Api) -> None:
    (first,) = api.enqueue(TOPIC, b"one", idempotency_key="refund-7")
    assert api.enqueue(TOPIC, b"two", idempotency_key="refund-7") == [first]
    assert api.enqueue("other", b"three", idempotency_key="refund-7") == [first]
    assert [payload(job) for job in api.dequeue(TOPIC)] == [b"one"]
    assert api.dequeue("other") == []


def test_a_key_outlives_its_job(api: Api) -> None:
    (first,) = api.enqueue(TOPIC, b"one", idempotency_key="k")
    assert api.ack(TOPIC, api.take(TOPIC)) == 200
    assert api.enqueue(TOPIC, b"again", idempotency_key="k") == [first]
    assert api.dequeue(TOPIC) == []


def test_a_key_twice_in_a_batch_is_one_job(api: Api) -> None:
    first, second, third = api.enqueue(TOPIC, b"1", b"2", b"3", idempotency_key="k")
    assert first == second == third
    assert len(api.dequeue(TOPIC)) == 1


def test_the_answer_tells_how_many_were_known_by_their_keys(api: Api) -> None:
    def known(*keys: str | None) -> str:
        items = [api.item(TOPIC, b"", idempotency_key=key) for key in keys]
        answer = api.call("POST", "/enqueue", items)
        assert answer.status == 200, answer.data
        told: str = answer.headers["jobs-known"]
        return told

    assert known(None, "a", "b") == "0"
    assert known("b", "c", None, "a") == "2"
    assert known("d", "d", "d") == "2"  # the first of them was new
    assert known("d") == "1"
    assert len(api.dequeue(TOPIC)) == 6


def test_namespaces_have_keys_of_their_own(api: Api, service: Service) -> None:
    other = api_of(service)
    assert api.enqueue(TOPIC, b"", idempotency_key="k") != other.enqueue(
        TOPIC, b"", idempotency_key="k"
    )
    assert len(other.dequeue(TOPIC)) == 1


def test_100_clients_with_one_key_make_one_job_also_after_a_restart(own_service: Service) -> None:
    api = api_of(own_service)

    def put(number: int) -> list[int]:
        return api.enqueue(TOPIC, b"%d" % number, idempotency_key="the-one")

    with ThreadPoolExecutor(100) as clients:
        ids = {id for found in clients.map(put, range(100)) for id in found}
    assert len(ids) == 1
    own_service.restart()
    again = Api(own_service.port, own_service.token(api.namespace), api.namespace)
    assert set(again.enqueue(TOPIC, b"late", idempotency_key="the-one")) == ids
    assert {job["id"] for job in again.dequeue(TOPIC)} == ids
    assert again.dequeue(TOPIC) == []


@pytest.mark.parametrize("name", ["a b", "ümläut", "a/b", "%2F", "x" * 200])
def test_names_may_be_anything_that_can_be_printed(service: Service, name: str) -> None:
    api = api_of(service)
    (id,) = api.enqueue(name, b"")
    assert api.take(name)["id"] == id


def test_a_key_is_free_after_a_day_though_its_dead_job_is_still_there(own_service: Service) -> None:
    api = api_of(own_service)
    (first,) = api.enqueue(TOPIC, b"first", idempotency_key="k")
    assert api.nack(TOPIC, api.take(TOPIC), dead=True) == 200
    own_service.leap(23 * HOUR_S)
    api = api_of(own_service, api.namespace)  # with a new token
    assert api.enqueue(TOPIC, b"again", idempotency_key="k") == [first]
    own_service.leap(1.1 * HOUR_S)
    api = api_of(own_service, api.namespace)
    (second,) = api.enqueue(TOPIC, b"second", idempotency_key="k")
    assert second != first
    assert api.job(TOPIC, second)["state"] == "ready"
    assert api.enqueue(TOPIC, b"third", idempotency_key="k") == [second]
    assert [payload(job) for job in api.dequeue(TOPIC)] == [b"second"]
    assert [job["id"] for job in api.dead(TOPIC)] == [first]
