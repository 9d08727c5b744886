"""Features of the embedded store: AMQP beside HTTP, keys of tokens, rates, stopping."""

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pika
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from leveret.config.option import Secret
from leveret.config.settings import Settings
from leveret.engine.backlog.fair_lines import FairLine, FairLines
from leveret.errors import ConfigError, LeadLostError
from leveret.job_service.embedded import block_limit
from leveret.job_service.embedded.store import EmbeddedStore
from leveret.runtime.job_tokens import JobTokens
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES
from tests.jobs.api import WAIT_S, WOKEN_WITHIN_S, Api, payload
from tests.jobs.stores import EmbeddedService, embedded

TOPIC = "orders"
SECRET = "a secret of thirty-two characters"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedService]:
    with embedded(tmp_path_factory.mktemp("embedded")) as service:
        yield service


@pytest.fixture
def api(running: EmbeddedService, request: pytest.FixtureRequest) -> Api:
    name = request.node.name
    return Api(running.port, running.token(name), name)


@pytest.fixture
def channel(running: EmbeddedService, api: Api) -> Iterator[Any]:
    """AMQP in the vhost of the namespace, which is made by the first call."""
    api.dequeue("made-by-this")
    with amqp(running, api.namespace) as opened:
        yield opened


@contextmanager
def amqp(service: EmbeddedService, vhost: str) -> Iterator[Any]:
    where = pika.ConnectionParameters(service.server.host, service.server.port, vhost)
    with pika.BlockingConnection(where) as connection:
        yield connection.channel()


def test_a_job_can_be_consumed_over_amqp(api: Api, channel: Any) -> None:
    ids = api.enqueue(TOPIC, b"second", priority=1) + api.enqueue(TOPIC, b"first", priority=-70_000)
    assert channel.queue_declare(TOPIC, durable=True).method.message_count == 2
    method, properties, body = channel.basic_get(TOPIC)
    assert body == b"first"
    assert properties.headers["x-job-id"] == str(ids[1]) == properties.message_id
    assert (properties.delivery_mode, properties.priority) == (2, 255)
    channel.basic_ack(method.delivery_tag)
    assert [job["id"] for job in api.dequeue(TOPIC)] == ids[:1]


def test_a_message_can_be_dequeued_over_http(api: Api, channel: Any) -> None:
    api.dequeue(TOPIC)
    headers = {"tenant": "a"}
    properties = pika.BasicProperties(delivery_mode=2, headers=headers, content_type="text/plain")
    channel.basic_publish("", TOPIC, b"from amqp", properties)
    job = api.take(TOPIC, wait=WAIT_S)
    assert payload(job) == b"from amqp"
    assert job["id"] > 2**53
    assert api.nack(TOPIC, job, "try over amqp", delay=0) == 200
    method, after, body = channel.basic_get(TOPIC)
    assert body == b"from amqp"
    assert after.content_type == "text/plain"
    assert after.headers["tenant"] == "a"
    assert after.headers["x-job-id"] == str(job["id"])
    channel.basic_nack(method.delivery_tag, requeue=True)
    again = api.take(TOPIC, wait=WAIT_S)
    assert (again["id"], again["attempt"]) == (job["id"], 2)
    assert api.ack(TOPIC, again) == 200


def test_a_job_that_an_amqp_consumer_holds_is_there(api: Api, channel: Any) -> None:
    (id,) = api.enqueue(TOPIC, b"held", priority=-3)
    method, _, _ = channel.basic_get(TOPIC)
    shown = api.job(TOPIC, id)
    assert (shown["state"], shown["priority"], payload(shown)) == ("leased", -3, b"held")
    assert "lease_expires_at" not in shown
    assert api.ack(TOPIC, id) == 409
    assert api.call("POST", "/cancel", api.handle(TOPIC, id)).status == 409
    channel.basic_ack(method.delivery_tag)
    channel.queue_declare(TOPIC, passive=True)  # the ack is done
    assert api.get("/job", namespace=api.namespace, topic=TOPIC, id=id).status == 404
    assert api.ack(TOPIC, id) == 404


