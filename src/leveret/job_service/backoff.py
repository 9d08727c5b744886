"""When a failed job is tried again: exponential backoff with jitter.

The module is pure: the caller passes the random number.
"""

from typing import Final

from leveret.job_model import TopicSettings

_DOUBLINGS_MAX: Final = 40  # beyond it every backoff is over its maximum


def backoff_ms(settings: TopicSettings, attempts: int, chance: float) -> int:
    """Return how long a job waits after its `attempts`-th failure; `chance` is from 0 to 1.

    The wait doubles with each attempt up to its maximum. Jitter shortens it by up to its share.
    """
    assert attempts >= 1
    assert 0 <= chance <= 1
    doubled = settings.backoff_ms << min(attempts - 1, _DOUBLINGS_MAX)
    wait_ms = min(doubled, settings.backoff_ms_max)
    return wait_ms - int(wait_ms * settings.jitter * chance)


def is_dead(settings: TopicSettings, attempts: int) -> bool:
    """Return whether a job is dead after this number of failed attempts."""
    return attempts > settings.retries_max
