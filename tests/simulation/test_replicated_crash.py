"""A leader is killed or loses power at any moment, and its log is cut anywhere after the commits.

Whatever other nodes have of the log, it has all committed blocks. So a start from every prefix of
the log that holds them must find the state of its last block, also over the beginning of a file.
"""

from collections.abc import Callable
from random import Random

import pytest

from leveret.journal.records import ROLL_BLOCK
from leveret.testing.disk import FakeDisk
from tests.compat.client import Method
from tests.forms import volume
from tests.simulation.replicated_stage import InlineDisk, ReplicatedStage, blocks_of, cut
from tests.simulation.storage_model import check, found_in, start
from tests.simulation.storage_stage import ended
from tests.simulation.stream_model import StreamLoad

GENERATIONS = 3
STEPS = 120
CUTS = 3


class LateLoad(StreamLoad):
    """Random commands to a leader, whose blocks are committed late."""

    def actions(self) -> list[tuple[Callable[[], None], int]]:
        return [*super().actions(), (self.commit, 10)]

    def get(self) -> None:
        super().get()
        self._note()  # blocks may have been taken while the client waited for its answer

    def _see(self, message: Method) -> None:
        if message.fields["consumer_tag"] in self._readers:  # else its stream was deleted meanwhile
            super()._see(message)

    def floor(self, moment: int) -> int:
        """Return the newest block that a client was told of at a moment of the disk."""
        assert isinstance(self.stage, ReplicatedStage)
        rolls = {block.number for block in self.stage.followers.given if block.kind == ROLL_BLOCK}
        told = [block for when, block in self.floors if when <= moment]
        # A ROLL block follows in the same turn, and the model cannot tell them apart.
        return max((block - (block in rolls) for block in told), default=0)

    def commit(self) -> None:
        assert isinstance(self.stage, ReplicatedStage)
        self.stage.commit_some(self.rng)
        self._note()


@pytest.mark.parametrize("number", range(volume(6, 1)))
@pytest.mark.parametrize("ending", ["killed", "power lost", "either"])
def test_every_prefix_with_all_commits_is_a_state_of_the_log(
    seed: int, number: int, ending: str
) -> None:
    rng = Random(f"{seed} {number} {ending}")
    file_bytes = rng.choice((1024, 4096, 16384))
    disk: FakeDisk = InlineDisk()
    disk.short_writes = rng.random() < 0.5
    load = LateLoad(rng)
    now_ms = 1_700_000_000_000
    for generation in range(GENERATIONS):
        print(f"seed {seed}, run {number}, generation {generation}, files of {file_bytes}")
        stage = _lead(disk, load, generation + 1, file_bytes, now_ms)
        now_ms = stage.now_ms
        first_moment = stage.commits[0][0]
        moment = rng.randrange(first_moment, disk.moment + 1)
        survivor = ended(disk, rng, moment, ending)
        committed = stage.committed_at(moment)
        print(f"  moment {moment} of {first_moment}..{disk.moment}, committed {committed}")
        disk = _check_prefixes(load, survivor, rng, moment, committed, file_bytes)


def _lead(
    disk: FakeDisk,
    load: LateLoad,
    term: int,
    file_bytes: int,
    now_ms: int,
) -> ReplicatedStage:
    """Run a random load on a leader, which commits late, and lose its power."""
    stage = ReplicatedStage(disk, term=term, file_bytes=file_bytes, now_ms=now_ms, holds=True)
    begun = stage.found.last_block
    state = load.state.copied()
    stage.is_eager = True
    load.begin(stage)
    stage.is_eager = False
    load.states |= {begun: state, begun + 1: state}
    load.define()
    load.run(STEPS)
    stage.abandon()
    return stage


def _check_prefixes(
    load: LateLoad,
    survivor: FakeDisk,
    rng: Random,
    moment: int,
    committed: int,
    file_bytes: int,
) -> FakeDisk:
    """Start from several prefixes; return the disk to continue with."""
    assert committed >= load.floor(moment), "an answer left before its block was committed"
    load.forget_after(moment)
    last = blocks_of(survivor)[-1][3]
    assert last >= committed
    ends = sorted({committed, last, *(rng.randint(committed, last) for _ in range(CUTS))})
    for end in ends:
        prefix = survivor.copy()
        cut(prefix, end)
        first = start(prefix.copy(), load, file_bytes=file_bytes)
        assert first.found.last_block == end
        assert first.broker.turn.faults == []
        found = found_in(first)
        check(load.states[end], found, first)
        first.abandon()
    # The node starts by itself, without a cut: a torn end goes.
    alone = start(survivor.copy(), load, file_bytes=file_bytes)
    assert alone.found.last_block == last
    check(load.states[last], found_in(alone), alone)
    alone.abandon()
    end = rng.choice(ends)
    disk = survivor.copy()
    cut(disk, end)
    load.state = load.states[end].after_start()
    load.check_seen()
    return disk
