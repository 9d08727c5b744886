"""Ack, nack and extend: the outcomes done, stale and unknown, for one job and in batches."""

from typing import Any

import pytest

from tests.jobs.api import Api, payload
from tests.jobs.stores import Service

TOPIC = "settling"


def test_a_call_whose_answer_has_no_body_takes_no_job(api: Api) -> None:
    (id,) = api.enqueue(TOPIC, b"")
    query = f"namespace={api.namespace}&topic={TOPIC}"
    assert api.call("HEAD", f"/dequeue?{query}").status == 405
    job = api.take(TOPIC)
    assert (job["id"], job["attempt"]) == (id, 1)
    assert api.ack(TOPIC, job) == 200


def test_an_acked_job_is_gone(api: Api) -> None:
    api.enqueue(TOPIC, b"")
    job = api.take(TOPIC)
    assert api.ack(TOPIC, job) == 200
    assert api.dequeue(TOPIC) == []
    assert api.ack(TOPIC, job) == 404
    assert api.get("/job", namespace=api.namespace, topic=TOPIC, id=job["id"]).status == 404


def test_the_seeds_ack_needs_no_token_while_the_lease_lives(api: Api) -> None:
    api.enqueue(TOPIC, b"")
    assert api.ack(TOPIC, api.take(TOPIC)["id"]) == 200


def test_one_call_acks_a_job_and_takes_the_next(api: Api) -> None:
    api.enqueue(TOPIC, b"1", b"2")
    (first,) = api.ack_and_dequeue(TOPIC, limit=1).body["jobs"]
    answer = api.ack_and_dequeue(TOPIC, first, limit=1, lease=60)
    assert (answer.status, answer.body["acked"]) == (200, [{"outcome": "done"}])
    (second,) = answer.body["jobs"]
    assert second["id"] != first["id"]
    assert api.ack(TOPIC, first) == 404
    answer = api.ack_and_dequeue(TOPIC, first, second)
    assert (answer.status, answer.body["jobs"]) == (207, [])
    assert [one["outcome"] for one in answer.body["acked"]] == ["unknown", "done"]


def test_a_busy_client_takes_each_job_once(api: Api) -> None:
    """So many calls that a store may lease jobs ahead."""
    ids = api.enqueue("busy", *[b"%d" % number for number in range(80)])
    found: list[int] = []
    jobs: list[Any] = []
    while len(found) < 80:
        answer = api.ack_and_dequeue("busy", *jobs, limit=1)
        assert answer.body["acked"] == [{"outcome": "done"}] * len(jobs)
        jobs = answer.body["jobs"]
        found += [job["id"] for job in jobs]
    assert sorted(found) == ids
    assert api.ack("busy", jobs[0]) == 200
    assert api.ack("busy", jobs[0]) == 404
    stats = api.stats("busy")
    assert (stats["ready"], stats["leased"], stats["acked"]) == (0, 0, 80)


def test_an_ack_makes_room_for_the_job_that_the_same_call_takes(api: Api) -> None:
    api.set_topic("narrow", concurrency_max=1)
    api.enqueue("narrow", b"1", b"2")
    job = api.take("narrow")
    assert api.dequeue("narrow") == []
    assert len(api.ack_and_dequeue("narrow", job).body["jobs"]) == 1


@pytest.mark.parametrize("query", [{"limit": 0}, {"wait": -1}, {"lease": "x"}])
def test_a_call_that_may_not_take_jobs_acks_none(api: Api, query: dict[str, object]) -> None:
    api.enqueue(TOPIC, b"")
    job = api.take(TOPIC)
    assert api.ack_and_dequeue(TOPIC, job, **query).status == 400
    assert api.ack(TOPIC, job) == 200


@pytest.mark.parametrize("path", ["/ack", "/nack", "/extend"])
def test_an_unknown_job_is_404_and_one_that_waits_409(api: Api, path: str) -> None:
    (id,) = api.enqueue(TOPIC, b"")
    assert api.call("POST", path, api.handle(TOPIC, id)).status == 409
    assert api.call("POST", path, api.handle(TOPIC, id + 1)).status == 404
    assert api.call("POST", path, api.handle("nowhere", id)).status == 404


def test_ids_and_tokens_are_taken_as_text_too(api: Api) -> None:
    api.enqueue(TOPIC, b"")
    job = api.take(TOPIC)
    as_text = {"id": str(job["id"]), "token": str(job["token"])}
    assert api.ack(TOPIC, as_text) == 200


