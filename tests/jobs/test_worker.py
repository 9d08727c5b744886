"""The worker against the real service: results and errors of handlers, leases, stopping."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from leveret.job_model import BATCH_MAX
from leveret.jobs import (
    AsyncClient,
    Client,
    DeadError,
    Job,
    NewJob,
    RetryError,
    TopicSettings,
    Worker,
)
from leveret.jobs.client.retrying import TIMEOUT_S
from leveret.testing import ManualClock
from leveret.testing.broker import RunningBroker, broker
from tests.jobs.service import NAMESPACE, address, token
from tests.proxy import proxy

WITHIN_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        yield found


class Stage:
    """A worker and a client in one event loop."""

    def __init__(self, server: RunningBroker, **options: Any) -> None:
        given: dict[str, Any] = {"token": token(server), "namespace": NAMESPACE}
        self.worker = Worker(address(server), **{**given, **options})
        self.client = AsyncClient(address(server), **given)

    async def until(self, is_true: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not await is_true():  # noqa: ASYNC110 - the service tells nobody
                await asyncio.sleep(0.01)

    async def is_settled(self, topic: str) -> bool:
        """Whether nothing of the topic is ready, at work or waiting."""
        found = [t for t in await self.client.stats(namespace=NAMESPACE) if t.topic == topic]
        return all((t.ready, t.leased, t.scheduled) == (0, 0, 0) for t in found)


def play(server: RunningBroker, script: Callable[[Stage], Awaitable[None]], **options: Any) -> None:
    """Give a script its stage."""

    async def run() -> None:
        stage = Stage(server, **options)
        async with asyncio.timeout(2 * WITHIN_S), stage.client:
            await script(stage)

    asyncio.run(run())


def test_every_job_is_done_once_by_coroutines_and_by_threads(server: RunningBroker) -> None:
    seen: dict[str, list[int]] = {"loop": [], "thread": []}
    threads: set[str] = set()

    async def script(stage: Stage) -> None:
        @stage.worker.task("loop", concurrency=50)
        async def on_loop(job: Job) -> None:
            await asyncio.sleep(0)
            seen["loop"].append(job.json())

        @stage.worker.task("thread", concurrency=5)
        def in_thread(job: Job) -> None:
            threads.add(threading.current_thread().name)
            seen["thread"].append(job.json())

        for topic in seen:
            jobs = [NewJob(topic=topic, payload=number) for number in range(300)]
            await stage.client.enqueue_many(jobs)
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.worker.work())
            await stage.until(lambda: stage.is_settled("loop"))
            await stage.until(lambda: stage.is_settled("thread"))
            stage.worker.stop()

    play(server, script)
    assert sorted(seen["loop"]) == sorted(seen["thread"]) == list(range(300))
    assert threads <= {f"jobs-thread-{number}" for number in range(1, 6)}


def test_more_jobs_end_at_once_than_one_call_can_settle(server: RunningBroker) -> None:
    """The worker then waits for room, and goes on when there is some."""

    async def script(stage: Stage) -> None:
        @stage.worker.task("flood", concurrency=2 * BATCH_MAX)
        async def nothing(_job: Job) -> None: ...

        for _ in range(4):
            jobs = [NewJob(topic="flood", payload=b"") for _ in range(BATCH_MAX)]
            await stage.client.enqueue_many(jobs)
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.worker.work())
            await stage.until(lambda: stage.is_settled("flood"))
            stage.worker.stop()

    play(server, script)


def test_a_task_that_raises_is_tried_again_with_its_error_kept(server: RunningBroker) -> None:
    attempts: list[int] = []

    async def script(stage: Stage) -> None:
        await stage.client.set_settings("fails", TopicSettings(retries_max=1, backoff_s=0.001))

        @stage.worker.task("fails")
        async def fails(job: Job) -> None:
            attempts.append(job.attempt)
            raise ValueError(f"attempt {job.attempt}")

        await stage.client.enqueue("fails", b"")
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.worker.work())

            async def is_dead() -> bool:
                return bool(await stage.client.dead("fails"))

            await stage.until(is_dead)
            (dead,) = await stage.client.dead("fails")
            assert [f.error.splitlines()[0] for f in dead.failures] == [
                "ValueError: attempt 1",
                "ValueError: attempt 2",
            ]
            assert "in fails" in dead.failures[0].error
            stage.worker.stop()

    play(server, script)
    assert attempts == [1, 2]


def test_a_task_chooses_when_it_is_tried_again(server: RunningBroker) -> None:
    """The backoff of the topic is an hour; the task wants it at once."""

    async def script(stage: Stage) -> None:
        await stage.client.set_settings(
            "again", TopicSettings(backoff_s=3600.0, backoff_s_max=3600.0)
        )

        @stage.worker.task("again")
        async def again(job: Job) -> None:
            if job.attempt == 1:
                raise RetryError("busy", delay_s=0)

        await stage.client.enqueue("again", b"")
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.worker.work())
            await stage.until(lambda: stage.is_settled("again"))
            stage.worker.stop()

    play(server, script)


def test_a_task_can_give_a_job_up_for_good(server: RunningBroker) -> None:
    async def script(stage: Stage) -> None:
        @stage.worker.task("hopeless")
        async def hopeless(job: Job) -> None:
            raise DeadError("there is no such order")

        id = await stage.client.enqueue("hopeless", b"")
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.worker.work())
            await stage.until(lambda: stage.is_settled("hopeless"))
            stage.worker.stop()
        (dead,) = await stage.client.dead("hopeless")
        assert (dead.id, dead.attempts) == (id, 1)
        assert [failure.error for failure in dead.failures] == ["there is no such order"]

    play(server, script)


class Abort(BaseException):
    """What a program may raise past every `except Exception`."""


@pytest.mark.parametrize("kind", [SystemExit, Abort, asyncio.CancelledError, StopIteration])
@pytest.mark.parametrize("is_coroutine", [True, False])
def test_whatever_a_task_raises_the_worker_goes_on(
    server: RunningBroker, kind: type[BaseException], is_coroutine: bool
) -> None:
    topic = f"raises-{kind.__name__}-{is_coroutine}"

    async def script(stage: Stage) -> None:
        await stage.client.set_settings(topic, TopicSettings(retries_max=0))

        def works(job: Job) -> None:
            if job.json() == "bad":
                raise kind("enough")

        async def awaits(job: Job) -> None:
            works(job)

        stage.worker.task(topic, concurrency=1)(awaits if is_coroutine else works)
        await stage.client.enqueue_many(
            [NewJob(topic=topic, payload=each) for each in ("bad", "good")]
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.worker.work())
            await stage.until(lambda: stage.is_settled(topic))
            stage.worker.stop()
        (dead,) = await stage.client.dead(topic)
        assert dead.failures

    play(server, script)


def test_odd_errors_and_delays_of_one_task_harm_no_other(server: RunningBroker) -> None:
    async def script(stage: Stage) -> None:
        @stage.worker.task("odd")
        async def odd(job: Job) -> None:
            match job.json():
                case "text":
                    raise DeadError("\ud800" + "x" * 100_000_000)
                case "delay" if job.attempt == 1:
                    raise RetryError(delay_s=-1)
                case "far":
                    raise RetryError(delay_s=1e300)

        payloads = ("text", "delay", "far", "good")
        jobs = [NewJob(topic="odd", payload=p) for p in payloads]
        ids = (await stage.client.enqueue_many(jobs)).ids
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.worker.work())

            async def is_over() -> bool:
                (found,) = [t for t in await stage.client.stats() if t.topic == "odd"]
                return (found.ready, found.leased, found.scheduled, found.dead) == (0, 0, 1, 1)

            await stage.until(is_over)
            stage.worker.stop()
        assert (await stage.client.find("odd", ids[2])).attempts == 1
        (dead,) = await stage.client.dead("odd")
        assert dead.failures[0].error.startswith("?xxx")

    play(server, script)


def test_an_object_that_is_called_as_a_coroutine_is_awaited(server: RunningBroker) -> None:
    done: list[Job] = []

    class Handles:
        async def __call__(self, job: Job) -> None:
            await asyncio.sleep(0)
            done.append(job)

    def forgets(job: Job) -> Any:
        return Handles()(job)

    async def script(stage: Stage) -> None:
        await stage.client.set_settings("forgets", TopicSettings(retries_max=0))
        stage.worker.task("object")(Handles())
        stage.worker.task("forgets")(forgets)
        for topic in ("object", "forgets"):
            await stage.client.enqueue(topic, b"")
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.worker.work())
            for topic in ("object", "forgets"):
                await stage.until(lambda topic=topic: stage.is_settled(topic))  # type: ignore[misc]
            stage.worker.stop()
        (dead,) = await stage.client.dead("forgets")
        assert "async def" in dead.failures[0].error

    play(server, script)
    assert [job.topic for job in done] == ["object"]


def test_acks_do_not_wait_for_those_who_wait_for_jobs(
    server: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.jobs.worker.worker.CONNECTIONS_MAX", 1)

    async def script(stage: Stage) -> None:
        for topic in ("idle-a", "idle-b", "busy"):

            @stage.worker.task(topic)
            async def works(job: Job) -> None: ...

        async with asyncio.TaskGroup() as group:
            group.create_task(stage.worker.work())
            for _ in range(3):
                await stage.client.enqueue("busy", b"")
                await stage.until(lambda: stage.is_settled("busy"))
            stage.worker.stop()

    play(server, script)


def test_long_tasks_keep_their_leases() -> None:
    """A coroutine and a thread, for twice their leases of the service's time: handed out once."""
    clock = ManualClock()
    held: list[Job] = []
    over = threading.Event()

    async def script(stage: Stage) -> None:
        @stage.worker.task("loop")
        async def waits(job: Job) -> None:
            held.append(job)
            await asyncio.to_thread(over.wait, WITHIN_S)

        @stage.worker.task("thread")
        def blocks(job: Job) -> None:
            held.append(job)
            over.wait(WITHIN_S)

        for topic in ("loop", "thread"):
            await stage.client.enqueue(topic, b"")
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.worker.work())
            await stage.until(lambda: has_begun(2))
            for _ in range(3):
                before = [job.lease_expires_at for job in held]
                clock.advance(seconds=2.5)  # and no further, before both are renewed
                await stage.until(lambda before=before: is_renewed(before))  # type: ignore[misc]
            over.set()
            for topic in ("loop", "thread"):
                await stage.until(lambda topic=topic: stage.is_settled(topic))  # type: ignore[misc]
            stage.worker.stop()

    async def has_begun(count: int) -> bool:
        return len(held) >= count

    async def is_renewed(before: list[Any]) -> bool:
        return all(job.lease_expires_at > at for job, at in zip(held, before, strict=True))

    with broker(http=True, clock=clock) as server:
        play(server, script, lease_s=3.0)
    assert [(job.attempt, job.is_lost) for job in held] == [(1, False)] * 2


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_worker_outlives_its_token(is_coroutine: bool) -> None:
    """It ends while a job is at work: the job is acknowledged, and the next one is taken."""
    clock = ManualClock()
    made: list[str] = []
    done: list[int] = []

    with broker(http=True, clock=clock) as server:

        def source() -> str:
            made.append(server.node.jobs.sign(["*"], "worker", 60))
            return made[-1]

        async def awaited() -> str:
            return source()

        async def script(stage: Stage) -> None:
            @stage.worker.task("long")
            async def waits(job: Job) -> None:
                clock.advance(seconds=61)
                done.append(job.id)

            async with asyncio.TaskGroup() as group:
                group.create_task(stage.worker.work())
                for _ in range(3):
                    await stage.client.enqueue("long", b"")
                    await stage.until(lambda: stage.is_settled("long"))
                stage.worker.stop()

        play(server, script, token=awaited if is_coroutine else source, lease_s=600.0)
    assert len(done) == len(set(done)) == 3
    assert len(made) >= 4  # the first, and one after each end


