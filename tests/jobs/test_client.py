"""Every method of both clients, against the real service."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from leveret.clock import Clock
from leveret.jobs import (
    AsyncClient,
    Client,
    Enqueued,
    InvalidCallError,
    NewJob,
    NotAllowedError,
    NotAuthenticatedError,
    Outcome,
    Schedule,
    StaleLeaseError,
    TopicSettings,
    UnknownJobError,
)
from leveret.testing.broker import RunningBroker, broker
from tests.jobs.service import NAMESPACE, address, token


class Refund(msgspec.Struct):
    order: int
    amount: str


@dataclass
class Note:
    text: str


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        yield found


@pytest.fixture
def client(server: RunningBroker) -> Iterator[Client]:
    with Client(address(server), token=token(server), namespace=NAMESPACE) as found:
        yield found


def later(seconds: float) -> datetime:
    return datetime.fromtimestamp(Clock().now_ms() / 1000, UTC) + timedelta(seconds=seconds)


def test_a_payload_comes_back_as_what_it_was(client: Client) -> None:
    payloads: list[object] = [b"\x00\xff", {"a": [1]}, Refund(1, "5"), Note("hi"), "text", None]
    ids = client.enqueue_many([NewJob(topic="kinds", payload=p) for p in payloads]).ids
    jobs = client.dequeue("kinds", limit=10)
    assert [job.id for job in jobs] == ids
    assert jobs[0].payload == b"\x00\xff"
    assert [job.json() for job in jobs[1:]] == [
        {"a": [1]},
        {"order": 1, "amount": "5"},
        {"text": "hi"},
        "text",
        None,
    ]
    assert jobs[2].decode(Refund) == Refund(1, "5")
    with pytest.raises(msgspec.ValidationError):
        jobs[1].decode(Refund)
    assert client.ack_many(jobs) == [Outcome.DONE] * 6
    assert client.ack_many(jobs) == [Outcome.UNKNOWN] * 6


def test_a_job_has_all_that_was_said_of_it(client: Client) -> None:
    low = client.enqueue("facts", b"low", priority=7, fair_key="ann")
    urgent = client.enqueue("facts", b"urgent", priority=-7)
    first, second = client.dequeue("facts", limit=2, lease_s=60)
    assert (first.id, second.id) == (urgent, low)
    assert (second.priority, second.fair_key, second.attempt) == (7, "ann", 1)
    assert (second.namespace, second.topic) == (NAMESPACE, "facts")
    assert second.created_at is not None
    assert second.lease_expires_at - second.created_at > timedelta(seconds=55)
    found = client.find("facts", low)
    assert (found.state, found.payload) == ("leased", b"low")


def test_a_lease_is_kept_given_back_and_lost(client: Client) -> None:
    client.enqueue("leases", b"x")
    (job,) = client.dequeue("leases", lease_s=60)
    before = job.lease_expires_at
    client.extend(job, lease_s=120)
    assert job.lease_expires_at > before
    client.nack(job, "not now", delay_s=0)
    with pytest.raises(StaleLeaseError):
        client.ack(job)
    (again,) = client.dequeue("leases", wait_s=60)
    assert (again.id, again.attempt) == (job.id, 2)
    assert again.token > job.token
    with pytest.raises(StaleLeaseError):
        client.extend(job)
    client.ack(again)
    with pytest.raises(UnknownJobError):
        client.ack(again)


def test_a_key_makes_one_job_of_many(client: Client) -> None:
    ids = {client.enqueue("keys", b"x", idempotency_key="one") for _ in range(3)}
    assert len(ids) == 1
    assert len(client.dequeue("keys", limit=10)) == 1


def test_a_dequeue_waits_for_a_job(client: Client) -> None:
    assert client.dequeue("waits") == []
    client.enqueue("waits", b"x", deliver_after=later(5))
    assert client.dequeue("waits") == []
    (job,) = client.dequeue("waits", wait_s=60)
    client.ack(job)


def test_a_loop_needs_one_call_for_each_job(client: Client) -> None:
    ids = client.enqueue_many([NewJob(topic="loop", payload=n) for n in range(3)]).ids
    outcomes, jobs = client.ack_and_dequeue([], "loop")
    seen = []
    while jobs:
        seen += [job.id for job in jobs]
        outcomes, jobs = client.ack_and_dequeue(jobs, "loop", lease_s=60)
        assert outcomes == [Outcome.DONE]
    assert seen == ids


def test_a_scheduled_job_is_cancelled_or_delivered_at_once(client: Client) -> None:
    wanted, unwanted = (client.enqueue("plans", b"x", deliver_after=later(3600)) for _ in range(2))
    assert client.find("plans", wanted).state == "scheduled"
    assert client.cancel("plans", [unwanted, 1]) == [Outcome.DONE, Outcome.UNKNOWN]
    assert client.deliver_now("plans", [wanted]) == [Outcome.DONE]
    assert [job.id for job in client.dequeue("plans", limit=9)] == [wanted]
    with pytest.raises(UnknownJobError):
        client.find("plans", unwanted)


def test_dead_jobs_are_listed_redriven_and_deleted(client: Client) -> None:
    client.set_settings("dying", TopicSettings(retries_max=0))
    assert client.settings("dying").retries_max == 0
    ids = [client.enqueue("dying", b"x") for _ in range(3)]
    for job in client.dequeue("dying", limit=3):
        client.nack(job, f"no luck with {job.id}")
    dead = client.dead("dying")
    assert [job.id for job in dead] == ids
    assert [job.failures[-1].error for job in dead] == [f"no luck with {id}" for id in ids]
    assert [job.id for job in client.dead("dying", after_id=ids[0], limit=1)] == [ids[1]]
    (stats,) = [t for t in client.stats(namespace=NAMESPACE) if t.topic == "dying"]
    assert (stats.dead, stats.ready) == (3, 0)
    assert client.redrive("dying", [ids[0]]) == 1
    assert client.delete_dead("dying", [ids[1]]) == 1
    assert client.redrive("dying") == 1
    assert sorted(job.id for job in client.dequeue("dying", limit=9)) == [ids[0], ids[2]]


def test_jobs_are_listed_by_state_page_by_page(client: Client) -> None:
    client.set_settings("listed", TopicSettings(retries_max=0))
    by_state = {}
    for state in ("dead", "leased"):
        by_state[state] = client.enqueue_many([NewJob(topic="listed", payload=b"x")] * 5).ids
        jobs = client.dequeue("listed", limit=5, lease_s=60)
        if state == "dead":
            client.nack_many(jobs, "no")
    for state, after in (("scheduled", later(3600)), ("ready", None)):
        new = NewJob(topic="listed", payload=b"x", deliver_after=after)
        by_state[state] = client.enqueue_many([new] * 5).ids
    for state, ids in by_state.items():
        found = list(client.list_jobs("listed", state, page=2))
        assert [job.id for job in found] == ids
        assert {(job.state, job.payload) for job in found} == {(state, b"x")}
        assert next(client.list_jobs("listed", state, payloads=False)).payload == b""
    assert list(client.list_jobs("no such topic", "ready")) == []
    with pytest.raises(InvalidCallError, match="state"):
        next(client.list_jobs("listed", "lost"))


def test_a_call_for_no_jobs_asks_nothing(client: Client) -> None:
    assert client.enqueue_many([]) == Enqueued([], 0)
    assert client.ack_many([]) == []
    assert client.extend_many([]) == []
    assert client.nack_many([], "why") == client.cancel("t", []) == []


def test_schedules_are_made_listed_and_ended(client: Client) -> None:
    schedule = Schedule(
        name="nightly", namespace=NAMESPACE, topic="clean", cron="0 3 * * *", payload=b"go"
    )
    client.set_schedule(schedule)
    assert [found.cron for found in client.schedules()] == ["0 3 * * *"]
    client.delete_schedule("nightly")
    assert client.schedules() == []
    with pytest.raises(UnknownJobError):
        client.delete_schedule("nightly")


def test_what_is_wrong_is_told_with_item_and_field(client: Client) -> None:
    jobs = [NewJob(topic="t", payload=b""), NewJob(topic="", payload=b"")]
    with pytest.raises(InvalidCallError, match=r"item 1: topic") as raised:
        client.enqueue_many(jobs)
    assert (raised.value.item, raised.value.field) == (1, "topic")
    with pytest.raises(InvalidCallError, match="priority"):
        client.enqueue("t", b"", priority=1 << 40)
    for value in (-1.0, float("nan"), float("inf")):
        with pytest.raises(
            InvalidCallError, match="backoff_s must be from 0 to 2592000 seconds"
        ) as raised:
            client.set_settings("t", TopicSettings(backoff_s=value))
        assert raised.value.field == "backoff_s"
    with pytest.raises(InvalidCallError, match="backoff_s_max is 600, and cannot be below") as both:
        client.set_settings("t", TopicSettings(backoff_s=1200))
    assert both.value.field == "backoff_s_max"


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_duration_that_json_cannot_express_is_not_the_default(
    client: Client, seconds: float
) -> None:
    client.enqueue("durations", b"")
    (job,) = client.dequeue("durations")
    with pytest.raises(InvalidCallError, match="delay must be from 0 to 2592000 seconds"):
        client.nack(job, "no", delay_s=seconds)
    with pytest.raises(InvalidCallError, match=r"lease must be from 0\.1 to 43200 seconds"):
        client.extend(job, lease_s=seconds)
    with pytest.raises(InvalidCallError, match="wait must be from 0 to 60 seconds"):
        client.dequeue("durations", wait_s=seconds)
    client.ack(job)


def test_an_empty_name_in_a_path_is_told(client: Client) -> None:
    with pytest.raises(InvalidCallError, match="topic is empty"):
        client.settings("")


def test_tokens_are_needed_and_cover_namespaces(server: RunningBroker, client: Client) -> None:
    with Client(address(server), token="nonsense", namespace=NAMESPACE) as stranger:
        with pytest.raises(NotAuthenticatedError):
            stranger.enqueue("t", b"")
    jobs = server.node.jobs
    with Client(address(server), token=jobs.sign(["other"], "x", 60), namespace="other") as other:
        other.enqueue("t", b"")
        with pytest.raises(NotAllowedError):
            other.dequeue("t", namespace=NAMESPACE)


def test_the_login_of_an_administrator_in_the_address_will_do(server: RunningBroker) -> None:
    for login in ("guest:guest", "%67uest:g%75est"):
        where = f"http://{login}@{server.host}:{server.http_port}"
        with Client(where, namespace=NAMESPACE) as client:
            assert client.enqueue("logged-in", b"")
    with Client(f"http://guest:wrong@{server.host}:{server.http_port}") as stranger:
        with pytest.raises(NotAuthenticatedError):
            stranger.stats()


async def async_life(server: RunningBroker) -> None:
    async with AsyncClient(address(server), token=token(server), namespace=NAMESPACE) as client:
        (id,) = (await client.enqueue_many([NewJob(topic="async", payload={"n": 1})])).ids
        assert [job.id async for job in client.list_jobs("async", "ready")] == [id]
        (job,) = await client.dequeue("async", wait_s=60)
        assert job.id == id
        await client.extend(job, lease_s=30)
        await client.nack(job, "once more", delay_s=0)
        (again,) = await client.dequeue("async", wait_s=60)
        assert await client.ack_and_dequeue([again], "async") == ([Outcome.DONE], [])
        with pytest.raises(UnknownJobError):
            await client.ack(again)
        with pytest.raises(UnknownJobError):
            await client.find("async", id)


def test_a_client_that_is_closed_during_a_call_closes_its_connection_then() -> None:
    async def script() -> None:
        asked, may_answer, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            await may_answer.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
            assert await reader.read() == b""
            gone.set()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            client = AsyncClient(f"http://127.0.0.1:{port}")
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                asking = group.create_task(client.dequeue("t"))
                await asked.wait()
                client.close()
                may_answer.set()
                await gone.wait()
            assert asking.result() == []

    asyncio.run(script())


def test_the_asynchronous_client_does_the_same(server: RunningBroker) -> None:
    asyncio.run(async_life(server))