def test_a_job_is_handed_to_one_worker_at_a_time(api: Api) -> None:
    api.enqueue(TOPIC, b"1", b"2", b"3")
    first, second = api.dequeue(TOPIC, 2), api.dequeue(TOPIC)
    assert len(first) == 2
    assert len(second) == 1
    assert len({job["id"] for job in first + second}) == 3


def test_a_lease_that_ends_gives_the_job_back_and_counts(api: Api, service: Service) -> None:
    api.enqueue(TOPIC, b"")
    job = api.take(TOPIC, lease=0.3)
    assert api.dequeue(TOPIC) == []
    service.pass_time(0.5)
    again = api.take(TOPIC)
    assert again["id"] == job["id"]
    assert again["attempt"] == 2
    assert again["token"] > job["token"]
    assert "lease" in api.job(TOPIC, job["id"])["failures"][0]["error"]


@pytest.mark.parametrize("path", ["/ack", "/nack", "/extend"])
def test_an_old_token_is_stale(api: Api, service: Service, path: str) -> None:
    api.enqueue(TOPIC, b"")
    job = api.take(TOPIC, lease=0.3)
    service.pass_time(0.5)
    assert api.call("POST", path, api.handle(TOPIC, job)).status == 409
    assert api.call("POST", path, api.handle(TOPIC, job["id"])).status == 409
    again = api.take(TOPIC)
    assert api.call("POST", path, api.handle(TOPIC, job)).status == 409
    assert api.ack(TOPIC, again) == 200


def test_a_lease_can_be_kept_alive(api: Api, service: Service) -> None:
    api.enqueue(TOPIC, b"")
    job = api.take(TOPIC, lease=0.5)
    for _ in range(4):
        service.pass_time(0.3)
        answer = api.extend(TOPIC, job, 0.5)
        assert answer.status == 200
        assert answer.body["lease_expires_at"] > job["lease_expires_at"]
    assert api.dequeue(TOPIC) == []
    assert api.ack(TOPIC, job) == 200


def test_a_lease_can_be_made_shorter(api: Api, service: Service) -> None:
    api.enqueue(TOPIC, b"")
    job = api.take(TOPIC, lease=60)
    assert api.extend(TOPIC, job, 0.2).status == 200
    service.pass_time(0.5)
    assert api.take(TOPIC)["id"] == job["id"]


def test_a_failed_job_comes_again_after_its_backoff(api: Api, service: Service) -> None:
    api.set_topic(TOPIC, backoff_ms=400, backoff_ms_max=600, jitter=0)
    api.enqueue(TOPIC, b"")
    job = api.take(TOPIC)
    assert api.nack(TOPIC, job, "gateway timeout") == 200
    assert api.dequeue(TOPIC) == []
    service.pass_time(0.5)
    again = api.take(TOPIC)
    assert (again["id"], again["attempt"]) == (job["id"], 2)
    assert api.nack(TOPIC, again, "once more") == 200
    service.pass_time(0.3)
    assert api.dequeue(TOPIC) == []
    service.pass_time(0.5)
    found = api.job(TOPIC, job["id"])
    assert [failure["error"] for failure in found["failures"]] == ["gateway timeout", "once more"]
    assert [failure["attempt"] for failure in found["failures"]] == [1, 2]


def test_a_worker_may_say_when_to_try_again(api: Api, service: Service) -> None:
    api.enqueue(TOPIC, b"")
    assert api.nack(TOPIC, api.take(TOPIC), delay=0) == 200
    assert api.nack(TOPIC, api.take(TOPIC), delay=0.5) == 200
    assert api.dequeue(TOPIC) == []
    service.pass_time(0.7)
    assert api.take(TOPIC)["attempt"] == 3


def test_a_failed_job_keeps_its_priority_and_payload(api: Api) -> None:
    api.enqueue(TOPIC, b"body", priority=-70_000, fair_key="a", idempotency_key="k")
    before = api.take(TOPIC)
    api.nack(TOPIC, before, delay=0)
    after = api.take(TOPIC)
    for field in ("id", "payload", "priority", "created_at", "fair_key"):
        assert after[field] == before[field]
    assert api.job(TOPIC, after["id"])["idempotency_key"] == "k"