def test_a_task_whose_lease_is_lost_is_cancelled_and_not_acknowledged(
    server: RunningBroker,
) -> None:
    events: list[str] = []

    async def script(stage: Stage) -> None:
        begun = asyncio.Event()

        @stage.worker.task("lost")
        async def lost(job: Job) -> None:
            if job.attempt > 1:
                events.append("done by the second")
                return
            # Somebody else settles it: the next renewal is told that the lease is stale.
            begun.set()
            try:
                await asyncio.sleep(WITHIN_S)
            except asyncio.CancelledError:
                events.append("cancelled" if job.is_lost else "cancelled for another reason")
                raise

        id = await stage.client.enqueue("lost", b"")
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.worker.work())
            await begun.wait()
            body = {"namespace": NAMESPACE, "topic": "lost", "id": id, "error": "given back"}
            await stage.client.send_call(nack_without_token(body))
            await stage.until(lambda: stage.is_settled("lost"))

            async def is_cancelled() -> bool:
                return len(events) == 2

            await stage.until(is_cancelled)
            stage.worker.stop()

    with Client(address(server), token=token(server), namespace=NAMESPACE) as client:
        client.set_settings("lost", TopicSettings(backoff_s=0.001))
    play(server, script, lease_s=2.0)
    assert sorted(events) == ["cancelled", "done by the second"]


