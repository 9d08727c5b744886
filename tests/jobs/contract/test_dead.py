"""Dead jobs: kept with their errors, listed, redriven, deleted."""

from leveret import job_model
from tests.jobs.api import Api
from tests.jobs.stores import Service

TOPIC = "deadly"


def kill(api: Api, *payloads: bytes) -> list[int]:
    """Let jobs die at their second attempt."""
    api.set_topic(TOPIC, retries_max=1, backoff_ms=0)
    ids = api.enqueue(TOPIC, *payloads)
    for _ in range(2):
        for job in api.dequeue(TOPIC, len(payloads)):
            assert api.nack(TOPIC, job, f"attempt {job['attempt']}") == 200
    return ids


def test_a_job_that_fails_too_often_is_dead_with_its_errors(api: Api) -> None:
    (id,) = kill(api, b"poison")
    assert api.dequeue(TOPIC) == []
    (dead,) = api.dead(TOPIC)
    assert (dead["id"], dead["state"], dead["attempts"]) == (id, "dead", 2)
    assert [failure["error"] for failure in dead["failures"]] == ["attempt 1", "attempt 2"]
    assert api.job(TOPIC, id)["state"] == "dead"
    assert api.stats(TOPIC)["dead"] == 1


def test_a_job_that_kills_its_workers_dies_too(api: Api, service: Service) -> None:
    api.set_topic(TOPIC, retries_max=1)
    (id,) = api.enqueue(TOPIC, b"")
    for _ in range(2):
        api.take(TOPIC, lease=0.1)
        service.pass_time(0.4)
    assert api.dequeue(TOPIC) == []
    assert api.job(TOPIC, id)["state"] == "dead"


def test_a_worker_can_say_that_a_job_is_dead_whatever_retries_it_has_left(api: Api) -> None:
    poison, fine = api.enqueue(TOPIC, b"poison", b"fine")
    job, other = api.dequeue(TOPIC, 2)
    handles = [
        api.handle(TOPIC, job, error="no such customer", dead=True),
        api.handle(TOPIC, other, error="no such customer", delay=0),
    ]
    assert api.call("POST", "/nack", handles).status == 200
    assert [job["id"] for job in api.dequeue(TOPIC)] == [fine]
    (dead,) = api.dead(TOPIC)
    assert (dead["id"], dead["state"], dead["attempts"]) == (poison, "dead", 1)
    assert [failure["error"] for failure in dead["failures"]] == ["no such customer"]
    assert api.nack(TOPIC, job, dead=True) == 404
    body = {"namespace": api.namespace, "topic": TOPIC}
    assert api.call("POST", "/dead/redrive", body).body == {"redriven": 1}
    assert api.take(TOPIC)["id"] == poison


def test_a_lease_that_is_over_cannot_make_its_job_dead(api: Api) -> None:
    (id,) = api.enqueue(TOPIC, b"")
    job = api.take(TOPIC)
    api.nack(TOPIC, job, delay=0)
    assert api.nack(TOPIC, job, dead=True) == 409
    assert api.take(TOPIC)["id"] == id


def test_without_retries_the_first_failure_is_the_last(api: Api) -> None:
    api.set_topic(TOPIC, retries_max=0)
    api.enqueue(TOPIC, b"")
    api.nack(TOPIC, api.take(TOPIC))
    assert len(api.dead(TOPIC)) == 1


def test_the_dead_are_listed_in_pages_by_id(api: Api) -> None:
    ids = kill(api, *[b"%d" % n for n in range(7)])
    first = api.dead(TOPIC, limit=3)
    rest = api.dead(TOPIC, limit=100, after=first[-1]["id"])
    assert [job["id"] for job in first + rest] == ids
    assert len(first) == 3


def test_one_answer_has_a_bounded_number_of_bytes(api: Api) -> None:
    most = job_model.BATCH_BYTES_MAX // job_model.PAYLOAD_BYTES_MAX
    for _ in range(most + 2):
        api.enqueue(TOPIC, b"x" * job_model.PAYLOAD_BYTES_MAX)
    answers = [api.dequeue(TOPIC, 1000) for _ in range(3)]
    assert [len(jobs) for jobs in answers] == [most, 2, 0]
    for job in answers[0] + answers[1]:
        assert api.nack(TOPIC, job, dead=True) == 200
    pages = [api.dead(TOPIC)]
    pages.append(api.dead(TOPIC, after=pages[0][-1]["id"]))
    assert [len(page) for page in pages] == [most, 2]
    body = {"namespace": api.namespace, "topic": TOPIC}
    assert api.call("POST", "/dead/delete", body).body == {"deleted": most + 2}


