"""A short round of changes under load; `make chaos-reshard` has the long one."""

import pytest

from tools.chaos_reshard import STEPS, plan_of, run

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")


@pytest.mark.timeout(1800)  # each change has half of it
def test_every_job_is_done_once_while_shards_come_and_go(seed: int) -> None:
    # What is stuck for good is still found in the end: a busy machine may take its time.
    plan = plan_of(workers=2, producers=1, seed=seed, pause_s=0.2, slack_s=60.0)
    found = run(plan, (STEPS[::2], STEPS[1::2]), 1, print)
    print(found)
    assert found.account.faults == []
    assert found.account.done > 20
    assert sorted(found.kills) == sorted(STEPS)
    assert [change["shards"] for change in found.changes] == [3, 2]
