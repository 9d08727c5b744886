"""The calls of the jobs API: the request of each, and how its answer is decoded.

A `Call` is data that both clients send. `is_repeatable` says that sending it twice does no more
than sending it once, so that a client may try again after a lost answer. Repeatable calls are
reading, settling under a token (a lease is settled once), and enqueueing jobs that all have
idempotency keys.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from leveret import job_model
from leveret.decode_errors import DECODE_ERRORS
from leveret.http_client.answers import Answer
from leveret.job_model import Enqueued, Outcome, Schedule
from leveret.jobs.client.durations import require_seconds
from leveret.jobs.client.errors import BadAnswerError, InvalidCallError
from leveret.jobs.client.job import Job, JobInfo, NewJob, encode_payload, in_utc
from leveret.jobs.client.topics import (
    TopicSettings,
    TopicStats,
    settings_body,
    settings_of,
    stats_of,
)

DEAD: Final = "dead"  # the state of a job
_PATHS_CACHED: Final = 256

T = TypeVar("T")
Raw = TypeVar("Raw")


@dataclass(slots=True)
class Call(Generic[T]):
    """One call that can be sent."""

    method: str
    path: str
    body: bytes | None
    decode: Callable[[Answer], T]
    is_repeatable: bool = False
    wait_s: float = 0.0  # the service may wait for jobs so long, on top of the deadline
    # Decodes the answer where an earlier try may have been carried out; None: `decode` does.
    decode_repeated: Callable[[Answer], T] | None = None

    def result(self, answer: Answer, *, may_be_done: bool) -> T:
        """Return the result of an answer; `may_be_done`: the answer of an earlier try was lost."""
        if may_be_done and self.decode_repeated is not None:
            return self.decode_repeated(answer)
        return self.decode(answer)


class _Item(msgspec.Struct, omit_defaults=True):
    """An item of POST /enqueue."""

    namespace: str
    topic: str
    payload: bytes
    priority: int = 0
    deliver_after: datetime | None = None
    idempotency_key: str | None = None
    fair_key: str | None = None


class _Settled(msgspec.Struct, omit_defaults=True):
    """An item of POST /ack, /nack, /extend, /cancel and /deliver-now."""

    namespace: str
    topic: str
    id: int
    token: int | None = None
    error: str | None = None
    delay: float | None = None
    dead: bool = False
    lease: float | None = None


class _Result(msgspec.Struct):
    """The outcome for one item of a batch."""

    outcome: Outcome
    lease_expires_at: datetime | None = None


class _AckedAndLeased(msgspec.Struct):
    """The answer of POST /dequeue."""

    acked: list[_Result]
    jobs: list[Job]


_IDS: Final = msgspec.json.Decoder(list[int], strict=False)
_JOBS: Final = msgspec.json.Decoder(list[Job], strict=False)
_INFOS: Final = msgspec.json.Decoder(list[JobInfo], strict=False)
_RESULTS: Final = msgspec.json.Decoder(list[_Result])
_ACKED_AND_LEASED: Final = msgspec.json.Decoder(_AckedAndLeased, strict=False)
_ENCODER: Final = msgspec.json.Encoder()


def enqueue(jobs: Sequence[NewJob], namespace: str) -> Call[Enqueued]:
    """Enqueue all of these jobs, or none."""
    items = [
        _Item(
            job.namespace or namespace,
            job.topic,
            encode_payload(job.payload),
            job.priority or 0,
            None if job.deliver_after is None else in_utc(job.deliver_after),
            job.idempotency_key,
            job.fair_key,
        )
        for job in jobs
    ]
    is_repeatable = None not in [job.idempotency_key for job in jobs]
    decode = partial(_enqueued, count=len(items))
    return Call("POST", "/enqueue", _ENCODER.encode(items), decode, is_repeatable)


def dequeue(
    namespace: str, topic: str, limit: int, wait_s: float, lease_s: float | None
) -> Call[list[Job]]:
    """Lease up to `limit` jobs; wait for one up to `wait_s`."""

    def decode(answer: Answer) -> list[Job]:
        return _of_topic(_decoded(_JOBS, answer), namespace, topic)

    path = _dequeue_path(namespace, topic, limit, wait_s, lease_s)
    return Call("GET", path, None, decode, wait_s=wait_s)


def ack_and_dequeue(
    done: Sequence[Job],
    namespace: str,
    topic: str,
    limit: int,
    wait_s: float,
    lease_s: float | None,
) -> Call[tuple[list[Outcome], list[Job]]]:
    """Settle jobs as done, then lease the next ones."""

    def decode(answer: Answer) -> tuple[list[Outcome], list[Job]]:
        found = _decoded(_ACKED_AND_LEASED, answer)
        results = _each(found.acked, answer, len(done))
        jobs = _of_topic(found.jobs, namespace, topic)
        return [result.outcome for result in results], jobs

    body = _ENCODER.encode([_Settled(j.namespace, j.topic, j.id, j.token) for j in done])
    path = _dequeue_path(namespace, topic, limit, wait_s, lease_s)
    return Call("POST", path, body, decode, wait_s=wait_s)


# Workers repeat the same call. Encoding the query takes a seventh of the client's time for it.
@lru_cache(_PATHS_CACHED)
def _dequeue_path(
    namespace: str, topic: str, limit: int, wait_s: float, lease_s: float | None
) -> str:
    require_seconds("wait", wait_s, 0, job_model.WAIT_MS_MAX)
    _require_lease(lease_s)
    query: dict[str, object] = {"namespace": namespace, "topic": topic, "limit": limit}
    if wait_s > 0:
        query["wait"] = wait_s
    if lease_s is not None:
        query["lease"] = lease_s
    return f"/dequeue?{urlencode(query)}"


def _require_lease(lease_s: float | None) -> None:
    if lease_s is not None:
        require_seconds("lease", lease_s, job_model.LEASE_MS_MIN, job_model.LEASE_MS_MAX)


def _of_topic(jobs: list[Job], namespace: str, topic: str) -> list[Job]:
    for job in jobs:
        job.namespace, job.topic = namespace, topic
    return jobs


def ack(jobs: Iterable[Job]) -> Call[list[Outcome]]:
    """Settle jobs as done.

    Where the answer of an earlier try was lost, a job that is gone was acked by that try.
    """
    call = _settle("/ack", [_Settled(j.namespace, j.topic, j.id, j.token) for j in jobs])
    decode = call.decode

    def decode_repeated(answer: Answer) -> list[Outcome]:
        found = decode(answer)
        return [Outcome.DONE if each is Outcome.UNKNOWN else each for each in found]

    return replace(call, decode_repeated=decode_repeated)


def nack(failed: Iterable[tuple[Job, str, float | None, bool]]) -> Call[list[Outcome]]:
    """Settle jobs as failed. Each has its error, its delay in seconds (None: the backoff of the
    topic), and whether it is dead at once.
    """
    items = []
    for job, error, delay_s, is_dead in failed:
        if delay_s is not None:
            require_seconds("delay", delay_s, 0, job_model.BACKOFF_MS_MAX)
        items.append(_Settled(job.namespace, job.topic, job.id, job.token, error, delay_s, is_dead))
    return _settle("/nack", items)


def extend(
    jobs: Iterable[Job], lease_s: float | None
) -> Call[list[tuple[Outcome, datetime | None]]]:
    """Extend the leases of jobs to `lease_s` from now."""
    _require_lease(lease_s)
    items = [_Settled(j.namespace, j.topic, j.id, j.token, lease=lease_s) for j in jobs]
    decode = partial(_ends, count=len(items))
    return Call("POST", "/extend", _ENCODER.encode(items), decode, is_repeatable=True)


def cancel(namespace: str, topic: str, ids: Iterable[int]) -> Call[list[Outcome]]:
    """Delete jobs that are ready or scheduled."""
    return _settle("/cancel", [_Settled(namespace, topic, id) for id in ids])


def deliver_now(namespace: str, topic: str, ids: Iterable[int]) -> Call[list[Outcome]]:
    """Make scheduled jobs ready at once."""
    return _settle("/deliver-now", [_Settled(namespace, topic, id) for id in ids])


def find(namespace: str, topic: str, id: int) -> Call[JobInfo]:
    query = urlencode({"namespace": namespace, "topic": topic, "id": id})
    return _reads(f"/job?{query}", JobInfo, _as_it_is)


def dead(namespace: str, topic: str, after_id: int, limit: int) -> Call[list[JobInfo]]:
    """Return dead jobs in the order of their ids, starting after `after_id`."""
    given = {"namespace": namespace, "topic": topic, "after": after_id, "limit": limit}
    return _reads(f"/dead?{urlencode(given)}", list[JobInfo], _as_it_is)


def list_jobs(
    namespace: str, topic: str, state: str, limit: int, after: str, *, payloads: bool
) -> Call[tuple[list[JobInfo], str]]:
    """Return a page of the jobs in a state, and `after` of the next page: empty if it is the last.

    Dead jobs have a list of their own, which is continued by the id of the last job.
    """
    given = {"namespace": namespace, "topic": topic, "limit": str(limit)}
    if state != DEAD:
        given["state"] = state
    if after:
        given["after"] = after
    if not payloads:
        given["payloads"] = "false"
    path = f"{'/dead' if state == DEAD else '/jobs'}?{urlencode(given)}"

    def decode(answer: Answer) -> tuple[list[JobInfo], str]:
        jobs = _decoded(_INFOS, answer)
        if state == DEAD:
            return jobs, str(jobs[-1].id) if jobs else ""
        return jobs, answer.headers.get("jobs-next", "")

    return Call("GET", path, None, decode, is_repeatable=True)


def redrive(namespace: str, topic: str, ids: Sequence[int] | None) -> Call[int]:
    """Make dead jobs ready again; None: all."""
    return _changes_dead("/dead/redrive", namespace, topic, ids, "redriven")


def delete_dead(namespace: str, topic: str, ids: Sequence[int] | None) -> Call[int]:
    return _changes_dead("/dead/delete", namespace, topic, ids, "deleted")


def settings(namespace: str, topic: str) -> Call[TopicSettings]:
    return _reads(_topic_path(namespace, topic), job_model.TopicSettings, settings_of)


def set_settings(namespace: str, topic: str, wanted: TopicSettings) -> Call[None]:
    body = _ENCODER.encode(settings_body(wanted))
    return Call("PUT", _topic_path(namespace, topic), body, _nothing, is_repeatable=True)


def stats(namespace: str | None) -> Call[list[TopicStats]]:
    query = f"?{urlencode({'namespace': namespace})}" if namespace is not None else ""
    return _reads(f"/stats{query}", list[job_model.TopicStats], _all_stats)


def schedules(namespace: str) -> Call[list[Schedule]]:
    return _reads(f"/schedules?{urlencode({'namespace': namespace})}", list[Schedule], _as_it_is)


def set_schedule(schedule: Schedule) -> Call[None]:
    path = _schedule_path(schedule.namespace, schedule.name)
    return Call("PUT", path, _ENCODER.encode(schedule), _nothing, is_repeatable=True)


def delete_schedule(namespace: str, name: str) -> Call[None]:
    path = _schedule_path(namespace, name)
    return Call("DELETE", path, None, _nothing)


def _settle(path: str, items: list[_Settled]) -> Call[list[Outcome]]:
    is_repeatable = all(item.token is not None for item in items)
    decode = partial(_outcomes, count=len(items))
    return Call("POST", path, _ENCODER.encode(items), decode, is_repeatable)


def _changes_dead(
    path: str, namespace: str, topic: str, ids: Sequence[int] | None, field: str
) -> Call[int]:
    body: dict[str, object] = {"namespace": namespace, "topic": topic}
    if ids is not None:
        body["ids"] = list(ids)

    def decode(answer: Answer) -> int:
        found = _decoded(msgspec.json.Decoder(dict[str, Any]), answer)
        return int(found[field])

    return Call("POST", path, _ENCODER.encode(body), decode)


def _reads(path: str, kind: type[Raw], convert: Callable[[Raw], T]) -> Call[T]:
    decoder = msgspec.json.Decoder(kind, strict=False)

    def decode(answer: Answer) -> T:
        return convert(_decoded(decoder, answer))

    return Call("GET", path, None, decode, is_repeatable=True)


def _as_it_is(found: T) -> T:
    return found


def _all_stats(found: list[job_model.TopicStats]) -> list[TopicStats]:
    return [stats_of(each) for each in found]


def _topic_path(namespace: str, topic: str) -> str:
    return f"/topics/{_in_path('namespace', namespace)}/{_in_path('topic', topic)}"


def _schedule_path(namespace: str, name: str) -> str:
    return f"/schedules/{_in_path('namespace', namespace)}/{_in_path('name', name)}"


def _in_path(field: str, name: str) -> str:
    if not name:
        raise InvalidCallError(f"{field} is empty", 400, None, field)  # it would be another path
    return quote(name, safe="")


def _enqueued(answer: Answer, count: int) -> Enqueued:
    ids = _each(_decoded(_IDS, answer), answer, count)
    known = answer.headers.get("jobs-known", "")
    return Enqueued(ids, int(known) if known.isdecimal() else None)


def _outcomes(answer: Answer, count: int) -> list[Outcome]:
    return [outcome for outcome, _ in _ends(answer, count)]


def _ends(answer: Answer, count: int) -> list[tuple[Outcome, datetime | None]]:
    results = _each(_decoded(_RESULTS, answer), answer, count)
    return [(result.outcome, result.lease_expires_at) for result in results]


def _each(found: list[T], answer: Answer, count: int) -> list[T]:
    """Return `found`; BadAnswerError unless it has one element for each job of the call."""
    if len(found) != count:
        raise BadAnswerError(f"the answer is about {len(found)} jobs, not {count}", answer.status)
    return found


def _nothing(answer: Answer) -> None:
    assert answer.status < 400


def _decoded(decoder: "msgspec.json.Decoder[T]", answer: Answer) -> T:
    try:
        return decoder.decode(answer.body)
    except DECODE_ERRORS as fault:
        raise BadAnswerError(f"the answer cannot be read: {fault}", answer.status) from fault