def test_messages_that_amqp_consumers_hold_are_listed_once_each(api: Api, channel: Any) -> None:
    """They have no ids yet. One of them was taken over HTTP, and has an id only in its lease."""
    api.dequeue(TOPIC)
    bodies = [b"%d" % number for number in range(4)]
    for body in bodies:
        channel.basic_publish("", TOPIC, body, pika.BasicProperties(delivery_mode=2))
    assert payload(api.take(TOPIC, wait=WAIT_S)) == bodies[0]
    assert [channel.basic_get(TOPIC)[2] for _ in bodies[1:]] == bodies[1:]
    place = {"namespace": api.namespace, "topic": TOPIC, "state": "leased"}
    for limit in (1, 2, 3, 4, 100):
        answer = api.get("/jobs", limit=limit, **place)
        found = answer.body
        while after := answer.headers.get("jobs-next"):
            answer = api.get("/jobs", limit=limit, after=after, **place)
            assert len(answer.body) <= limit
            found += answer.body
        assert sorted(map(payload, found)) == bodies


class NotUtf8(str):
    """A text that pika sends as bytes that are not UTF-8."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b"[\xff]"


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-job-created", 2**62),
        ("x-job-after", -(2**62)),
        ("x-job-attempts", -5),
        ("x-job-failures", '[{"attempt": 1, "time_ms": 4611686018427387904, "error": ""}]'),
        ("x-job-failures", '[{"more": ' + "[" * 50_000),
        ("x-job-failures", NotUtf8()),
        ("x-job-fair-key", NotUtf8()),
        ("x-job-key", NotUtf8()),
        ("x-job-id", "9999999999999999999"),
        ("x-job-id", NotUtf8()),
    ],
    ids=range(10),
)
def test_headers_that_a_publisher_made_up_do_no_harm(
    api: Api, channel: Any, header: str, value: Any
) -> None:
    api.set_topic(TOPIC, retries_max=1)
    properties = pika.BasicProperties(headers={header: value}, delivery_mode=2)
    channel.confirm_delivery()
    channel.basic_publish("", TOPIC, b"odd", properties)
    query = {"namespace": api.namespace, "topic": TOPIC}
    assert [job["payload"] for job in api.get("/jobs", state="ready", **query).body]
    job = api.take(TOPIC)
    assert job["attempt"] == 1
    assert api.nack(TOPIC, job, delay=0) == 200
    again = api.take(TOPIC)
    assert (again["id"], again["attempt"]) == (job["id"], 2)
    assert api.nack(TOPIC, again) == 200
    (dead,) = api.dead(TOPIC)
    assert [failure["attempt"] for failure in dead["failures"]] == [1, 2]


def test_an_amqp_priority_is_a_job_priority_with_its_sign_turned(api: Api, channel: Any) -> None:
    api.dequeue(TOPIC)
    for priority in (None, 5, 255):
        properties = pika.BasicProperties(priority=priority)
        channel.basic_publish("", TOPIC, str(priority).encode(), properties)
    channel.queue_declare(TOPIC, passive=True)  # what was published is there
    api.enqueue(TOPIC, b"-4", priority=-4)
    api.enqueue(TOPIC, b"-6", priority=-6)
    api.enqueue(TOPIC, b"1", priority=1)
    jobs = api.dequeue(TOPIC)
    assert [payload(job) for job in jobs] == [b"255", b"-6", b"5", b"-4", b"None", b"1"]
    assert [job["priority"] for job in jobs] == [-255, -6, -5, -4, 0, 1]


def test_a_queue_that_amqp_made_is_a_topic_too(api: Api, channel: Any) -> None:
    channel.queue_declare("plain", durable=True)
    (id,) = api.enqueue("plain", b"job", priority=3, fair_key="k")
    job = api.take("plain")
    assert (job["id"], job["priority"]) == (id, 3)
    assert api.nack("plain", job, delay=0) == 200
    assert api.ack("plain", api.take("plain")) == 200


def test_a_stream_cannot_be_a_topic(api: Api, channel: Any) -> None:
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    answer = api.call("POST", "/enqueue", [api.item("log", b"")])
    assert (answer.status, answer.body["field"]) == (400, "topic")


def test_an_exclusive_queue_that_is_declared_for_jobs_hides_no_statistics(
    api: Api, channel: Any
) -> None:
    """A user of one vhost could make one."""
    api.enqueue(TOPIC, b"")
    channel.queue_declare("mine", exclusive=True, arguments={"x-jobs": True})
    assert api.stats(TOPIC)["ready"] == 1
    assert api.get("/dequeue", namespace=api.namespace, topic="mine").status == 400


@pytest.mark.parametrize(
    "arguments",
    [{"x-queue-type": "stream"}, {"x-max-length": 0, "x-overflow": "reject-publish"}],
    ids=["stream", "full"],
)
def test_a_schedule_that_cannot_fire_waits_and_holds_up_nothing(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    with embedded(tmp_path / "own") as service:
        api = Api(service.port, service.token("shop"), "shop")
        for name in ("blocked", "free"):
            body = {"name": name, "namespace": "shop", "topic": name, "cron": "0,30 * * * *"}
            assert api.call("PUT", f"/schedules/shop/{name}", body).status == 204
        with amqp(service, "shop") as channel:
            channel.queue_delete("blocked")
            channel.queue_declare("blocked", durable=True, arguments=arguments)
        service.pass_time(1800)
        assert len(api.dequeue("free")) == 1
        service.restart()
        api = Api(service.port, service.token("shop"), "shop")
        with amqp(service, "shop") as channel:
            channel.queue_delete("blocked")
        service.pass_time(60)
        assert len(api.dequeue("blocked")) == 1, "it was due all the time"


def test_a_topic_whose_queue_was_deleted_begins_anew(api: Api, channel: Any) -> None:
    api.enqueue(TOPIC, b"1", b"2")
    job = api.take(TOPIC)
    channel.queue_delete(TOPIC)
    assert api.dequeue(TOPIC) == []
    assert api.ack(TOPIC, job) == 404
    api.enqueue(TOPIC, b"3")
    assert payload(api.take(TOPIC)) == b"3"


@pytest.mark.parametrize("held_count", [0, 1])
def test_a_queue_may_be_deleted_while_somebody_waits(
    running: EmbeddedService, api: Api, channel: Any, held_count: int
) -> None:
    api.dequeue(TOPIC)
    for _ in range(held_count):
        api.enqueue(TOPIC, b"held")
    held = api.dequeue(TOPIC)
    with ThreadPoolExecutor(1) as worker:
        waiting = worker.submit(api.dequeue, TOPIC, 1, wait=WAIT_S)
        while channel.queue_declare(TOPIC, passive=True).method.consumer_count == 0:
            pass  # it has not begun to wait
        channel.queue_delete(TOPIC)
        (id,) = api.enqueue(TOPIC, b"new")
        assert waiting.result(WOKEN_WITHIN_S) == []  # it waited for another queue
    for job in held:
        assert api.ack(TOPIC, job) == 404
    assert api.take(TOPIC)["id"] == id
    running.pass_time(60)
    assert api.take(TOPIC)["attempt"] == 2


async def lose_lead(*arguments: object) -> list[object]:
    """Dequeue in a node that loses the lead while a call waits."""
    if arguments[-1] == 0:  # the time to wait
        return []
    raise LeadLostError("another node leads now: try again")


def test_a_waiting_dequeue_is_told_that_its_node_lost_the_lead(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedStore, "dequeue", lose_lead)
        where = {"namespace": api.namespace, "topic": TOPIC, "limit": 1, "wait": WAIT_S}
        answer = api.get("/dequeue", **where)
    assert answer.status == 503
    assert answer.body["detail"] == "another node leads now: try again"


def test_acks_are_told_if_no_job_can_be_taken_after_them(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.enqueue(TOPIC, b"")
    job = api.take(TOPIC)
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedStore, "dequeue", lose_lead)
        answer = api.ack_and_dequeue(TOPIC, job, limit=1, wait=WAIT_S)
    assert (answer.status, answer.body) == (200, {"acked": [{"outcome": "done"}], "jobs": []})


def test_a_full_topic_takes_nothing_of_a_batch(api: Api, channel: Any) -> None:
    channel.queue_declare(
        "small", durable=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"}
    )
    items = [api.item("small", b""), api.item(TOPIC, b"")]
    assert api.call("POST", "/enqueue", items).status == 200
    answer = api.call("POST", "/enqueue", [*items, *items])
    assert answer.status == 503
    assert answer.headers["retry-after"]
    assert "small" in answer.body["detail"]
    assert len(api.dequeue(TOPIC)) == 1


def test_a_job_whose_dead_queue_is_full_is_kept_and_tried_again(api: Api, channel: Any) -> None:
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare(f"{TOPIC}.dead", durable=True, arguments=limits)
    first, second = api.enqueue(TOPIC, b"1", b"2")
    assert [api.nack(TOPIC, api.take(TOPIC), dead=True) for _ in range(2)] == [200, 200]
    assert [job["id"] for job in api.dead(TOPIC)] == [first]
    assert (api.stats(TOPIC)["scheduled"], api.stats(TOPIC)["dead"]) == (1, 1)
    assert [failure["error"] for failure in api.job(TOPIC, second)["failures"]] == ["no"]


def test_a_job_whose_dead_queue_cannot_be_made_is_kept_and_tried_again(tmp_path: Path) -> None:
    """A fault at the end of a lease would also keep the other leases of the topic from ending."""
    with embedded(tmp_path) as service:
        api = Api(service.port, service.token("n"), "n")
        api.enqueue(TOPIC, b"1", b"2", b"3")
        login = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
        management = Api(service.port, None, "")
        path = "/api/vhost-limits/n/max-queues"
        assert management.call("PUT", path, {"value": 1}, login).status == 204
        api.set_topic(TOPIC, retries_max=0)
        assert api.nack(TOPIC, api.take(TOPIC)) == 200
        assert len(api.dequeue(TOPIC, lease=5)) == 2
        service.pass_time(6)
        stats = api.stats(TOPIC)
        assert (stats["scheduled"], stats["leased"], stats["dead"]) == (3, 0, 0)
        assert management.call("DELETE", path, headers=login).status == 204
        service.pass_time(20)
        for job in api.dequeue(TOPIC):
            assert api.nack(TOPIC, job) == 200
        assert len(api.dead(TOPIC)) == 3


def test_a_batch_cancels_and_wakes_jobs_wherever_they_are(
    running: EmbeddedService, api: Api
) -> None:
    ready = api.enqueue(TOPIC, *[b""] * 5, fair_key="a") + api.enqueue(TOPIC, b"", priority=7)
    due = datetime.fromtimestamp(running.now_ms() / 1000 + 3600, UTC).isoformat()
    later = api.enqueue(TOPIC, *[b""] * 5, deliver_after=due)
    meant = [ready[0], later[0], ready[0], 5, ready[5], later[1]]
    answer = api.call("POST", "/cancel", [api.handle(TOPIC, id) for id in meant])
    outcomes = [one["outcome"] for one in answer.body]
    assert outcomes == ["done", "done", "unknown", "unknown", "done", "done"]
    meant = [later[2], ready[1], later[0], later[3]]
    answer = api.call("POST", "/deliver-now", [api.handle(TOPIC, id) for id in meant])
    assert [one["outcome"] for one in answer.body] == ["done", "done", "unknown", "done"]
    left = {job["id"] for job in api.dequeue(TOPIC)}
    assert left == {*ready[1:5], later[2], later[3]}
    assert api.stats(TOPIC)["scheduled"] == 1


@pytest.mark.interpreted_only("compiled code cannot be patched")
def test_jobs_of_many_fair_keys_are_found_without_listing_the_keys_for_each(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 300
    items = [api.item(TOPIC, b"", fair_key=f"{n}") for n in range(count)]
    ids = api.call("POST", "/enqueue", items).body
    listed: list[int] = []
    real = FairLines.at

    def counted(lines: FairLines, priority: int) -> list[FairLine]:
        listed.append(priority)
        return real(lines, priority)

    monkeypatch.setattr(FairLines, "at", counted)
    query = {"namespace": api.namespace, "topic": TOPIC, "state": "ready", "limit": count}
    assert [job["id"] for job in api.get("/jobs", **query).body] == ids
    assert api.get("/job", namespace=api.namespace, topic=TOPIC, id=5).status == 404
    answer = api.call("POST", "/cancel", [api.handle(TOPIC, id) for id in ids[::2]])
    assert answer.status == 200
    assert len(listed) < count // 4


def test_a_consumer_of_amqp_and_one_of_http_share_a_topic(api: Api, channel: Any) -> None:
    api.enqueue(TOPIC, *[b"%d" % n for n in range(20)])
    channel.basic_qos(prefetch_count=5)
    over_amqp = []
    for _, _, body in channel.consume(TOPIC, auto_ack=False, inactivity_timeout=60):
        over_amqp.append(body)
        if len(over_amqp) == 5:
            break
    over_http = [payload(job) for job in api.dequeue(TOPIC)]
    assert sorted(over_amqp + over_http, key=int) == [b"%d" % n for n in range(20)]


def largest_block(folder: Path) -> int:
    """Return the size of the largest block in the log."""
    sizes = [0]
    for path in folder.glob("*.log"):
        data, at = path.read_bytes(), HEAD_BYTES
        while size := int.from_bytes(data[at : at + 4], "big"):
            sizes.append(size)
            at += BLOCK_HEAD_BYTES + size
    return max(sizes)


def test_payloads_that_are_written_again_make_no_large_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log fails at a block of more than 1 GiB."""
    count, size = 20, 100_000
    monkeypatch.setattr(block_limit, "WAITING_BYTES_MAX", 2 * size)
    with embedded(tmp_path) as service:
        api = Api(service.port, service.token("n"), "n")
        api.set_topic(TOPIC, retries_max=2)

        def changed(path: str, jobs: list[dict[str, Any]], **more: Any) -> None:
            handles = [api.handle(TOPIC, job, **more) for job in jobs]
            assert api.call("POST", path, handles).status == 200

        for _ in range(count):
            api.enqueue(TOPIC, bytes(size))
        changed("/nack", api.dequeue(TOPIC), delay=3600)
        late = api.get("/jobs", namespace="n", topic=TOPIC, state="scheduled").body
        changed("/deliver-now", [{"id": job["id"], "token": None} for job in late])
        assert len(api.dequeue(TOPIC, lease=1)) == count
        while api.stats(TOPIC)["leased"]:
            service.pass_time(1)
        changed("/nack", api.dequeue(TOPIC), dead=True)
        assert api.stats(TOPIC)["dead"] == count
        body = {"namespace": "n", "topic": TOPIC}
        assert api.call("POST", "/dead/redrive", body).body == {"redriven": count}
        assert len(api.dequeue(TOPIC)) == count
        assert 2 * size < largest_block(tmp_path) < 5 * size


