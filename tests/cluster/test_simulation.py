"""Seeds of the simulator, of each schedule; none may break a rule.

`make sim SEEDS=100000` runs more of them. A seed that has failed once is added to KEPT for good.
"""

import time

import pytest

from tests.cluster.simulation.schedule import SCHEDULES, Schedule
from tests.cluster.simulation.world import Result, World
from tests.forms import in_other_form, volume

SEEDS = {"mild": volume(25, 4), "harsh": volume(40, 8), "rotten": volume(25, 4)}
# Of each schedule; a machine that is slow runs fewer seeds instead of longer.
CPU_S_MAX = 6
# By schedule: seeds that have found a fault.
KEPT: dict[str, tuple[int, ...]] = {"mild": (3, 33), "harsh": (27, 49, 100_716), "rotten": ()}


def check(seed: int, schedule: Schedule) -> Result:
    result = World(seed, schedule).run()
    if result.failure is not None:
        print("\n".join(result.notes))
        pytest.fail(f"{result.failure}\nreplay: {result.replay()}")
    assert result.committed > 0
    return result


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=list(SCHEDULES))
def test_no_seed_breaks_a_rule(schedule: Schedule, seed: int) -> None:
    begun = time.process_time()
    results: list[Result] = []
    for number in range(SEEDS[schedule.name]):
        results.append(check(seed * 1000 + number, schedule))
        if time.process_time() - begun > CPU_S_MAX:
            print(f"{number + 1} seeds in {CPU_S_MAX} s")
            break
    # Followers do lag among the faults.
    assert sum(result.reads for result in results) > 0


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=list(SCHEDULES))
def test_seeds_that_have_found_faults_pass(schedule: Schedule) -> None:
    for number in KEPT[schedule.name]:
        check(number, schedule)


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_a_seed_replays_exactly(name: str) -> None:
    first = World(5, SCHEDULES[name]).run()
    again = World(5, SCHEDULES[name]).run()
    assert (first.digest, first.steps) == (again.digest, again.steps)


@pytest.mark.compiled_only("it runs both forms, and one comparison of them will do")
def test_both_forms_replay_a_seed_alike(compiled: bool) -> None:
    words = in_other_form(compiled, "tests.cluster.simulation.digests", 5)
    mine = [f"{World(5, schedule).run().digest:08x}" for schedule in SCHEDULES.values()]
    assert words == mine
