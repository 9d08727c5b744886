"""A backup at any moment of a random load holds exactly the state of that moment."""

from random import Random

import pytest

from leveret.storage.archive import ArchiveReader
from leveret.storage.backup import NodeBackup
from leveret.storage.blocks import encode_head
from leveret.storage.file_names import log_name
from leveret.storage.queue_backup import BackedUpMessage, QueueSnapshot, read_log
from leveret.testing.disk import FakeDisk
from tests.forms import volume
from tests.simulation.replicated_stage import InlineDisk, ReplicatedStage
from tests.simulation.storage_model import ORDERED, Load, Queued, State, check, found_in, start
from tests.simulation.storage_stage import Client, StorageStage

ROUNDS = volume(6, 2)


def loaded(seed: int, steps: int, stage: StorageStage | None = None) -> Load:
    load = Load(Random(seed))
    load.begin(stage if stage is not None else StorageStage(FakeDisk(), file_bytes=3000))
    load.define()
    for queue in load.stage.broker.vhost("/").queues.values():
        queue.ready.window = 3
    load.run(steps)
    return load


def unpacked(archive: bytes) -> tuple[FakeDisk, ArchiveReader]:
    """Unpack an archive into a data directory."""
    reader = ArchiveReader()
    files: dict[str, bytes] = {}
    for part in reader.feed(archive):
        files[part.name] = files.get(part.name, b"") + part.data
    reader.finish()
    disk = FakeDisk()
    for name, data in files.items():
        disk.put(name, data)
    number = reader.facts.get("checkpoint")
    if isinstance(number, int):
        disk.put(log_name(number), encode_head(number))
    return disk, reader


def _leader() -> ReplicatedStage:
    stage = ReplicatedStage(InlineDisk(), file_bytes=3000)
    stage.is_eager = True
    return stage


@pytest.mark.parametrize("leads", [False, True], ids=["alone", "leader"])
@pytest.mark.parametrize("part", range(3))
def test_backup_of_a_node_is_its_state_at_the_roll(part: int, seed: int, leads: bool) -> None:
    print(f"seed {seed}")
    rng = Random(seed + part)
    for _ in range(ROUNDS):
        begun = _leader() if leads else None
        load = loaded(rng.randrange(1 << 30), rng.randrange(150), begun)
        stage = load.stage
        backups: list[tuple[NodeBackup, State]] = []
        state = load.state.copied()

        def on_rolled(
            number: int,
            stage: StorageStage = stage,
            state: State = state,
            backups: list[tuple[NodeBackup, State]] = backups,
        ) -> None:
            backups.append((stage.store.backup(number, {}), state))

        stage.store.log.roll(on_rolled)
        if isinstance(stage, ReplicatedStage):
            stage.commit_all()
        else:
            stage.sync()
        load.hear()
        load.run(rng.randrange(150))
        ((backup, state),) = backups
        disk, _ = unpacked(b"".join(backup.pieces()))
        backup.close()
        restored = start(disk, load, file_bytes=3000)
        assert not restored.found.damage
        assert restored.found.cut_bytes == 0
        check(state, found_in(restored), restored)
        restored.abandon()
        stage.abandon()


@pytest.mark.parametrize("name", ["plain", "prio", "quorum", "retry", "grave"])
def test_backup_of_a_queue_is_its_state_at_that_moment(name: str, seed: int) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    for _ in range(ROUNDS):
        load = loaded(rng.randrange(1 << 30), 60 + rng.randrange(200))
        stage = load.stage
        vhost = stage.broker.vhost("/")
        state = load.state.queues[name].copied()
        flying = [m for peer in stage.peers for c in peer.channels.values()
                  for m in c.unacked.messages()]  # fmt: skip
        snapshot = QueueSnapshot(vhost, vhost.queues[name], flying)
        stage.store.log.hold_files()
        stage.sync_all()
        snapshot.open_files(stage.disk)
        load.run(rng.randrange(100))
        disk, reader = unpacked(b"".join(snapshot.pieces()))
        snapshot.close()
        stage.store.log.release_files()
        assert reader.notes["messages"] == len(state.entries)
        assert reader.notes["unreadable"] == 0
        _check_kept(name, state, disk)
        restored = start(disk, load, file_bytes=3000)
        assert sorted(restored.broker.vhost("/").queues) == [name]
        found = [body for body, *_ in found_in(restored)[name]]
        if name in ORDERED:
            assert found == [entry.body for entry in state.order()]
        else:
            assert sorted(found) == sorted(state.entries)
        restored.abandon()
        stage.abandon()


def _check_kept(name: str, state: Queued, disk: FakeDisk) -> None:
    kept: list[BackedUpMessage] = []
    for file in disk.names():
        kept += read_log(disk.content(file), file)[1]
    for one in kept:
        entry = state.entries[one.message.body]
        assert one.due_ms == entry.due_ms
        if name == "prio":
            assert one.message.priority == entry.priority


def test_message_that_cannot_be_read_is_counted_and_left_out() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=700)
    client = Client(stage)
    client.declare("q")
    for number in range(10):
        client.publish("q", b"%d" % number * 50)
    disk = stage.killed()
    (name,) = [n for n in disk.names() if n.endswith(".log") and b"4" * 50 in disk.content(n)]
    disk.flip(name, disk.content(name).index(b"4" * 50) * 8)
    again = StorageStage(disk)
    vhost = again.broker.vhost("/")
    snapshot = QueueSnapshot(vhost, vhost.queues["q"], [])
    snapshot.open_files(again.disk)
    made, reader = unpacked(b"".join(snapshot.pieces()))
    assert (reader.notes["messages"], reader.notes["unreadable"]) == (9, 1)
    _, kept = read_log(made.content(log_name(1)), log_name(1))
    assert [one.message.body[:1] for one in kept] == [b"%d" % n for n in range(10) if n != 4]


def test_roll_without_anything_to_write_and_rolls_at_once() -> None:
    stage = StorageStage(FakeDisk(), holds=True)
    numbers: list[int] = []
    stage.store.log.roll(numbers.append)
    stage.store.log.roll(numbers.append)
    stage.store.log.roll(numbers.append)
    stage.sync()
    assert numbers == [2, 3, 3]
    stage.disk.fail_sync()
    stage.store.log.roll(numbers.append)
    stage.store.log.roll(numbers.append)
    stage.sync()
    stage.store.log.roll(numbers.append)
    assert numbers[3:] == [0, 0, 0]
