"""Reads the .sql files and fills in their placeholders.

A placeholder is a name in double braces. A name in capitals stands for a number or text of
`PLACEHOLDERS`. A name in small letters stands for the file of that name in `fragments`, whose own
placeholders are filled in too. An unknown name is an error.
"""

import re
from importlib.resources import files
from typing import Final

from leveret.job_model import (
    BACKOFF_MS_DEFAULT,
    BACKOFF_MS_MAX_DEFAULT,
    BATCH_BYTES_MAX,
    ERRORS_KEPT,
    LEASE_MS_DEFAULT,
    PAYLOAD_BYTES_MAX,
    RETRIES_DEFAULT,
)
from leveret.job_service.snowflake import EPOCH_MS

FLOOR_LAG_MS: Final = 60_000  # shortest time for which flush marks are kept
CLOCK_SKEW_MS_MAX: Final = 60_000  # largest difference between the clocks of a node and a shard
LOST_AFTER_MS: Final = 600_000  # without a report, after which the log of a node counts as lost
PREFETCH_OFFERED_MS: Final = 5_000  # how long a prefetched job waits for a worker
# Error with which a node knows the time of a shard: half of the deadline of the measurement.
PREFETCH_MARGIN_MS: Final = 2_500
# How long the lease of a job must still last, if its ack is only noted in Redis. If Redis does not
# answer within the deadline of a call, the shard can still be asked.
ACK_LEFT_MS: Final = 5_000
PREFETCH_BYTES_MAX: Final = 256 * 1024  # payloads that are leased ahead at a time
PREFETCH_LEASE_MS_MAX: Final = 60_000  # jobs under longer leases are not prefetched
GATE_LOCK: Final = 0x4C56_0002  # advisory lock: shared by every function that changes items
READY_CHANNEL: Final = "leveret_ready"  # notifications of topics that have ready jobs
DUE_CHANNEL: Final = "leveret_due"  # notifications of due times, in ms from now
TOPIC_STOPPED: Final = "LV001"  # SQLSTATE: the topic is being moved, or lives on another shard


def _interval(ms: int) -> str:
    return f"INTERVAL '{ms} ms'"


PLACEHOLDERS: Final = {
    "BACKOFF_MS_DEFAULT": BACKOFF_MS_DEFAULT,
    "BACKOFF_MS_MAX_DEFAULT": BACKOFF_MS_MAX_DEFAULT,
    "BATCH_BYTES_MAX": BATCH_BYTES_MAX,
    "EPOCH_MS": EPOCH_MS,
    "CLOCK_SKEW": _interval(CLOCK_SKEW_MS_MAX),
    "DUE_JOBS_LOOKED_AT": 100,  # of all topics; a claim looks among them for jobs of its topic
    "ERRORS_KEPT": ERRORS_KEPT,
    "FLOOR_LAG": _interval(FLOOR_LAG_MS),
    "GATE_LOCK": GATE_LOCK,
    "JITTER_DEFAULT": 0.2,
    "JOBS_THAT_ALWAYS_FIT": BATCH_BYTES_MAX // PAYLOAD_BYTES_MAX,  # so their size is not measured
    "KEY_FREE_EARLY": _interval(2 * CLOCK_SKEW_MS_MAX),
    "LEASE_MS_DEFAULT": LEASE_MS_DEFAULT,
    "LOST_AFTER": _interval(LOST_AFTER_MS),
    "PREFETCH_BYTES_MAX": PREFETCH_BYTES_MAX,
    "PREFETCH_LEASE_MS_MAX": PREFETCH_LEASE_MS_MAX,
    "PREFETCH_MARGIN": _interval(PREFETCH_MARGIN_MS),
    "PREFETCH_OFFERED": _interval(PREFETCH_OFFERED_MS),
    "READY_CHANNEL": READY_CHANNEL,
    "RETRIES_DEFAULT": RETRIES_DEFAULT,
    "TOPIC_STOPPED": TOPIC_STOPPED,
}
_PLACEHOLDER: Final = re.compile(r"\{\{(\w+)\}\}")
_COMMENT_LINE: Final = re.compile(r"^--.*\n", re.MULTILINE)


def load_sql(name: str) -> str:
    """Return the script of `<name>.sql`, ready to be sent."""
    return _fill_in(_read(f"{name}.sql"))


def _fill_in(text: str) -> str:
    return _PLACEHOLDER.sub(_replace, text)


def _replace(match: re.Match[str]) -> str:
    name = match[1]
    if name.isupper():
        return str(PLACEHOLDERS[name])
    return _fill_in(_COMMENT_LINE.sub("", _read(f"fragments/{name}.sql")).strip())


def _read(path: str) -> str:
    return files(__package__).joinpath(path).read_text(encoding="utf-8")
