"""Settings and limits of the store on Redis and PostgreSQL."""

from typing import Final

import msgspec

from leveret.job_model import IDEMPOTENCY_MS

SYNC_POLICIES: Final = ("always", "interval", "never")
NODE_NUMBERS_IN_REDIS: Final = 768  # of all node numbers; shards lease the rest
NODE_NUMBERS: Final = 1_024
FLUSH_BYTES: Final = 16 * 1024 * 1024  # of one insert, unless a single job is larger
FLUSH_READ: Final = 250  # jobs read from Redis at a time
WAKE_MAX: Final = 500  # due jobs that one transaction handles
WAIT_POLL_S: Final = 0.2  # between two looks of a waiting dequeue, while its shard cannot notify
ORIGIN_KEPT_MS: Final = 30 * 24 * 3_600_000  # the log of a node that is away is known so long


class ShardsSettings(msgspec.Struct, kw_only=True, frozen=True):
    """Settings of the store."""

    sync: str = "interval"  # of the local log: before each answer, at an interval, or never
    sync_interval_ms: int = 20
    segment_bytes: int = 16 * 1024 * 1024  # of the local log
    is_slow_mode: bool = False  # while Redis is down, write to PostgreSQL instead of failing
    rate_max: int | None = None  # jobs that a namespace may enqueue in a second; None: no limit
    keys_kept_ms: int = IDEMPOTENCY_MS  # how long an idempotency key is known after its enqueue
    flush_interval_ms: int = 500  # between two checks for jobs that other nodes left in Redis
    flush_delay_ms: int = 20  # between two inserts, unless a caller waits for a job
    flush_rest_ms: int = 100  # the same, while no node is known to need a job soon
    flush_max: int = 1_000  # jobs in one insert
    buffer_max: int = 100_000  # jobs of a topic that may wait in Redis
    prefetch_max: int = 100  # jobs of a topic that are leased ahead
    prefetch_from: int = 20  # dequeues in a second from which a topic is busy; 0: never
    unwritten_s: float = 1.0  # oldest note of an ack; while one is older, acks ask the shard
    # How long a node that has announced itself may answer acks by notes. This and the deadline of a
    # call are shorter than `silent_s` together.
    announced_s: float = 3.0
    silent_s: float = 10.0  # without a new announcement, after which one is removed
    silent_without_redis_s: float = 60.0  # the same while Redis, which may have notes, is silent
    connections_max: int = 8  # to each shard
    deadline_s: float = 5.0  # of every call to Redis or a shard
    probe_s: float = 0.5  # between two checks of a server that is down or in use
    tick_s: float = 0.5  # between two looks for due jobs, at least
    idle_s: float = 45.0  # between two looks at a shard on which nothing happens
    sweep_after_s: float = 2.0  # a job that is not in its table by then is inserted from the log
    node_lease_ms: int = 15_000
    secret_digest: str = ""  # identifies the key of tokens, which all nodes share; empty: unchecked
    # Set in tests that move the clock of the node: shards use its time instead of their own.
    is_time_given: bool = False

    def __post_init__(self) -> None:
        if self.sync not in SYNC_POLICIES:
            raise ValueError(f"sync is one of {', '.join(SYNC_POLICIES)}, not {self.sync}")
