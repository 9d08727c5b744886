"""The blocking client of the jobs service, for threads.

Many threads may use one `Client`: each call takes a connection of its own from a pool that keeps
them open. Every call ends within its deadline, with its result or an error of
`leveret.jobs.client.errors`. `AsyncClient` has the same methods as coroutines.
"""

import ssl
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import TypeVar

from leveret.http_client.answers import Answer
from leveret.http_client.connections import ConnectionPool
from leveret.http_client.tokens import TokenRenewal, TokenSource
from leveret.job_model import Enqueued, Outcome, Schedule
from leveret.jobs.client import calls
from leveret.jobs.client.calls import Call
from leveret.jobs.client.errors import CallError, NotAuthenticatedError, error_of
from leveret.jobs.client.job import Job, JobInfo, NewJob
from leveret.jobs.client.outcomes import require_done
from leveret.jobs.client.retrying import TIMEOUT_S, may_be_done, maybe_pause_s
from leveret.jobs.client.service_address import DEFAULT_NAMESPACE, find_service, make_encoder
from leveret.jobs.client.topics import TopicSettings, TopicStats

T = TypeVar("T")


class Client:
    """A client of the jobs service at one address.

    Without `url` and `token` it reads LEVERET_URL and LEVERET_JOBS_TOKEN from the environment.
    """

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
        """Close the idle connections, and each other connection after its call."""
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
        """Enqueue one job and return its id. `payload` is sent as JSON unless it is bytes."""
        job = NewJob(
            topic=topic,
            payload=payload,
            namespace=namespace,
            priority=priority,
            deliver_after=deliver_after,
            idempotency_key=idempotency_key,
            fair_key=fair_key,
        )
        return self.enqueue_many([job]).ids[0]

    def enqueue_many(self, jobs: Sequence[NewJob]) -> Enqueued:
        """Enqueue all of these jobs, or none.

        Return their ids in the same order, and how many the service knew already by their
        idempotency keys.
        """
        return self.send_call(calls.enqueue(jobs, self.namespace)) if jobs else Enqueued([], 0)

    def dequeue(
        self,
        topic: str,
        *,
        limit: int = 1,
        wait_s: float = 0.0,
        lease_s: float | None = None,
        namespace: str | None = None,
    ) -> list[Job]:
        """Lease up to `limit` jobs; where there are none, wait for one up to `wait_s`.

        `lease_s` None: the lease of the topic.
        """
        given = namespace or self.namespace
        return self.send_call(calls.dequeue(given, topic, limit, wait_s, lease_s))

    def ack(self, job: Job) -> None:
        """Settle a job as done.

        Raise StaleLeaseError or UnknownJobError where the lease is no longer this worker's.
        """
        require_done(self.ack_many([job]))

    def ack_many(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Settle jobs as done; return the outcome of each."""
        return self.send_call(calls.ack(jobs)) if jobs else []

    def ack_and_dequeue(
        self,
        jobs: Sequence[Job],
        topic: str,
        *,
        limit: int = 1,
        wait_s: float = 0.0,
        lease_s: float | None = None,
        namespace: str | None = None,
    ) -> tuple[list[Outcome], list[Job]]:
        """Settle jobs as done, then lease the next ones of a topic, as `dequeue` does.

        It is one round trip instead of two. Return the outcome of each ack, and the new jobs. The
        call is not repeated: if its answer is lost, it is not known whether the jobs are acked.
        """
        given = namespace or self.namespace
        call = calls.ack_and_dequeue(jobs, given, topic, limit, wait_s, lease_s)
        return self.send_call(call)

    def nack(
        self, job: Job, error: str, *, delay_s: float | None = None, dead: bool = False
    ) -> None:
        """Settle a job as failed. It comes back after the backoff of its topic, or after `delay_s`.

        `dead`: the job is dead at once, however many retries are left.
        Raise StaleLeaseError or UnknownJobError where the lease is no longer this worker's.
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
        """Settle jobs as failed, all for the same reason; return the outcome of each."""
        failed = [(job, error, delay_s, dead) for job in jobs]
        return self.send_call(calls.nack(failed)) if jobs else []

    def extend(self, job: Job, *, lease_s: float | None = None) -> None:
        """Extend the lease of a job to `lease_s` from now; None: the lease of its topic."""
        ((outcome, until),) = self.extend_many([job], lease_s=lease_s)
        require_done([outcome])
        if until is not None:
            job.lease_expires_at = until

    def extend_many(
        self, jobs: Sequence[Job], *, lease_s: float | None = None
    ) -> list[tuple[Outcome, datetime | None]]:
        """Extend the leases of jobs; return the outcome of each and the new end of its lease."""
        return self.send_call(calls.extend(jobs, lease_s)) if jobs else []

    def cancel(
        self, topic: str, ids: Sequence[int], *, namespace: str | None = None
    ) -> list[Outcome]:
        """Delete jobs that are ready or scheduled; the outcome is STALE where a job is leased."""
        given = namespace or self.namespace
        return self.send_call(calls.cancel(given, topic, ids)) if ids else []

    def deliver_now(
        self, topic: str, ids: Sequence[int], *, namespace: str | None = None
    ) -> list[Outcome]:
        """Make scheduled jobs ready at once."""
        given = namespace or self.namespace
        return self.send_call(calls.deliver_now(given, topic, ids)) if ids else []

    def find(self, topic: str, id: int, *, namespace: str | None = None) -> JobInfo:
        """Return a job in any state, with its failures; UnknownJobError where there is none."""
        return self.send_call(calls.find(namespace or self.namespace, topic, id))

    def list_jobs(
        self,
        topic: str,
        state: str,
        *,
        page: int = 100,
        payloads: bool = True,
        namespace: str | None = None,
    ) -> Iterator[JobInfo]:
        """Return the jobs of a topic that are `ready`, `scheduled`, `leased` or `dead`, in order.

        The iterator reads `page` jobs at a time, up to 1,000, while it is used. A job that changes
        its state meanwhile may be missing. `payloads` False: the payloads are empty.
        """
        given, after = namespace or self.namespace, ""
        while True:
            call = calls.list_jobs(given, topic, state, page, after, payloads=payloads)
            jobs, after = self.send_call(call)
            yield from jobs
            if not after:
                return

    def dead(
        self, topic: str, *, after_id: int = 0, limit: int = 100, namespace: str | None = None
    ) -> list[JobInfo]:
        """Return dead jobs in the order of their ids, starting after `after_id`."""
        given = namespace or self.namespace
        return self.send_call(calls.dead(given, topic, after_id, limit))

    def redrive(
        self, topic: str, ids: Sequence[int] | None = None, *, namespace: str | None = None
    ) -> int:
        """Make dead jobs ready again with all their retries; None: all. Return how many."""
        return self.send_call(calls.redrive(namespace or self.namespace, topic, ids))

    def delete_dead(
        self, topic: str, ids: Sequence[int] | None = None, *, namespace: str | None = None
    ) -> int:
        """Delete dead jobs; None: all. Return how many."""
        return self.send_call(calls.delete_dead(namespace or self.namespace, topic, ids))

    def settings(self, topic: str, *, namespace: str | None = None) -> TopicSettings:
        """Return the settings of a topic."""
        return self.send_call(calls.settings(namespace or self.namespace, topic))

    def set_settings(
        self, topic: str, wanted: TopicSettings, *, namespace: str | None = None
    ) -> None:
        """Change the settings of a topic."""
        self.send_call(calls.set_settings(namespace or self.namespace, topic, wanted))

    def stats(self, *, namespace: str | None = None) -> list[TopicStats]:
        """Return statistics of the topics in a namespace; None: in all that the token covers."""
        return self.send_call(calls.stats(namespace))

    def schedules(self, *, namespace: str | None = None) -> list[Schedule]:
        """Return the schedules of a namespace."""
        return self.send_call(calls.schedules(namespace or self.namespace))

    def set_schedule(self, schedule: Schedule) -> None:
        """Enqueue a job at each time of a cron expression; replaces a schedule of the same name."""
        self.send_call(calls.set_schedule(schedule))

    def delete_schedule(self, name: str, *, namespace: str | None = None) -> None:
        """Delete a schedule; UnknownJobError if no schedule has that name."""
        self.send_call(calls.delete_schedule(namespace or self.namespace, name))

    def send_call(self, call: Call[T]) -> T:
        """Send a call of `calls`. Send it again where that is harmless, until the deadline."""
        deadline = time.monotonic() + self._timeout_s + call.wait_s
        encoder = self._tokens.current()
        may_renew = self._tokens.can_renew()
        tries, is_unsure = 0, False
        while True:
            tries += 1
            try:
                request = encoder.encode(call.method, call.path, call.body)
                return call.result(self._try_once(request, deadline), may_be_done=is_unsure)
            except NotAuthenticatedError:  # the service did nothing
                if not may_renew:
                    raise
                may_renew = False
                encoder = self._tokens.renew(encoder)
            except CallError as fault:
                pause_s = maybe_pause_s(fault, call, tries, deadline - time.monotonic())
                if pause_s is None:
                    raise
                is_unsure |= may_be_done(fault)
                time.sleep(pause_s)

    def _try_once(self, request: bytes, deadline: float) -> Answer:
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
        return answer