def test_a_redriven_job_has_fresh_retries_and_its_history(api: Api) -> None:
    (id,) = kill(api, b"body")
    body = {"namespace": api.namespace, "topic": TOPIC}
    answer = api.call("POST", "/dead/redrive", body)
    assert (answer.status, answer.body) == (200, {"redriven": 1})
    assert api.dead(TOPIC) == []
    job = api.take(TOPIC)
    assert (job["id"], job["attempt"]) == (id, 1)
    assert len(api.job(TOPIC, id)["failures"]) == 2
    assert api.ack(TOPIC, job) == 200


def test_some_of_the_dead_may_be_meant(api: Api) -> None:
    ids = kill(api, b"1", b"2", b"3")
    body = {"namespace": api.namespace, "topic": TOPIC, "ids": [ids[1], str(ids[2]), 7]}
    assert api.call("POST", "/dead/delete", body).body == {"deleted": 2}
    assert [job["id"] for job in api.dead(TOPIC)] == ids[:1]
    assert api.dequeue(TOPIC) == []


def test_all_of_the_dead_can_be_deleted(api: Api) -> None:
    kill(api, b"1", b"2", b"3")
    body = {"namespace": api.namespace, "topic": TOPIC}
    assert api.call("POST", "/dead/delete", body).body == {"deleted": 3}
    assert api.dead(TOPIC) == []
    assert api.call("POST", "/dead/redrive", body).body == {"redriven": 0}


def test_acking_a_dead_job_is_404(api: Api) -> None:
    (id,) = kill(api, b"")
    assert api.ack(TOPIC, id) == 404


def test_the_dead_survive_a_restart(own_service: Service) -> None:
    token = own_service.token("n")
    ids = kill(Api(own_service.port, token, "n"), b"1", b"2")
    own_service.restart()
    api = Api(own_service.port, token, "n")
    assert [job["id"] for job in api.dead(TOPIC)] == ids
    assert [len(job["failures"]) for job in api.dead(TOPIC)] == [2, 2]


def test_the_failures_of_jobs_count_to_the_bytes_of_a_list(api: Api) -> None:
    """A job of one byte may have 80 KiB of failures, and a page a thousand jobs."""
    api.set_topic(TOPIC, retries_max=job_model.ERRORS_KEPT - 1, backoff_ms=0, backoff_ms_max=0)
    fat = api.enqueue(TOPIC, *[b"%d" % number for number in range(40)])
    error = "e" * job_model.ERROR_BYTES_MAX
    for _ in range(job_model.ERRORS_KEPT):
        taken = api.dequeue(TOPIC)
        failed = [api.handle(TOPIC, job, error=error) for job in taken]
        assert api.call("POST", "/nack", failed).status == 200
    # Eight payloads would fit into a page without the histories, which have 3 MiB.
    large = [bytes(job_model.PAYLOAD_BYTES_MAX)] * 7
    ids = fat + api.enqueue(TOPIC, *large, b"last")
    for job in api.dequeue(TOPIC):
        assert api.nack(TOPIC, job, dead=True) == 200
    (more,) = api.enqueue(TOPIC, bytes(job_model.PAYLOAD_BYTES_MAX - 65_536))
    assert api.nack(TOPIC, api.take(TOPIC), dead=True) == 200
    (after,) = api.enqueue(TOPIC, b"")
    assert api.nack(TOPIC, api.take(TOPIC), dead=True) == 200
    first = ids_of(api.dead(TOPIC, limit=1_000, payloads="false"))
    assert first == [*ids, more], "the job that reaches the limit is the last one"
    rest = api.dead(TOPIC, limit=1_000, after=more, payloads="false")
    assert ids_of(rest) == [after]


def ids_of(jobs: list[dict[str, object]]) -> list[object]:
    return [job["id"] for job in jobs]


def test_control_characters_of_an_error_are_replaced(api: Api) -> None:
    (id,) = api.enqueue(TOPIC, b"")
    assert api.nack(TOPIC, api.take(TOPIC), "red \x1b[31m\0\x7f\ttab\nline é", dead=True) == 200
    (failure,) = api.job(TOPIC, id)["failures"]
    assert failure["error"] == "red \ufffd[31m\ufffd\ufffd\ttab\nline é"
