"""Limits for the definitions that users without the tag `administrator` may set.

Policies and parameters are in memory and in every checkpoint, lists show all of them at once, and
each new queue is matched with all patterns of its vhost. Administrators may exceed the limits; a
start and an import apply none.
"""

from typing import Final

from leveret.errors import PreconditionFailedError

ENTRIES_MAX: Final = 1_000  # policies of a vhost, parameters of a vhost, global parameters
BYTES_MAX: Final = 4 * 1024 * 1024  # of their values as JSON
# Instructions of RE2 in the patterns of all policies of a vhost. Matching them with a name of 255
# bytes takes up to 130 ms, and 4 µs for each pattern that is not made to be slow.
PATTERNS_SIZE_MAX: Final = 10_000


def require_room(what: str, others: list[int], size: int) -> None:
    """Raise PreconditionFailedError if a value of this size is too much beside the others."""
    if len(others) >= ENTRIES_MAX:
        raise PreconditionFailedError(
            f"{what}: there are {len(others)}, and only an administrator may set more than "
            f"{ENTRIES_MAX}"
        )
    total = sum(others) + size
    if total > BYTES_MAX:
        raise PreconditionFailedError(
            f"{what}: they would have {total} bytes, and only an administrator may set more than "
            f"{BYTES_MAX}"
        )


def require_fast(size: int) -> None:
    """Raise PreconditionFailedError if the patterns of a vhost have too many instructions."""
    if size > PATTERNS_SIZE_MAX:
        raise PreconditionFailedError(
            f"the patterns of all policies of the vhost would have {size} instructions of RE2, and "
            f"only an administrator may set more than {PATTERNS_SIZE_MAX}"
        )
