"""Jobs over HTTP: typed clients and a worker.

`Client` and `AsyncClient` enqueue, dequeue and settle jobs. A `Worker` calls a function for each
job. Times are seconds as float (`_s`) or datetime objects. Errors are in
`leveret.jobs.client.errors`. The service that they call is `leveret.job_service`.
"""

from leveret.job_model import Enqueued, Outcome, Schedule
from leveret.jobs.client.async_client import AsyncClient
from leveret.jobs.client.client import Client
from leveret.jobs.client.errors import (
    BadAnswerError,
    CallError,
    CallTimeoutError,
    InvalidCallError,
    NotAllowedError,
    NotAuthenticatedError,
    RateLimitError,
    ServiceDrainingError,
    ServiceError,
    StaleLeaseError,
    UnknownJobError,
    UnreachableError,
)
from leveret.jobs.client.job import Failure, Job, JobInfo, NewJob
from leveret.jobs.client.topics import TopicSettings, TopicStats
from leveret.jobs.worker.topic_runner import DeadError, RetryError
from leveret.jobs.worker.worker import Worker

__all__ = [
    "AsyncClient",
    "Client",
    "Worker",
    "DeadError",
    "RetryError",
    "Enqueued",
    "Failure",
    "Job",
    "JobInfo",
    "NewJob",
    "Outcome",
    "Schedule",
    "TopicSettings",
    "TopicStats",
    "BadAnswerError",
    "CallError",
    "InvalidCallError",
    "NotAllowedError",
    "NotAuthenticatedError",
    "RateLimitError",
    "ServiceDrainingError",
    "ServiceError",
    "StaleLeaseError",
    "CallTimeoutError",
    "UnknownJobError",
    "UnreachableError",
]
