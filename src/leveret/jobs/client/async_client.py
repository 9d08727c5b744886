"""The asynchronous client of the jobs service.

Belongs to one event loop. Calls run side by side, each on a connection of its own from those that
are kept open. Every call ends within its deadline, with its result or an exception of
`leveret.jobs.client.errors`. `Client` has the same methods for threads.
"""

import asyncio
import ssl
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import TypeVar

from leveret.http_client.async_connections import CONNECTIONS_MAX, AsyncConnectionPool
from leveret.http_client.tokens import AsyncTokenRenewal, AsyncTokenSource
from leveret.job_model import Outcome, Schedule, TopicSettings, TopicStats
from leveret.jobs.client import calls
from leveret.jobs.client.calls import Call
from leveret.jobs.client.errors import CallError, CallTimeoutError, NotAuthenticatedError, error_of
from leveret.jobs.client.job import Enqueued, Job, JobInfo, NewJob
from leveret.jobs.client.outcomes import require_done
from leveret.jobs.client.retrying import TIMEOUT_S, maybe_pause_s
from leveret.jobs.client.service_address import DEFAULT_NAMESPACE, find_service, make_encoder

T = TypeVar("T")


class AsyncClient:
    """Talks to the jobs service of one address. What is not given comes from the environment."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | AsyncTokenSource | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self.namespace = namespace
        given, source = (None, token) if callable(token) else (token, None)
        self._address = find_service(url, tls)
        self._tokens = AsyncTokenRenewal(make_encoder(self._address, given), source)
        self._timeout_s = timeout_s
        self._connections = AsyncConnectionPool(self._address, connections_max)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are idle, and each other one after its call."""
        self._connections.close()

    async def enqueue(
        self,
        topic: str,
        payload: object,
        *,
        namespace: str | None = None,
        priority: int | None = None,
        deliver_after: datetime | None = None,
        idempotency_key: str | None = None,
        fair_key: str | None = None,
    ) -> int:
        """Put in one job; its id. `payload` is sent as JSON unless it is bytes."""
        job = NewJob(
            topic=topic,
            payload=payload,
            namespace=namespace,
            priority=priority,
            deliver_after=deliver_after,
            idempotency_key=idempotency_key,
            fair_key=fair_key,
        )
        return (await self.enqueue_many([job]))[0]

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> list[int]:
        """Put in all of these, or none; their ids in the same order."""
        return (await self.enqueue_batch(jobs)).ids

    async def enqueue_batch(self, jobs: Sequence[NewJob]) -> Enqueued:
        """The same; also how many were there already, by their idempotency keys."""
        return await self._do(calls.enqueue(jobs, self.namespace)) if jobs else Enqueued([], 0)

    async def dequeue(
        self,
        topic: str,
        *,
        limit: int = 1,
        wait_s: float = 0.0,
        lease_s: float | None = None,
        namespace: str | None = None,
    ) -> list[Job]:
        """Take up to `limit` jobs under a lease; wait for one up to `wait_s`."""
        given = namespace or self.namespace
        return await self._do(calls.dequeue(given, topic, limit, wait_s, lease_s))

    async def ack(self, job: Job) -> None:
        """The job is done. StaleLease or UnknownJob where it is no longer this worker's."""
        require_done(await self.ack_many([job]))

    async def ack_many(self, jobs: Sequence[Job]) -> list[Outcome]:
        """These jobs are done; what became of each."""
        return await self._do(calls.ack(jobs)) if jobs else []

    async def nack(
        self, job: Job, error: str, *, delay_s: float | None = None, dead: bool = False
    ) -> None:
        """The job failed: it comes back by the topic's backoff or after `delay_s`, or is dead.

        `dead`: at once, however many retries it has left.
        """
        require_done(await self.nack_many([job], error, delay_s=delay_s, dead=dead))

    async def nack_many(
        self,
        jobs: Sequence[Job],
        error: str,
        *,
        delay_s: float | None = None,
        dead: bool = False,
    ) -> list[Outcome]:
        """These jobs failed; what became of each."""
        failed = [(job, error, delay_s, dead) for job in jobs]
        return await self._do(calls.nack(failed)) if jobs else []

    async def settle(self, call: Call[list[Outcome]]) -> list[Outcome]:
        """A call made by `calls`: jobs that failed for different reasons, say."""
        return await self._do(call)

    async def extend(self, job: Job, *, lease_s: float | None = None) -> None:
        """Keep the job for `lease_s` from now; None: for the lease of its topic."""
        ((outcome, until),) = await self.extend_many([job], lease_s=lease_s)
        require_done([outcome])
        if until is not None:
            job.lease_expires_at = until

    async def extend_many(
        self, jobs: Sequence[Job], *, lease_s: float | None = None
    ) -> list[tuple[Outcome, datetime | None]]:
        """Keep these jobs; what became of each, and the new ends of their leases."""
        return await self._do(calls.extend(jobs, lease_s)) if jobs else []

    async def cancel(
        self, topic: str, ids: Sequence[int], *, namespace: str | None = None
    ) -> list[Outcome]:
        """Drop jobs that are ready or scheduled; STALE where a worker has one."""
        given = namespace or self.namespace
        return await self._do(calls.cancel(given, topic, ids)) if ids else []

    async def deliver_now(
        self, topic: str, ids: Sequence[int], *, namespace: str | None = None
    ) -> list[Outcome]:
        """Make scheduled jobs ready."""
        given = namespace or self.namespace
        return await self._do(calls.deliver_now(given, topic, ids)) if ids else []

    async def find(self, topic: str, id: int, *, namespace: str | None = None) -> JobInfo:
        """A job in whichever state, with its failures. UnknownJob where there is none."""
        return await self._do(calls.find(namespace or self.namespace, topic, id))

    async def dead(
        self, topic: str, *, after_id: int = 0, limit: int = 100, namespace: str | None = None
    ) -> list[JobInfo]:
        """Dead jobs in the order of their ids, from beyond `after_id`."""
        return await self._do(calls.dead(namespace or self.namespace, topic, after_id, limit))

    async def redrive(
        self, topic: str, ids: Sequence[int] | None = None, *, namespace: str | None = None
    ) -> int:
        """Make dead jobs ready again, with fresh retries; None: all of them. How many."""
        return await self._do(calls.redrive(namespace or self.namespace, topic, ids))

    async def delete_dead(
        self, topic: str, ids: Sequence[int] | None = None, *, namespace: str | None = None
    ) -> int:
        """Delete dead jobs; None: all of them. How many."""
        return await self._do(calls.delete_dead(namespace or self.namespace, topic, ids))

    async def settings(self, topic: str, *, namespace: str | None = None) -> TopicSettings:
        """How a topic treats its jobs."""
        return await self._do(calls.settings(namespace or self.namespace, topic))

    async def set_settings(
        self, topic: str, wanted: TopicSettings, *, namespace: str | None = None
    ) -> None:
        """Change how a topic treats its jobs, from now on."""
        await self._do(calls.set_settings(namespace or self.namespace, topic, wanted))

    async def stats(self, *, namespace: str | None = None) -> list[TopicStats]:
        """Every topic of a namespace at a glance; None: of all that the token covers."""
        return await self._do(calls.stats(namespace))

    async def schedules(self, *, namespace: str | None = None) -> list[Schedule]:
        """What is put in again and again."""
        return await self._do(calls.schedules(namespace or self.namespace))

    async def set_schedule(self, schedule: Schedule) -> None:
        """Put in a job at each time that a cron expression names; the same name replaces it."""
        await self._do(calls.set_schedule(schedule))

    async def delete_schedule(self, name: str, *, namespace: str | None = None) -> None:
        """Put it in no more. UnknownJob where there is no such schedule."""
        await self._do(calls.delete_schedule(namespace or self.namespace, name))

    async def _do(self, call: Call[T]) -> T:
        """Send a call, and again where that is harmless, until the deadline."""
        limit_s = self._timeout_s + call.wait_s
        try:
            async with asyncio.timeout(limit_s) as deadline:
                return await self._until_done(call, deadline)
        except TimeoutError as fault:
            text = f"{self._address.shown} did not answer within {limit_s:.1f} s"
            raise CallTimeoutError(text) from fault

    async def _until_done(self, call: Call[T], deadline: asyncio.Timeout) -> T:
        encoder = await self._tokens.current()
        may_renew = self._tokens.can_renew()
        tries = 0
        while True:
            tries += 1
            try:
                request = encoder.encode(call.method, call.path, call.body)
                return await self._try(call, request)
            except NotAuthenticatedError:  # nothing was done
                if not may_renew:
                    raise
                may_renew = False
                encoder = await self._tokens.renew(encoder)
            except CallError as fault:
                left_s = (deadline.when() or 0.0) - asyncio.get_running_loop().time()
                pause_s = maybe_pause_s(fault, call, tries, left_s)
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)

    async def _try(self, call: Call[T], request: bytes) -> T:
        answer = await self._connections.ask(request)
        if answer.status >= 300:
            raise error_of(answer.status, answer.body, answer.headers.get("retry-after"))
        return call.decode(answer)
