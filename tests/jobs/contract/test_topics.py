"""Topics: settings, concurrency, fair shares, waiting, single jobs, statistics."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from tests.jobs.api import WAIT_S, WOKEN_WITHIN_S, Api, payload
from tests.jobs.stores import Service

TOPIC = "topical"


def keys_of(jobs: list[dict[str, Any]]) -> list[str]:
    return [job.get("fair_key", "") for job in jobs]


def test_a_topic_has_settings_with_named_defaults(api: Api) -> None:
    path = f"/topics/{api.namespace}/{TOPIC}"
    assert api.get(path).body == {
        "retries_max": 10,
        "backoff_ms": 1000,
        "backoff_ms_max": 600_000,
        "jitter": 0.2,
        "lease_ms": 30_000,
        "concurrency_max": None,
    }
    api.set_topic(TOPIC, retries_max=3, concurrency_max=2)
    assert (api.get(path).body["retries_max"], api.get(path).body["jitter"]) == (3, 0.2)


def test_a_setting_that_is_omitted_keeps_its_value(api: Api) -> None:
    path = f"/topics/{api.namespace}/{TOPIC}"
    api.set_topic(TOPIC, retries_max=3, concurrency_max=2, jitter=0)
    api.set_topic(TOPIC, lease_ms=5_000)
    api.set_topic(TOPIC)
    kept = api.get(path).body
    assert (kept["retries_max"], kept["concurrency_max"], kept["jitter"]) == (3, 2, 0)
    api.set_topic(TOPIC, concurrency_max=None)
    changed = api.get(path).body
    assert (changed["retries_max"], changed["concurrency_max"]) == (3, None)
    assert changed["lease_ms"] == 5_000


def test_the_lease_of_a_topic_holds_where_none_is_asked_for(api: Api, service: Service) -> None:
    api.set_topic(TOPIC, lease_ms=300)
    api.enqueue(TOPIC, b"")
    api.take(TOPIC)
    service.pass_time(0.5)
    assert api.take(TOPIC)["attempt"] == 2


def test_no_more_jobs_are_leased_at_once_than_the_topic_allows(api: Api, service: Service) -> None:
    api.set_topic(TOPIC, concurrency_max=2)
    api.enqueue(TOPIC, b"1", b"2", b"3", b"4")
    first = api.dequeue(TOPIC, lease=0.4)
    assert len(first) == 2
    assert api.dequeue(TOPIC) == []
    assert api.ack(TOPIC, first[0]) == 200
    assert len(api.dequeue(TOPIC, lease=60)) == 1
    service.pass_time(0.6)  # a slot belongs to its lease: the worker that died gives it back
    assert len(api.dequeue(TOPIC)) == 1
    assert api.dequeue(TOPIC) == []


def test_a_topic_without_leases_is_paused(api: Api) -> None:
    api.set_topic(TOPIC, concurrency_max=2)
    api.enqueue(TOPIC, b"1", b"2", b"3")
    held = api.take(TOPIC)
    api.set_topic(TOPIC, concurrency_max=0)
    assert api.dequeue(TOPIC) == []
    assert api.ack_and_dequeue(TOPIC).body == {"acked": [], "jobs": []}
    assert api.ack(TOPIC, held) == 200
    with ThreadPoolExecutor(1) as worker:
        waiting = worker.submit(api.dequeue, TOPIC, 5, wait=WAIT_S)
        api.set_topic(TOPIC, concurrency_max=None)
        assert [payload(job) for job in waiting.result(WOKEN_WITHIN_S)] == [b"2", b"3"]


def test_a_busy_topic_can_be_paused(api: Api) -> None:
    """The store may lease jobs of a busy topic ahead."""
    api.enqueue(TOPIC, *[b"%d" % n for n in range(200)])
    for _ in range(50):
        assert api.ack(TOPIC, api.take(TOPIC)) == 200
    api.set_topic(TOPIC, concurrency_max=0)
    assert api.dequeue(TOPIC) == []
    api.set_topic(TOPIC, concurrency_max=None)
    assert len(api.dequeue(TOPIC, 1000)) == 150


def test_a_noisy_key_does_not_starve_a_quiet_one(api: Api) -> None:
    api.enqueue(TOPIC, *[b"a"] * 300, fair_key="a")
    api.enqueue(TOPIC, b"b", fair_key="b")
    assert "b" in keys_of(api.dequeue(TOPIC, 2))


def test_keys_take_turns_and_keep_their_own_order(api: Api) -> None:
    for key in "abc":
        api.enqueue(TOPIC, *[b"%s%d" % (key.encode(), n) for n in range(6)], fair_key=key)
    jobs = api.dequeue(TOPIC)
    for start in range(0, 18, 3):
        assert sorted(keys_of(jobs[start : start + 3])) == ["a", "b", "c"]
    for key in "abc":
        own = [payload(job) for job in jobs if job["fair_key"] == key]
        assert own == [b"%s%d" % (key.encode(), n) for n in range(6)]


def test_a_lone_key_gets_everything(api: Api) -> None:
    ids = api.enqueue(TOPIC, *[b""] * 50, fair_key="only")
    assert [job["id"] for job in api.dequeue(TOPIC)] == ids


def test_priority_comes_before_fairness(api: Api) -> None:
    api.enqueue(TOPIC, b"1", b"2", fair_key="urgent", priority=-1)
    api.enqueue(TOPIC, b"3", b"4", fair_key="calm", priority=0)
    assert keys_of(api.dequeue(TOPIC)) == ["urgent", "urgent", "calm", "calm"]


def test_jobs_without_a_key_take_turns_with_the_rest(api: Api) -> None:
    api.enqueue(TOPIC, *[b""] * 100, fair_key="noisy")
    api.enqueue(TOPIC, b"plain")
    assert "" in keys_of(api.dequeue(TOPIC, 2))


def test_a_retried_job_goes_back_into_its_keys_line(api: Api) -> None:
    api.enqueue(TOPIC, *[b"a"] * 20, fair_key="a")
    api.enqueue(TOPIC, b"b", fair_key="b")
    jobs = api.dequeue(TOPIC, 2)
    (b,) = [job for job in jobs if job["fair_key"] == "b"]
    api.nack(TOPIC, b, delay=0)
    assert "b" in keys_of(api.dequeue(TOPIC, 2))


def test_a_dequeue_that_waits_is_woken_by_a_job(api: Api) -> None:
    with ThreadPoolExecutor(1) as worker:
        waiting = worker.submit(api.dequeue, TOPIC, 5, wait=WAIT_S)
        while "topical" not in str(api.get("/stats", namespace=api.namespace).body):
            pass  # it has not begun to wait
        (id,) = api.enqueue(TOPIC, b"")
        assert [job["id"] for job in waiting.result(WOKEN_WITHIN_S)] == [id]


def test_of_two_that_wait_each_gets_a_job(api: Api) -> None:
    with ThreadPoolExecutor(2) as workers:
        waiting = [workers.submit(api.dequeue, TOPIC, 1, wait=WAIT_S) for _ in range(2)]
        ids = api.enqueue(TOPIC, b"1") + api.enqueue(TOPIC, b"2")
        assert sorted(one.result(WOKEN_WITHIN_S)[0]["id"] for one in waiting) == ids


def test_whoever_waits_and_goes_takes_nothing_along(api: Api) -> None:
    with socket.create_connection(("127.0.0.1", api.port)) as gone:
        path = f"/dequeue?namespace={api.namespace}&topic={TOPIC}&wait=30"
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\n\r\n"
        gone.sendall(head.encode())
        while "topical" not in str(api.get("/stats", namespace=api.namespace).body):
            pass  # it has not begun to wait
    assert api.dequeue(TOPIC, wait=0.2) == []  # the service has seen it go
    (id,) = api.enqueue(TOPIC, b"")
    job = api.take(TOPIC, wait=WAIT_S)
    assert (job["id"], job["attempt"]) == (id, 1)


def test_waiting_ends_with_nothing(api: Api) -> None:
    assert api.dequeue(TOPIC, wait=0.2) == []
    (id,) = api.enqueue(TOPIC, b"")
    job = api.take(TOPIC)
    assert (job["id"], job["attempt"]) == (id, 1)


def test_whoever_waits_for_a_slot_gets_it(api: Api) -> None:
    api.set_topic(TOPIC, concurrency_max=1)
    api.enqueue(TOPIC, b"1", b"2")
    first = api.take(TOPIC)
    begun = threading.Event()

    def wait() -> list[dict[str, Any]]:
        begun.set()
        return api.dequeue(TOPIC, 1, wait=WAIT_S)

    with ThreadPoolExecutor(1) as worker:
        waiting = worker.submit(wait)
        begun.wait(60)
        assert api.ack(TOPIC, first) == 200
        assert payload(waiting.result(WOKEN_WITHIN_S)[0]) == b"2"


def test_a_waiting_worker_is_woken_by_a_scheduled_job(api: Api, service: Service) -> None:
    due = datetime.fromtimestamp(service.now_ms() / 1000 + 0.5, UTC).isoformat()
    (id,) = api.enqueue(TOPIC, b"", deliver_after=due)
    with ThreadPoolExecutor(1) as worker:
        waiting = worker.submit(api.dequeue, TOPIC, 1, wait=WAIT_S)
        service.pass_time(0.7)
        assert [job["id"] for job in waiting.result(WOKEN_WITHIN_S)] == [id]


def test_a_job_that_waits_can_be_cancelled(api: Api, service: Service) -> None:
    due = datetime.fromtimestamp(service.now_ms() / 1000 + 60, UTC).isoformat()
    (later,) = api.enqueue(TOPIC, b"", deliver_after=due)
    now, leased = api.enqueue(TOPIC, b"1", b"2", priority=3)[0], api.enqueue("x", b"")[0]
    for id in (later, now):
        assert api.call("POST", "/cancel", api.handle(TOPIC, id)).status == 200
        assert api.call("POST", "/cancel", api.handle(TOPIC, id)).status == 404
    api.take("x")
    assert api.call("POST", "/cancel", api.handle("x", leased)).status == 409
    assert len(api.dequeue(TOPIC)) == 1


def test_a_scheduled_job_can_be_delivered_now(api: Api, service: Service) -> None:
    due = datetime.fromtimestamp(service.now_ms() / 1000 + 3600, UTC).isoformat()
    ids = api.enqueue(TOPIC, b"1", b"2", deliver_after=due)
    assert api.call("POST", "/deliver-now", api.handle(TOPIC, ids[1])).status == 200
    job = api.take(TOPIC)
    assert job["id"] == ids[1]
    assert api.call("POST", "/deliver-now", api.handle(TOPIC, job)).status == 409
    answer = api.call("POST", "/deliver-now", [api.handle(TOPIC, id) for id in (ids[0], 9)])
    assert [one["outcome"] for one in answer.body] == ["done", "unknown"]
    assert answer.status == 207


def test_a_job_can_be_looked_at_in_every_state(api: Api, service: Service) -> None:
    (id,) = api.enqueue(TOPIC, b"body", priority=4, idempotency_key="k", fair_key="f")
    found = api.job(TOPIC, id)
    assert (found["state"], found["priority"], found["attempts"]) == ("ready", 4, 0)
    assert (found["idempotency_key"], found["fair_key"]) == ("k", "f")
    assert payload(found) == b"body"
    job = api.take(TOPIC)
    found = api.job(TOPIC, id)
    assert (found["state"], found["lease_expires_at"]) == ("leased", job["lease_expires_at"])


def test_figures_count_what_happened(api: Api, service: Service) -> None:
    due = datetime.fromtimestamp(service.now_ms() / 1000 + 3600, UTC).isoformat()
    api.enqueue(TOPIC, b"", deliver_after=due)
    api.enqueue(TOPIC, b"1", b"2", b"3", b"4")
    jobs = api.dequeue(TOPIC, 2)
    assert api.ack(TOPIC, jobs[0]) == 200
    stats = api.stats(TOPIC)
    assert [stats[name] for name in ("ready", "scheduled", "leased", "dead")] == [2, 1, 1, 0]
    assert stats["oldest_ready_ms"] is not None
    assert stats["enqueued"] == 5
    assert stats["acked"] == 1
    assert stats["handed_out"] == 2
