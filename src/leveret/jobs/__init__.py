"""Jobs over HTTP: typed clients and a worker.

`Client` and `AsyncClient` enqueue, dequeue and settle jobs; a `Worker` calls a function for each
job. The exceptions of both are in `leveret.jobs.client.errors`. The service that they talk to is
`leveret.job_service`.
"""

from leveret.job_model import Outcome, Schedule, TopicSettings, TopicStats
from leveret.jobs.client.async_client import AsyncClient
from leveret.jobs.client.client import Client
from leveret.jobs.client.errors import (
    BadAnswer,
    CallFailed,
    InvalidCall,
    NotAllowed,
    NotAuthenticated,
    OverRate,
    ServiceDraining,
    ServiceFailed,
    StaleLease,
    TimedOut,
    UnknownJob,
    Unreachable,
)
from leveret.jobs.client.job import Enqueued, Failure, Job, JobInfo, NewJob
from leveret.jobs.worker.topic_runner import Dead, Retry
from leveret.jobs.worker.worker import Worker

__all__ = [
    "AsyncClient",
    "Client",
    "Worker",
    "Dead",
    "Retry",
    "Enqueued",
    "Failure",
    "Job",
    "JobInfo",
    "NewJob",
    "Outcome",
    "Schedule",
    "TopicSettings",
    "TopicStats",
    "BadAnswer",
    "CallFailed",
    "InvalidCall",
    "NotAllowed",
    "NotAuthenticated",
    "OverRate",
    "ServiceDraining",
    "ServiceFailed",
    "StaleLease",
    "TimedOut",
    "UnknownJob",
    "Unreachable",
]