def test_a_lease_that_ends_while_a_renewal_is_stuck_is_lost_then(server: RunningBroker) -> None:
    """Not when the call has reached its own deadline, ten leases later."""

    async def script(stage: Stage) -> None:
        begun, lost = asyncio.Event(), asyncio.Event()
        async with proxy(server.http_port) as line:
            where = f"http://127.0.0.1:{line.port}"
            worker = Worker(
                where, token=token(server), namespace=NAMESPACE, lease_s=1.0, stop_s=0.1
            )

            @worker.task("stuck")
            async def stuck(job: Job) -> None:
                begun.set()
                try:
                    await asyncio.sleep(2 * WITHIN_S)
                finally:
                    assert job.is_lost
                    lost.set()

            await stage.client.enqueue("stuck", b"")
            async with asyncio.TaskGroup() as group:
                group.create_task(worker.work())
                await begun.wait()
                line.stall()
                async with asyncio.timeout(TIMEOUT_S / 2):
                    await lost.wait()
                line.flow()
                worker.stop()

    play(server, script)


def nack_without_token(body: dict[str, object]) -> Any:
    import msgspec

    from leveret.jobs.client.calls import Call

    return Call("POST", "/nack", msgspec.json.encode([body]), lambda _answer: [])


def test_stopping_finishes_what_is_at_work_and_gives_back_the_rest(server: RunningBroker) -> None:
    ended: list[str] = []

    async def script(stage: Stage) -> None:
        begun = asyncio.Semaphore(0)
        may_end = asyncio.Event()

        @stage.worker.task("stop", concurrency=2)
        async def works(job: Job) -> None:
            begun.release()
            try:
                await (may_end if job.json() == "short" else asyncio.Event()).wait()
                ended.append("short")
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        await stage.client.enqueue_many(
            [NewJob(topic="stop", payload=each) for each in ("short", "long", "never begun")]
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.worker.work())
            await begun.acquire()
            await begun.acquire()
            stage.worker.stop()
            may_end.set()
        jobs = await stage.client.dequeue("stop", limit=9, wait_s=60)
        assert {job.json(): job.attempt for job in jobs} == {"long": 2, "never begun": 1}

    play(server, script, stop_s=2.0, lease_s=60)
    assert ended == ["short", "cancelled"]