def test_a_batch_tells_what_became_of_each(api: Api, service: Service) -> None:
    api.enqueue(TOPIC, b"1", b"2")
    stale = api.take(TOPIC, lease=0.2)
    service.pass_time(0.4)
    good = [job for job in api.dequeue(TOPIC) if job["id"] != stale["id"]]
    handles = [*(api.handle(TOPIC, job) for job in (stale, *good)), api.handle(TOPIC, 5)]
    answer = api.call("POST", "/ack", handles)
    assert answer.status == 207
    assert [one["outcome"] for one in answer.body] == ["stale", "done", "unknown"]


def test_a_batch_of_which_all_is_done_is_200(api: Api) -> None:
    ids = api.enqueue(TOPIC, *[b"%d" % n for n in range(50)])
    jobs = api.dequeue(TOPIC)
    assert [job["id"] for job in jobs] == ids
    answer = api.call("POST", "/ack", [api.handle(TOPIC, job) for job in jobs])
    assert (answer.status, answer.body) == (200, [{"outcome": "done"}] * 50)
    assert api.stats(TOPIC)["leased"] == 0


def test_a_batch_of_failures_has_an_error_for_each(api: Api) -> None:
    api.enqueue(TOPIC, b"1", b"2")
    jobs = api.dequeue(TOPIC)
    handles = [api.handle(TOPIC, job, error=str(job["id"])) for job in jobs]
    assert api.call("POST", "/nack", handles).status == 200
    for job in jobs:
        assert api.job(TOPIC, job["id"])["failures"][0]["error"] == str(job["id"])


@pytest.mark.parametrize(
    ("path", "outcomes"),
    [
        ("/ack", ["done", "unknown", "done"]),
        ("/nack", ["done", "stale", "done"]),
        ("/extend", ["done", "done", "done"]),
        ("/cancel", ["done", "unknown", "done"]),
        ("/deliver-now", ["done", "done", "done"]),
    ],
)
def test_a_job_that_a_batch_names_twice_is_settled_twice_in_order(
    api: Api, path: str, outcomes: list[str]
) -> None:
    ids = api.enqueue(TOPIC, b"1", b"2")
    is_leased = path in ("/ack", "/nack", "/extend")
    first, second = api.dequeue(TOPIC) if is_leased else ids
    handles = [api.handle(TOPIC, job) for job in (first, first, second)]
    answer = api.call("POST", path, handles)
    assert [one["outcome"] for one in answer.body] == outcomes


def test_a_job_that_is_acked_twice_in_a_dequeue_is_acked_once(api: Api) -> None:
    api.enqueue(TOPIC, b"1", b"2")
    job = api.take(TOPIC)
    body = api.ack_and_dequeue(TOPIC, job, job).body
    assert [one["outcome"] for one in body["acked"]] == ["done", "unknown"]
    assert [payload(one) for one in body["jobs"]] == [b"2"]


def test_long_errors_and_histories_are_cut(api: Api) -> None:
    api.set_topic(TOPIC, retries_max=100)
    (id,) = api.enqueue(TOPIC, b"")
    for number in range(23):
        api.nack(TOPIC, api.take(TOPIC), "ü" * 5000 + str(number), delay=0)
    failures = api.job(TOPIC, id)["failures"]
    assert [failure["attempt"] for failure in failures] == list(range(4, 24))
    assert all(len(failure["error"].encode()) <= 4096 for failure in failures)


def test_after_a_restart_leased_jobs_are_ready_and_their_tokens_stale(
    own_service: Service,
) -> None:
    if own_service.keeps_leases:
        pytest.skip("leases outlive a node of this store")
    token = own_service.token("n")
    api = Api(own_service.port, token, "n")
    acked, held = api.enqueue(TOPIC, b"acked", b"held")
    jobs = api.dequeue(TOPIC)
    assert api.ack(TOPIC, jobs[0]) == 200
    own_service.restart()
    api = Api(own_service.port, token, "n")
    assert api.ack(TOPIC, jobs[1]) == 409
    assert api.ack(TOPIC, jobs[0]) == 404
    again = api.dequeue(TOPIC)
    assert [job["id"] for job in again] == [held]
    assert again[0]["token"] > jobs[1]["token"]
    assert api.ack(TOPIC, jobs[1]) == 409
    assert api.ack(TOPIC, again[0]) == 200
    assert acked != held
