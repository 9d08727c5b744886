"""A follower of a real broker: its directory recovers to the leader's state, whatever happened."""

from __future__ import annotations

from random import Random

import pytest

from leveret.engine.checkpoint import checkpoint_records
from leveret.errors import StorageError
from leveret.storage.raft_state import RaftState, write_raft_state
from leveret.storage.repair import repair
from leveret.testing.disk import FakeDisk
from tests.simulation.follower_stage import Block, Follower, HandDisk, without_membership
from tests.simulation.replicated_stage import Given, InlineDisk, ReplicatedStage
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

SEEDS = range(5)
FILE_BYTES = 6000
STREAM = {
    "x-queue-type": "stream",
    "x-stream-max-segment-size-bytes": 900,
    "x-max-length-bytes": 3000,
}


class _Pair:
    """A leader with a broker, and a follower that gets its blocks."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.stage = ReplicatedStage(InlineDisk(), file_bytes=FILE_BYTES)
        self.client = Client(self.stage)
        self.follower = Follower(HandDisk())
        self.sent = 0

    def lead(self) -> None:
        """Let the leader do something."""
        rng, client = self.rng, self.client
        action = rng.random()
        if action < 0.1:
            name = f"q{rng.randrange(3)}"
            arguments = {} if rng.random() < 0.5 else STREAM
            client.call(2, "queue.delete", queue=f"{name}{bool(arguments)}")
            client.declare(f"{name}{bool(arguments)}", **arguments)
        elif action < 0.3:
            client.call(2, "basic.get", queue=f"q{rng.randrange(3)}False", no_ack=True)
        else:
            key = f"q{rng.randrange(3)}{rng.random() < 0.5}"
            client.publish(key, rng.randbytes(rng.choice((10, 200, 600))))
        self.stage.commit_all()

    def follow(self) -> None:
        """Send some blocks to the follower, and let it know what is committed."""
        given = self.stage.followers.given
        end = self.rng.randint(self.sent, len(given))
        before = self.follower.disk.moment
        self._send(given[self.sent : end])
        if self.rng.random() < 0.2:
            self._restart(self.rng.randint(before, self.follower.disk.moment))
        self.sent = self.follower.log.synced_index

    def _send(self, blocks: list[Given]) -> None:
        made = [Block.of(*block) for block in blocks]
        self.follower.write(made)
        self.follower.run()
        self.follower.log.commit_to(self.rng.randint(self.follower.log.commit, self.sent))
        self.follower.run()

    def _restart(self, moment: int) -> None:
        disk = self.follower.disk.killed(moment)
        if self.rng.random() < 0.6:
            disk = disk.crash(self.rng)
        self.follower = Follower(disk)
        assert self.follower.scan.lost == ""

    def finish(self) -> None:
        """Send everything, and commit it."""
        self._send(self.stage.followers.given[self.sent :])
        self.follower.log.commit_to(1 << 40)
        self.follower.run()
        assert self.follower.faults == []


def _state(disk: FakeDisk) -> list[object]:
    """Recover a directory, and return everything that a client could see."""
    stage = StorageStage(disk)
    found: list[object] = [b"".join(checkpoint_records(stage.broker, 0))]
    for name, queue in sorted(stage.broker.vhost("/").queues.items()):
        found.append((name, int(queue.message_count())))
        if name.endswith("False"):
            found.append(bodies_in(stage, name))
    stage.abandon()
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_directory_of_a_follower_recovers_to_the_state_of_its_leader(seed: int) -> None:
    print("seed", seed)
    pair = _Pair(seed)
    for name in ("q0", "q1", "q2"):
        pair.client.declare(f"{name}False")
        pair.client.declare(f"{name}True", **STREAM)
    for _ in range(150):
        pair.lead()
        pair.follow()
    pair.finish()
    own = pair.follower.disk.contents()
    leader = pair.stage.disk.contents()
    same = [name for name in own if name.endswith((".log", ".segment")) and name in leader]
    assert same
    assert max(name for name in own if name.endswith(".log")) in same
    for name in same:
        assert own[name] == leader[name], name
    assert {n for n in leader if n.endswith(".segment")} <= set(own)
    pair.follower.log.close()
    alone = without_membership(pair.follower.disk)
    assert _state(alone) == _state(without_membership(pair.stage.disk))


def test_directory_of_a_member_is_refused_without_its_cluster() -> None:
    disk = FakeDisk()
    client = Client(StorageStage(disk))
    client.declare("q")
    client.publish("q", b"agreed")
    client.stage.stop()
    write_raft_state(disk, RaftState("6f1d", 2, "uid"))
    before = disk.contents()
    with pytest.raises(StorageError, match="a node of cluster 6f1d: start it with the --cluster"):
        StorageStage(disk)
    with pytest.raises(StorageError, match="a node of cluster 6f1d"):
        repair(disk)
    assert repair(disk, dry_run=True).is_whole
    assert disk.contents() == before
    assert bodies_in(StorageStage(without_membership(disk)), "q") == [b"agreed"]
