"""Compaction: messages of sparse files are copied, and disk space is freed while running."""

from collections import Counter
from random import Random
from typing import Final, cast

import pytest

from leveret.engine.backlog.paged import PagedRun
from leveret.storage.compaction import (
    CHECK_AFTER_RELEASES,
    RETRY_MS,
    SLICE_BYTES,
    SLICE_INTERVAL_MS,
    STABLE_MS,
)
from leveret.storage.file_names import log_name
from leveret.testing.disk import FakeDisk
from tests.compat.client import Method
from tests.compat.wire import Typed
from tests.simulation.storage_stage import (
    PERSISTENT,
    Client,
    StorageStage,
    bodies_in,
    positions_by_file,
)

FILE_BYTES: Final = 4096
FILES: Final = 20


def logs(disk: FakeDisk) -> list[str]:
    return [name for name in disk.names() if name.endswith(".log")]


def restarted(stage: StorageStage) -> StorageStage:
    return StorageStage(stage.stop(), file_bytes=FILE_BYTES, now_ms=stage.now_ms)


def fill_file(stage: StorageStage, client: Client) -> None:
    """Publish and take messages until the log begins a new file."""
    file = stage.store.journal.file
    while stage.store.journal.file == file:
        client.publish("passing", b"p" * 100)
        client.get("passing", no_ack=True)
    stage.sync_all()


def settle_down(stage: StorageStage) -> None:
    """Run compaction until nothing is left to copy."""
    stage.advance(1000 * SLICE_INTERVAL_MS)
    stage.sync_all()
    live = Counter({f: n for f, n in stage.store.journal.live.items() if n})
    assert live == positions_by_file(stage)


def sparse(window: int = 0) -> tuple[StorageStage, Client]:
    """A broker whose queues will have one message in each of many files."""
    stage = StorageStage(FakeDisk(), file_bytes=FILE_BYTES, window=window)
    client = Client(stage)
    client.declare("passing")
    return stage, client


@pytest.mark.parametrize("window", [0, 1])
def test_compaction_frees_space_and_a_restart_finds_every_message(window: int) -> None:
    stage, client = sparse(window)
    client.declare("plain")
    client.declare("prio", **{"x-max-priority": 9})
    client.declare("waiting", **{"x-delayed": True})
    for number in range(FILES):
        body = b"%d" % number
        client.publish("plain", body, {**PERSISTENT, "expiration": str(10**9 + number)})
        client.publish("prio", body, {**PERSISTENT, "priority": number % 5})
        later: dict[str, object] = {"x-delay": 10**8 - number}
        client.publish("waiting", body, {**PERSISTENT, "headers": later})
        fill_file(stage, client)
    settle_down(stage)
    assert stage.store.compactor.messages_copied >= 3 * (FILES - 2)
    assert len(logs(stage.disk)) <= 3
    before = [_held(stage, name) for name in ("plain", "prio", "waiting")]
    again = restarted(stage)
    assert [_held(again, name) for name in ("plain", "prio", "waiting")] == before
    assert [len(held) for held in before] == [FILES, FILES, FILES]
    assert bodies_in(again, "plain") == [b"%d" % n for n in range(FILES)]
    order = sorted(range(FILES), key=lambda n: (-(n % 5), n))
    assert bodies_in(again, "prio") == [b"%d" % n for n in order]
    again.advance(10**8)
    assert bodies_in(again, "waiting") == [b"%d" % n for n in reversed(range(FILES))]
    again.stop()


def _held(stage: StorageStage, name: str) -> list[tuple[object, ...]]:
    """Return everything known about the messages of a queue, including those only in the log."""
    queue = stage.broker.vhost("/").queues[name]
    pages = queue.ready.pages
    assert pages is not None
    messages = [(0, message) for message in queue.ready.messages()]
    for run in queue.ready.paged_runs():
        rest = PagedRun(run.file)
        rest.seqs = run.seqs
        rest.offsets = run.offsets
        rest.at = run.at
        while rest.left():
            page = pages.peek(rest)
            rest.at += len(page)
            messages.extend((0, message) for message in page)
    messages.extend((int(due_ms), message) for due_ms, message in queue.scheduled.entries())
    return sorted(
        (int(m.seq), due_ms, m.body, m.header, int(m.priority), int(m.expires_ms), m.address.keys)
        for due_ms, m in messages
    )


