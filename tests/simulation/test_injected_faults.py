"""A fault at any step of a turn loses no confirmed message, and the next start is clean.

`fault_injection` plays a script over all kinds of queues and exchanges, once for each function of
the engine that the script enters, and lets this function fail at its first, a middle or its last
call. A run takes a sample of them, by its seed.
"""

from random import Random

import pytest

from tests.simulation.fault_injection import Plan, Script, misplaced, targets

pytestmark = pytest.mark.interpreted_only("compiled functions cannot be made to fail")

PARTS = 8
SCRIPTS = 8  # of about 800, in each part; a script takes a third of a second


def test_script_without_a_fault_loses_nothing() -> None:
    script = Script(Plan())
    script.play()
    assert script.stage.broker.turn.fault_count == 0
    assert len(script.confirmed - script.settled) > 15
    assert misplaced(script.stage) == []
    assert script.lost() == []


@pytest.mark.parametrize("part", range(PARTS))
def test_fault_at_any_step_loses_no_confirmed_message(part: int, seed: int) -> None:
    rng = Random(f"{seed} {part}")
    for code, number in rng.sample(targets()[part::PARTS], SCRIPTS):
        where = f"seed {seed}: call {number} of {code.co_qualname}"
        script = Script(Plan(code, number))
        script.play()
        body = script.publish("plain")  # the broker goes on
        assert body in script.confirmed, where
        assert misplaced(script.stage) == [], where
        assert script.lost() == [], where