PROGRAM = """
    import time
    from leveret.jobs import Worker

    worker = Worker(lease_s=60)

    @worker.task("program")
    def works(job):
        print("begun", flush=True)
        time.sleep(0.5)
        print("ended", flush=True)

    @worker.task("hangs")
    def hangs(job):
        print("hanging", flush=True)
        time.sleep(1000)

    worker.stop_s = 1.5
    worker.run()
    print("stopped", flush=True)
"""


def test_sigterm_ends_a_worker_in_good_order_even_where_a_thread_hangs(
    server: RunningBroker,
) -> None:
    with Client(address(server), token=token(server)) as client:
        client.enqueue("program", b"")
        environment = {
            **os.environ,
            "LEVERET_URL": address(server),
            "LEVERET_JOBS_TOKEN": token(server),
        }
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROGRAM)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begun\n"
            client.enqueue("hangs", b"")
            assert {process.stdout.readline() for _ in range(2)} == {"ended\n", "hanging\n"}
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readline() == "stopped\n"
            assert process.wait(WITHIN_S) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        (given_back,) = client.dequeue("hangs", wait_s=60)
        assert given_back.attempt == 2
        found = client.find("hangs", given_back.id)
        assert found.failures[-1].error == "the worker stopped before it was done"
        assert client.dequeue("program") == []


IMPATIENT = """
    import time
    from leveret.jobs import Worker

    worker = Worker(lease_s=60)

    @worker.task("impatient")
    def hangs(job):
        print("hanging", flush=True)
        time.sleep(1000)

    worker.run()
"""


def test_a_second_signal_ends_a_worker_at_once(server: RunningBroker) -> None:
    with Client(address(server), token=token(server)) as client:
        client.enqueue("impatient", b"")
    environment = {
        **os.environ,
        "LEVERET_URL": address(server),
        "LEVERET_JOBS_TOKEN": token(server),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(IMPATIENT)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "hanging\n"
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)  # it lets the job finish
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=WITHIN_S)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, told) == (0, "")


def test_two_tasks_of_a_topic_or_none_at_all_are_told_at_once() -> None:
    worker = Worker()
    with pytest.raises(ValueError, match="no task"):
        worker.run()

    @worker.task("t")
    async def one(job: Job) -> None: ...

    with pytest.raises(ValueError, match="has a task already"):
        worker.task("t")(one)
    for lease_s in (0.01, 43_201):
        with pytest.raises(ValueError, match="a lease must be from"):
            worker.task("u", lease_s=lease_s)
    with pytest.raises(ValueError, match="not an http"):
        Worker("ftp://x")
