"""A node loses power at any moment of a random load, again and again."""

from collections import Counter
from random import Random

import pytest

from leveret.testing.disk import FakeDisk
from tests.forms import volume
from tests.simulation.storage_model import Found, Load, check, found_in, start
from tests.simulation.storage_stage import StorageStage, ended, positions_by_file

GENERATIONS = 4
STEPS = 120


@pytest.mark.parametrize("number", range(volume(6, 1)))
@pytest.mark.parametrize("ending", ["killed", "power lost", "either"])
def test_what_was_confirmed_is_there_and_nothing_else(seed: int, number: int, ending: str) -> None:
    rng = Random(f"{seed} {number} {ending}")
    file_bytes = rng.choice((1024, 4096, 1 << 20))
    disk = FakeDisk()
    disk.short_writes = rng.random() < 0.5
    load = Load(rng)
    for generation in range(GENERATIONS):
        print(f"seed {seed}, run {number}, generation {generation}, files of {file_bytes}")
        stage = StorageStage(disk, file_bytes=file_bytes, now_ms=_now_ms(load), holds=True)
        first_moment = disk.moment
        load.begin(stage)
        load.define()
        load.run(STEPS)
        stage.abandon()
        moment = rng.randrange(first_moment, disk.moment + 1)
        print(f"  moment {moment} of {first_moment}..{disk.moment}")
        survivor = ended(disk, rng, moment, ending)
        disk = _check_survivor(load, survivor, moment, file_bytes)


@pytest.mark.parametrize("number", range(volume(5, 1)))
@pytest.mark.parametrize("ending", ["killed", "power lost", "either"])
def test_sparse_files_are_compacted_and_nothing_is_lost(
    seed: int, number: int, ending: str
) -> None:
    rng = Random(f"{seed} {number} {ending} sparse")
    file_bytes = rng.choice((1500, 3000, 6000))
    window = rng.choice((0, 1, 3))
    disk = FakeDisk()
    load = Load(rng)
    copied = 0
    for generation in range(GENERATIONS):
        print(
            f"seed {seed}, run {number}, generation {generation}, files of {file_bytes}, {window}"
        )
        stage = StorageStage(
            disk, file_bytes=file_bytes, now_ms=_now_ms(load), holds=True, window=window
        )
        first_moment = disk.moment
        load.begin(stage)
        load.define()
        load.run_sparse(STEPS * 2)
        stage.sync_all()
        load.hear()
        live = Counter({f: n for f, n in stage.store.journal.live.items() if n})
        assert live == positions_by_file(stage)
        copied += stage.store.compactor.messages_copied
        stage.abandon()
        moment = rng.randrange(first_moment, disk.moment + 1)
        print(f"  moment {moment} of {first_moment}..{disk.moment}, {copied} copied")
        survivor = ended(disk, rng, moment, ending)
        disk = _check_survivor(load, survivor, moment, file_bytes, window)
    assert copied > 0


def _now_ms(load: Load) -> int:
    return load.stage.now_ms if hasattr(load, "stage") else 1_700_000_000_000


def _without_redelivered(found: Found) -> dict[str, list[object]]:
    """Remove the values that depend on the number of starts."""
    return {
        name: [(body, *counts) for body, _, *counts in messages] for name, messages in found.items()
    }


def _check_survivor(
    load: Load, survivor: FakeDisk, moment: int, file_bytes: int, window: int = 0
) -> FakeDisk:
    """Check a first and a second start, and return the disk to continue with."""
    floor = max((block for when, block in load.floors if when <= moment), default=0)
    first = start(survivor.copy(), load, file_bytes=file_bytes, window=window)
    block = first.found.last_block
    assert block >= floor, f"block {floor} was confirmed, and {block} is the last"
    found = found_in(first)
    check(load.states[block], found, first)
    first.abandon()

    second = start(survivor.copy(), load, file_bytes=file_bytes)
    second.advance(1000)  # files are compacted again, and due messages leave the delayed exchange
    again = start(second.killed(), load, file_bytes=file_bytes)
    assert again.found.cut_bytes == 0
    assert _without_redelivered(found_in(again)) == _without_redelivered(found)
    again.abandon()
    load.state = load.states[block].after_start()
    return survivor