def test_file_that_consumers_are_draining_is_not_compacted() -> None:
    """It will be empty soon; only a file that stays unchanged is worth copying."""
    stage, client = sparse()
    stage.store.compactor.stable_ms = STABLE_MS
    client.declare("q")
    while stage.store.journal.file < 4:
        client.publish("q", b"m" * 50)
    client.publish("q", b"last")
    while (message := client.get("q", no_ack=True)) is not None and message.body != b"last":
        stage.advance(STABLE_MS // 4)
        stage.sync_all()
    assert stage.store.compactor.messages_copied == 0
    fill_file(stage, client)
    client.publish("q", b"stays")
    for _ in range(2):
        fill_file(stage, client)
    assert stage.store.compactor.messages_copied == 0
    settle_down(stage)
    assert stage.store.compactor.messages_copied == 0
    stage.advance(STABLE_MS)
    settle_down(stage)
    assert stage.store.compactor.messages_copied == 1
    stage.stop()


def test_messages_in_flight_are_copied_and_can_be_settled() -> None:
    stage, client = sparse()
    client.declare("slow", **{"x-queue-type": "quorum"})
    tags = []
    for number in range(FILES):
        client.publish("slow", b"%d" % number)
        message = client.get("slow")
        assert message is not None
        tags.append(cast(int, message.fields["delivery_tag"]))
        fill_file(stage, client)
    settle_down(stage)
    assert len(logs(stage.disk)) <= 3
    assert len(stage.store.journal.moved) >= FILES - 2
    for tag in tags[::2]:
        client.call(3, "basic.ack", delivery_tag=tag)
    for tag in tags[1::2]:
        client.call(3, "basic.reject", delivery_tag=tag, requeue=True)
    settle_down(stage)
    again = restarted(stage)
    found = Client(again).drain("slow")
    assert [message.body for message in found] == [b"%d" % n for n in range(1, FILES, 2)]
    assert {_failures(message) for message in found} == {1}
    again.stop()


def _failures(message: Method) -> int:
    assert message.content is not None
    headers = cast(dict[str, Typed], message.content.properties["headers"])
    return cast(int, headers["x-delivery-count"].value)


def test_copied_message_that_is_settled_is_released_where_it_stands() -> None:
    stage, client = sparse()
    client.declare("slow")
    client.publish("slow", b"m")
    message = client.get("slow")
    assert message is not None
    for _ in range(6):  # it is copied again and again
        fill_file(stage, client)
        settle_down(stage)
    assert stage.store.compactor.messages_copied >= 3
    client.call(3, "basic.ack", delivery_tag=message.fields["delivery_tag"])
    settle_down(stage)
    assert not stage.store.journal.moved
    fill_file(stage, client)
    fill_file(stage, client)
    assert len(logs(stage.disk)) <= 2
    stage.stop()


def test_transient_messages_that_were_spilled_are_copied() -> None:
    stage, client = sparse(window=1)
    client.call(2, "queue.declare", queue="short", durable=False, exclusive=True)
    for number in range(FILES):
        client.publish("short", b"%d" % number, {"delivery_mode": 1})
        fill_file(stage, client)
    settle_down(stage)
    assert len(logs(stage.disk)) <= 3
    assert [m.body for m in client.drain("short")] == [b"%d" % n for n in range(FILES)]
    settle_down(stage)
    stage.stop()


def test_scheduled_messages_that_become_due_while_files_are_copied() -> None:
    """A due message moves from memory to the paged-out part of its queue."""
    stage, client = sparse(window=1)
    client.declare("waiting", **{"x-delayed": True})
    for number in range(FILES):
        headers: dict[str, object] = {"x-delay": 1 + number * 7}
        client.publish("waiting", b"%d" % number, {**PERSISTENT, "headers": headers})
        fill_file(stage, client)
        if number % 3 == 0:
            stage.advance(SLICE_INTERVAL_MS)
    for _ in range(2):  # messages that changed meanwhile are copied in the next attempt
        settle_down(stage)
        fill_file(stage, client)
    settle_down(stage)
    assert len(logs(stage.disk)) <= 3
    assert [m.body for m in client.drain("waiting")] == [b"%d" % n for n in range(FILES)]
    settle_down(stage)
    stage.stop()


def test_power_lost_at_every_moment_of_compaction(seed: int) -> None:
    print(f"seed {seed}")
    stage, client = sparse()
    client.declare("kept")
    for number in range(4):
        client.publish("kept", b"%d" % number)
        client.publish("kept", b"held %d" % number)
        fill_file(stage, client)
    first_moment = stage.disk.moment
    settle_down(stage)
    assert stage.store.compactor.messages_copied > 0
    want = [body for n in range(4) for body in (b"%d" % n, b"held %d" % n)]
    for moment in range(first_moment, stage.disk.moment + 1):
        for number in range(3):
            disk = stage.disk.crash(Random(f"{seed} {number} {moment}"), moment)
            again = StorageStage(disk, file_bytes=FILE_BYTES)
            settle_down(again)
            third = StorageStage(again.killed(), file_bytes=FILE_BYTES)
            assert bodies_in(third, "kept") == want, (moment, number)
            third.abandon()
    stage.abandon()


def test_damaged_file_is_left_as_it_is() -> None:
    stage, client = sparse()
    client.declare("kept")
    client.publish("kept", b"precious")
    for _ in range(2):
        fill_file(stage, client)
    disk = stage.killed()
    name = log_name(1)
    content = disk.content(name)
    disk.flip(name, content.index(b"precious") * 8)
    again = StorageStage(disk, file_bytes=FILE_BYTES)
    client = Client(again)
    for _ in range(3):
        fill_file(again, client)
    again.advance(1000 * SLICE_INTERVAL_MS)
    again.sync_all()
    assert name in disk.names()
    assert again.store.compactor.messages_copied == 0
    assert again.store.journal.live[1] == 1
    again.stop()


def test_file_with_few_but_large_messages_is_left_as_it_is() -> None:
    """Copying most of a file would cost more than it frees; the attempt is not repeated at once."""
    stage = StorageStage(FakeDisk(), file_bytes=2 * SLICE_BYTES)
    client = Client(stage)
    client.declare("passing")
    client.declare("kept")
    for _ in range(100):
        client.publish("passing", b"p")
        client.get("passing", no_ack=True)
    want = [b"%d" % (number % 10) * 90_000 for number in range(20)]
    for body in want:
        client.publish("kept", body)
    while stage.store.journal.file < 3:
        client.publish("passing", bytes(90_000))
        client.get("passing", no_ack=True)
    stage.sync_all()
    for _ in range(2):
        settle_down(stage)
        assert log_name(1) in logs(stage.disk)
        assert stage.store.compactor.messages_copied == 12
        stage.store.journal.releases = CHECK_AFTER_RELEASES
        client.publish("passing", b"p")
    stage.advance(RETRY_MS)
    stage.store.journal.releases = CHECK_AFTER_RELEASES
    client.publish("passing", b"p")
    settle_down(stage)
    assert stage.store.compactor.messages_copied == 20
    assert log_name(1) not in logs(stage.disk)
    assert bodies_in(stage, "kept") == want
    settle_down(stage)
    stage.stop()


def test_compaction_copies_many_messages_in_slices() -> None:
    size = 8 * SLICE_BYTES
    stage = StorageStage(FakeDisk(), file_bytes=2 * size, window=1)
    client = Client(stage)
    client.declare("passing")
    client.declare("kept")
    for number in range(60):
        client.publish("kept", b"%d" % number * 20_000)
        for _ in range(4):
            client.publish("passing", bytes(40_000))
            client.get("passing", no_ack=True)
    while stage.store.journal.file < 3:
        client.publish("passing", bytes(400_000))
        client.get("passing", no_ack=True)
    stage.sync_all()
    slices = 0
    while stage.store.compactor.wake_ms:
        before = stage.store.compactor.messages_copied
        stage.now_ms = int(stage.store.compactor.wake_ms)
        stage.broker.on_pulse(stage.now_ms)
        assert stage.store.journal.size() <= SLICE_BYTES + 100_000
        stage.end_turn()
        slices += stage.store.compactor.messages_copied > before
    assert slices >= 2
    settle_down(stage)
    assert [m.body for m in client.drain("kept")] == [b"%d" % n * 20_000 for n in range(60)]
    stage.stop()