def test_long_histories_still_fit_the_frame_of_a_header(api: Api, channel: Any) -> None:
    api.set_topic(TOPIC, retries_max=100)
    (id,) = api.enqueue(TOPIC, b"")
    for _ in range(22):
        assert api.nack(TOPIC, api.take(TOPIC), '"' * 5000, delay=0) == 200
    failures = api.job(TOPIC, id)["failures"]
    assert [failure["attempt"] for failure in failures] == list(range(3, 23))
    assert len(failures[-1]["error"]) == 4096
    _, properties, _ = channel.basic_get(TOPIC)
    assert len(json.loads(properties.headers["x-job-failures"])) == 20


def test_who_waits_for_a_paused_topic_is_woken_when_it_goes_on(
    running: EmbeddedService, api: Api
) -> None:
    login = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
    management = Api(running.port, None, "")
    (id,) = api.enqueue(TOPIC, b"")
    path = f"/api/queues/{api.namespace}/{TOPIC}"
    assert management.call("PUT", f"{path}/pause", {}, headers=login).status < 300
    assert api.dequeue(TOPIC) == []
    with ThreadPoolExecutor(1) as worker:
        waiting = worker.submit(api.dequeue, TOPIC, 1, wait=WAIT_S)
        while not management.call("GET", path, headers=login).body["consumers"]:
            pass  # it has not begun to wait
        assert management.call("DELETE", f"{path}/pause", headers=login).status < 300
        assert [job["id"] for job in waiting.result(WOKEN_WITHIN_S)] == [id]


