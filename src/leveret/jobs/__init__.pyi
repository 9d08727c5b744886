# The types of what `leveret.jobs` offers; __init__.py imports it when it is first used.

from leveret.jobs.async_client import AsyncClient
from leveret.jobs.client import Client
from leveret.jobs.faults import (
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
from leveret.jobs.job import Enqueued, Failure, Job, JobInfo, NewJob
from leveret.jobs.lane import Dead, Retry
from leveret.jobs.service.items import Schedule, TopicSettings, TopicStats
from leveret.jobs.service.store import Outcome
from leveret.jobs.worker import Worker

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
