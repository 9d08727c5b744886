"""Streams on a node that loses power at any moment of a random load, again and again."""

from random import Random

import pytest

from leveret.testing.disk import FakeDisk
from tests.forms import volume
from tests.simulation.storage_model import check, found_in, start
from tests.simulation.storage_stage import StorageStage, ended
from tests.simulation.stream_model import StreamLoad

GENERATIONS = 4
STEPS = 120


@pytest.mark.parametrize("number", range(volume(8, 1)))
@pytest.mark.parametrize("ending", ["killed", "power lost", "either"])
def test_offsets_never_change_their_message(seed: int, number: int, ending: str) -> None:
    rng = Random(f"{seed} {number} {ending}")
    file_bytes = rng.choice((1024, 4096, 1 << 20))
    disk = FakeDisk()
    disk.short_writes = rng.random() < 0.5
    load = StreamLoad(rng)
    now_ms = 1_700_000_000_000
    for generation in range(GENERATIONS):
        print(f"seed {seed}, run {number}, generation {generation}, files of {file_bytes}")
        stage = StorageStage(disk, file_bytes=file_bytes, now_ms=now_ms, holds=True)
        first_moment = disk.moment
        load.begin(stage)
        load.define()
        load.run(STEPS)
        now_ms = stage.now_ms
        stage.abandon()
        moment = rng.randrange(first_moment, disk.moment + 1)
        print(f"  moment {moment} of {first_moment}..{disk.moment}")
        survivor = ended(disk, rng, moment, ending)
        disk = _check_survivor(load, survivor, moment, file_bytes)


def _check_survivor(load: StreamLoad, survivor: FakeDisk, moment: int, file_bytes: int) -> FakeDisk:
    """Check a first and a second start, and return the disk to continue with."""
    floor = max((block for when, block in load.floors if when <= moment), default=0)
    load.forget_after(moment)
    first = start(survivor.copy(), load, file_bytes=file_bytes)
    block = first.found.last_block
    assert block >= floor, f"block {floor} was confirmed or seen, and {block} is the last"
    assert first.broker.turn.faults == []
    found = found_in(first)
    check(load.states[block], found, first)
    first.abandon()

    second = start(survivor.copy(), load, file_bytes=file_bytes)
    again = start(second.killed(), load, file_bytes=file_bytes)
    assert again.found.cut_bytes == 0
    assert found_in(again) == found
    assert again.broker.turn.faults == []
    again.abandon()
    load.state = load.states[block].after_start()
    load.check_seen()
    return survivor