def test_leased_jobs_show_as_unacknowledged(running: EmbeddedService, api: Api) -> None:
    api.enqueue(TOPIC, b"1", b"2")
    api.take(TOPIC)
    login = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
    path = f"/api/queues/{api.namespace}/{TOPIC}"
    found = Api(running.port, None, "").call("GET", path, headers=login).body
    assert (found["messages_ready"], found["messages_unacknowledged"]) == (1, 1)


def test_many_jobs_and_keys_survive_a_restart_and_keep_their_order(tmp_path: Path) -> None:
    with embedded(tmp_path) as service:
        token = service.token("n", lasts_s=10**6)
        api = Api(service.port, token, "n")
        ids = []
        for number in range(10):
            items = [
                api.item(TOPIC, b"x", priority=-(n % 20 == 0), idempotency_key=f"{number}/{n}")
                for n in range(1000)
            ]
            ids += api.call("POST", "/enqueue", items).body
        service.restart()
        api = Api(service.port, token, "n")
        again = [api.item(TOPIC, b"x", idempotency_key=f"7/{n}") for n in range(1000)]
        assert api.call("POST", "/enqueue", again).body == ids[7000:8000]
        order: list[int] = []
        while jobs := api.dequeue(TOPIC, 1000):
            order += [job["id"] for job in jobs]
            api.call("POST", "/ack", [api.handle(TOPIC, job) for job in jobs])
        wanted = sorted(range(len(ids)), key=lambda n: (n % 20 != 0, n))
        assert order == [ids[n] for n in wanted]
        assert api.stats(TOPIC)["leased"] == 0


