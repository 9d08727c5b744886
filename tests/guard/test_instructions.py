"""Compare the instruction counts of hot paths with the baseline (tools/guard counts them).

This bound does not depend on the clock: counts of one build are the same on a busy machine. Where a
path needs more for a good reason, `make guard-update` records it, and the change shows it.
"""

import pytest

from tools.guard import baseline
from tools.guard.counting import count, why_not


@pytest.mark.compiled_only("the interpreted form promises no speed")
def test_hot_paths_need_no_more_instructions_than_recorded() -> None:
    recorded = baseline.load()
    reason = why_not() or recorded.why_not_here(baseline.environment())
    if reason:
        pytest.skip(reason)
    counted = count()
    reason = recorded.why_not_comparable(counted)
    if reason:
        pytest.skip(reason)
    faults = recorded.faults(counted)
    where = f"recorded with {recorded.environment}, counted with {baseline.environment()}"
    assert not faults, "\n".join([*faults, where])
