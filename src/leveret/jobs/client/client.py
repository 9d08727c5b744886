"""The plain client of the jobs service, for threads.

One `Client` may be used by many threads: each call takes a connection of its own from those that
are kept open. Every call ends within its deadline, with its result or an exception of
`leveret.jobs.client.errors`. `AsyncClient` has the same methods as coroutines.
"""

import ssl
import time
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import TypeVar

from leveret.http_client.connections import ConnectionPool
from leveret.http_client.tokens import TokenRenewal, TokenSource
from leveret.job_model import Outcome, Schedule, TopicSettings, TopicStats
from leveret.jobs.client import calls
from leveret.jobs.client.calls import Call
from leveret.jobs.client.errors import CallError, NotAuthenticatedError, error_of
from leveret.jobs.client.job import Enqueued, Job, JobInfo, NewJob
from leveret.jobs.client.outcomes import require_done
from leveret.jobs.client.retrying import TIMEOUT_S, maybe_pause_s
from leveret.jobs.client.service_address import DEFAULT_NAMESPACE, find_service, make_encoder

T = TypeVar("T")


class Client:
    """Talks to the jobs service of one address. What is not given comes from the environment."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | TokenSource | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.namespace = namespace
        given, source = (None, token) if callable(token) else (token, None)
        address = find_service(url, tls)
        self._tokens = TokenRenewal(make_encoder(address, given), source)
        self._timeout_s = timeout_s
        self._connections = ConnectionPool(address)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are idle, and each other one after its call."""
        self._connections.close()

    def enqueue(
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
        return (self.enqueue_many([job]))[0]

    def enqueue_many(self, jobs: Sequence[NewJob]) -> list[int]:
        """Put in all of these, or none; their ids in the same order."""
        return (self.enqueue_batch(jobs)).ids

    def enqueue_batch(self, jobs: Sequence[NewJob]) -> Enqueued:
        """The same; also how many were there already, by their idempotency keys."""
        return self._do(calls.enqueue(jobs, self.namespace)) if jobs else Enqueued([], 0)

    def dequeue(
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
        return self._do(calls.dequeue(given, topic, limit, wait_s, lease_s))

    def ack(self, job: Job) -> None:
        """The job is done. StaleLease or UnknownJob where it is no longer this worker's."""
        require_done(self.ack_many([job]))

    def ack_many(self, jobs: Sequence[Job]) -> list[Outcome]:
        """These jobs are done; what became of each."""
        return self._do(calls.ack(jobs)) if jobs else []

    def nack(
        self, job: Job, error: str, *, delay_s: float | None = None, dead: bool = False
    ) -> None:
        """The job failed: it comes back by the topic's backoff or after `delay_s`, or is dead.

        `dead`: at once, however many retries it has left.
        """
        require_done(self.nack_many([job], error, delay_s=delay_s, dead=dead))

    def nack_many(
        self,
        jobs: Sequence[Job],
        error: str,
        *,
        delay_s: float | None = None,
        dead: bool = False,
    ) -> list[Outcome]:
        """These jobs failed; what became of each."""
        failed = [(job, error, delay_s, dead) for job in jobs]
        return self._do(calls.nack(failed)) if jobs else []

    def settle(self, call: Call[list[Outcome]]) -> list[Outcome]:
        """A call made by `calls`: jobs that failed for different reasons, say."""
        return self._do(call)

    def extend(self, job: Job, *, lease_s: float | None = None) -> None:
        """Keep the job for `lease_s` from now; None: for the lease of its topic."""
        ((outcome, until),) = self.extend_many([job], lease_s=lease_s)
        require_done([outcome])
        if until is not None:
            job.lease_expires_at = until

    def extend_many(
        self, jobs: Sequence[Job], *, lease_s: float | None = None
    ) -> list[tuple[Outcome, datetime | None]]:
        """Keep these jobs; what became of each, and the new ends of their leases."""
        return self._do(calls.extend(jobs, lease_s)) if jobs else []

    def cancel(
        self, topic: str, ids: Sequence[int], *, namespace: str | None = None
    ) -> list[Outcome]:
        """Drop jobs that are ready or scheduled; STALE where a worker has one."""
        given = namespace or self.namespace
        return self._do(calls.cancel(given, topic, ids)) if ids else []

    def deliver_now(
        self, topic: str, ids: Sequence[int], *, namespace: str | None = None
    ) -> list[Outcome]:
        """Make scheduled jobs ready."""
        given = namespace or self.namespace
        return self._do(calls.deliver_now(given, topic, ids)) if ids else []

    def find(self, topic: str, id: int, *, namespace: str | None = None) -> JobInfo:
        """A job in whichever state, with its failures. UnknownJob where there is none."""
        return self._do(calls.find(namespace or self.namespace, topic, id))

    def dead(
        self, topic: str, *, after_id: int = 0, limit: int = 100, namespace: str | None = None
    ) -> list[JobInfo]:
        """Dead jobs in the order of their ids, from beyond `after_id`."""
        return self._do(calls.dead(namespace or self.namespace, topic, after_id, limit))

    def redrive(
        self, topic: str, ids: Sequence[int] | None = None, *, namespace: str | None = None
    ) -> int:
        """Make dead jobs ready again, with fresh retries; None: all of them. How many."""
        return self._do(calls.redrive(namespace or self.namespace, topic, ids))

    def delete_dead(
        self, topic: str, ids: Sequence[int] | None = None, *, namespace: str | None = None
    ) -> int:
        """Delete dead jobs; None: all of them. How many."""
        return self._do(calls.delete_dead(namespace or self.namespace, topic, ids))

    def settings(self, topic: str, *, namespace: str | None = None) -> TopicSettings:
        """How a topic treats its jobs."""
        return self._do(calls.settings(namespace or self.namespace, topic))

    def set_settings(
        self, topic: str, wanted: TopicSettings, *, namespace: str | None = None
    ) -> None:
        """Change how a topic treats its jobs, from now on."""
        self._do(calls.set_settings(namespace or self.namespace, topic, wanted))

    def stats(self, *, namespace: str | None = None) -> list[TopicStats]:
        """Every topic of a namespace at a glance; None: of all that the token covers."""
        return self._do(calls.stats(namespace))

    def schedules(self, *, namespace: str | None = None) -> list[Schedule]:
        """What is put in again and again."""
        return self._do(calls.schedules(namespace or self.namespace))

    def set_schedule(self, schedule: Schedule) -> None:
        """Put in a job at each time that a cron expression names; the same name replaces it."""
        self._do(calls.set_schedule(schedule))

    def delete_schedule(self, name: str, *, namespace: str | None = None) -> None:
        """Put it in no more. UnknownJob where there is no such schedule."""
        self._do(calls.delete_schedule(namespace or self.namespace, name))

    def _do(self, call: Call[T]) -> T:
        """Send a call, and again where that is harmless, until the deadline."""
        deadline = time.monotonic() + self._timeout_s + call.wait_s
        encoder = self._tokens.current()
        may_renew = self._tokens.can_renew()
        tries = 0
        while True:
            tries += 1
            try:
                request = encoder.encode(call.method, call.path, call.body)
                return self._try(call, request, deadline)
            except NotAuthenticatedError:  # nothing was done
                if not may_renew:
                    raise
                may_renew = False
                encoder = self._tokens.renew(encoder)
            except CallError as fault:
                pause_s = maybe_pause_s(fault, call, tries, deadline - time.monotonic())
                if pause_s is None:
                    raise
                time.sleep(pause_s)

    def _try(self, call: Call[T], request: bytes, deadline: float) -> T:
        connection = self._connections.take(max(deadline - time.monotonic(), 0.001))
        try:
            answer = connection.ask(request, deadline)
        except BaseException:
            connection.close()
            raise
        if answer.is_reusable:
            self._connections.give_back(connection)
        else:
            connection.close()
        if answer.status >= 300:
            raise error_of(answer.status, answer.body, answer.headers.get("retry-after"))
        return call.decode(answer)