def test_fair_keys_take_turns_after_a_restart_too(tmp_path: Path) -> None:
    with embedded(tmp_path) as service:
        token = service.token("n")
        api = Api(service.port, token, "n")
        ids = {key: api.enqueue(TOPIC, *[b""] * 50, fair_key=key) for key in "ab"}
        plain = api.enqueue(TOPIC, *[b""] * 50)
        service.restart()
        api = Api(service.port, token, "n")
        ids["c"] = api.enqueue(TOPIC, *[b""] * 50, fair_key="c")
        jobs = api.dequeue(TOPIC, 200)
        for start in range(0, 200, 4):
            keys = {job.get("fair_key", "") for job in jobs[start : start + 4]}
            assert keys == {"a", "b", "c", ""}
        for key, own in ids.items():
            assert [job["id"] for job in jobs if job.get("fair_key") == key] == own
        assert [job["id"] for job in jobs if "fair_key" not in job] == plain
        assert api.call("POST", "/ack", [api.handle(TOPIC, job) for job in jobs]).status == 200
        service.restart()
        assert Api(service.port, token, "n").dequeue(TOPIC) == []


def test_the_management_api_shows_who_waits_for_jobs(running: EmbeddedService, api: Api) -> None:
    login = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
    management = Api(running.port, None, "")

    def ask(path: str) -> Any:
        answer = management.call("GET", f"/api/{path}", headers=login)
        assert answer.status == 200, answer.data
        return answer.body

    assert api.dequeue(TOPIC) == []
    with ThreadPoolExecutor(1) as worker:
        waiting = worker.submit(api.dequeue, TOPIC, 1, wait=WAIT_S)
        while not any(one["consumers"] for one in ask(f"queues/{api.namespace}")):
            pass  # it has not begun to wait
        for path in ("connections", "channels", "consumers", "overview"):
            ask(path)
        (id,) = api.enqueue(TOPIC, b"")
        assert [job["id"] for job in waiting.result(WOKEN_WITHIN_S)] == [id]
    assert ask(f"queues/{api.namespace}/{TOPIC}")["consumers"] == 0


# Tokens


def key_pair(kind: str) -> tuple[Any, bytes]:
    private: Any = (
        rsa.generate_private_key(public_exponent=65537, key_size=2048)
        if kind == "RS256"
        else ec.generate_private_key(ec.SECP256R1())
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private, public


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_public_key_pins_its_algorithm(tmp_path: Path, algorithm: str) -> None:
    private, public = key_pair(algorithm)
    (tmp_path / "key.pem").write_bytes(public)
    with embedded(tmp_path / "data", jobs_token_key=tmp_path / "key.pem") as service:
        claims = {"exp": service.now_ms() / 1000 + 60, "namespaces": ["n"]}
        good = jwt.encode(claims, private, algorithm)
        assert Api(service.port, good, "n").dequeue(TOPIC) == []
        other_kind = key_pair("ES256" if algorithm == "RS256" else "RS256")[0]
        forged = [
            jwt.encode(claims, key_pair(algorithm)[0], algorithm),
            jwt.encode(claims, other_kind, "ES256" if algorithm == "RS256" else "RS256"),
            _hmac_with_public_key(claims, public),
            jwt.encode({"namespaces": ["n"]}, private, algorithm),
            jwt.encode({**claims, "exp": service.now_ms() / 1000 - 1}, private, algorithm),
            jwt.encode({**claims, "nbf": service.now_ms() / 1000 + 5}, private, algorithm),
        ]
        for token in forged:
            answer = Api(service.port, token, "n").get("/dequeue", namespace="n", topic="t")
            assert answer.status == 401, token
        login = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
        answer = Api(service.port, None, "").call("POST", "/api/jobs/token", {}, headers=login)
        assert answer.status == 409


def _hmac_with_public_key(claims: dict[str, Any], public: bytes) -> str:
    """The oldest trick: PyJWT itself refuses to make it."""
    import hashlib
    import hmac

    def encoded(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    head = encoded(b'{"alg":"HS256","typ":"JWT"}') + b"." + encoded(json.dumps(claims).encode())
    return (head + b"." + encoded(hmac.digest(public, head, hashlib.sha256))).decode()


def test_a_configured_secret_is_the_one_that_counts(tmp_path: Path) -> None:
    with embedded(tmp_path, jobs_token_secret=Secret(SECRET)) as service:
        claims = {"exp": service.now_ms() / 1000 + 60, "namespaces": ["n"]}
        assert Api(service.port, jwt.encode(claims, SECRET, "HS256"), "n").dequeue(TOPIC) == []
        for algorithm in ("HS384", "HS512"):
            token = jwt.encode(claims, SECRET * 2, algorithm)
            answer = Api(service.port, token, "n").get("/dequeue", namespace="n", topic="t")
            assert answer.status == 401
        assert not (tmp_path / "jobs-secret").exists()


def test_the_secret_in_the_data_directory_is_nobody_elses_and_stays(tmp_path: Path) -> None:
    with embedded(tmp_path) as service:
        token = service.token("n", lasts_s=10**6)
        assert (tmp_path / "jobs-secret").stat().st_mode & 0o777 == 0o600
        service.restart()
        assert Api(service.port, token, "n").dequeue(TOPIC) == []


# Rates and the end


def test_over_its_rate_a_namespace_is_told_when_to_come_back(tmp_path: Path) -> None:
    with embedded(tmp_path, jobs_rate=5) as service:
        api = Api(service.port, service.token("n", "m"), "n")
        api.enqueue(TOPIC, *[b""] * 5)
        answer = api.call("POST", "/enqueue", [api.item(TOPIC, b"")] * 2)
        assert answer.status == 429
        assert answer.headers["retry-after"] == "1"
        assert "n" in answer.body["detail"]
        assert Api(service.port, api.token, "m").enqueue(TOPIC, b"")
        service.pass_time(1)
        assert api.enqueue(TOPIC, b"")
        assert len(api.dequeue(TOPIC)) == 6


def test_a_service_that_stops_answers_503(tmp_path: Path) -> None:
    with embedded(tmp_path) as service:
        api = Api(service.port, service.token("n"), "n")
        api.enqueue(TOPIC, b"")
        job = api.take(TOPIC)
        service.run(service.server.node.jobs.stop())
        for method, path, body in [
            ("POST", "/enqueue", [api.item(TOPIC, b"")]),
            ("GET", f"/dequeue?namespace=n&topic={TOPIC}", None),
            ("POST", "/cancel", api.handle(TOPIC, 1)),
        ]:
            answer = api.call(method, path, body)
            assert answer.status == 503, path
            assert answer.headers["retry-after"] == "1"
            assert answer.headers["content-type"] == "application/problem+json"
        assert api.ack(TOPIC, job) == 200  # what is under way may end


def test_an_alarm_refuses_jobs_and_lets_workers_go_on(tmp_path: Path) -> None:
    with embedded(tmp_path) as service:
        api = Api(service.port, service.token("n"), "n")
        api.enqueue(TOPIC, b"")
        service.server.node.front.alarms.append("memory")
        answer = api.call("POST", "/enqueue", [api.item(TOPIC, b"")])
        assert (answer.status, "memory" in answer.body["detail"]) == (503, True)
        assert api.ack(TOPIC, api.take(TOPIC)) == 200
        service.server.node.front.alarms.clear()
        assert api.enqueue(TOPIC, b"")


def test_a_key_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no key")
    curve = ec.generate_private_key(ec.SECP384R1()).public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    (tmp_path / "p384.pem").write_bytes(curve.public_bytes(serialization.Encoding.PEM, form))
    for wrong in (
        Settings(jobs_token_secret=Secret("short")),
        Settings(jobs_token_key=tmp_path / "no.pem"),
        Settings(jobs_token_key=tmp_path / "p384.pem"),
        Settings(jobs_token_key=tmp_path / "missing.pem"),
    ):
        with pytest.raises(ConfigError, match="jobs_token_"):
            JobTokens(wrong, tmp_path)


def test_whoever_waits_when_the_node_stops_gets_an_answer(tmp_path: Path) -> None:
    with embedded(tmp_path) as service, ThreadPoolExecutor(1) as worker:
        api = Api(service.port, service.token("n"), "n")
        waiting = worker.submit(api.dequeue, TOPIC, 1, wait=WAIT_S)
        while not api.get("/stats").body:
            pass  # it has not begun to wait
        service.stop()
        assert waiting.result(WOKEN_WITHIN_S) == []
