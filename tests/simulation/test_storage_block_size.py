"""Large messages make no block of the log that is too large to be written."""

from collections.abc import Callable

import pytest

from leveret.engine.commands.stream_copies import COPIES_BYTES_MAX
from leveret.testing.disk import FakeDisk
from tests.compat.client import Method
from tests.protocol.stage import method, publish
from tests.simulation.storage_stage import PERSISTENT, Client, StorageStage

LOG_BYTES_MAX = 50_000
BODY = bytes(20_000)
COUNT = 20
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
DELAY_MS = 1_000


def largest_block_after(stage: StorageStage, begin: Callable[[], None]) -> int:
    """Run turns until nothing is left over; return the most bytes that waited for the log."""
    broker, journal = stage.broker, stage.store.journal
    stage.sync_all()
    broker.turn.log_bytes_max = LOG_BYTES_MAX
    largest = 0
    begin()
    while True:
        broker.end_turn()
        broker.perform()
        largest = max(largest, int(journal.waiting_bytes()))
        journal.must_sync = True
        stage.store.flush()
        stage.sync()
        if not broker.turn.leaving and broker.timers.next_due_ms() > stage.now_ms + 100:
            return largest
        stage.now_ms += 10
        broker.on_pulse(stage.now_ms)


def test_messages_that_die_together_are_written_in_several_blocks() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("dead")
    client.declare("q", **DEAD)
    for _ in range(COUNT):
        client.publish("q", BODY)
    client.call(3, "basic.consume", queue="q", no_ack=False)
    tag = max(int(str(each.fields["delivery_tag"])) for each in client.deliveries)
    nack = method(3, "basic.nack", delivery_tag=tag, multiple=True, requeue=False)
    stage.sync_all()
    stage.holds = True

    def reject() -> None:
        stage.broker.turn.log_bytes_max = LOG_BYTES_MAX
        client.peer.connection.feed(nack)

    stage.broker.begin_turn(stage.now_ms)
    assert LOG_BYTES_MAX < largest_block_after(stage, reject) < LOG_BYTES_MAX + 2 * len(BODY)
    stage.holds = False
    assert [len(each.body) for each in client.drain("dead")] == [len(BODY)] * COUNT


def test_messages_that_are_due_together_are_written_in_several_blocks() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q", **{"x-delayed": True})
    for _ in range(COUNT):
        client.publish("q", BODY, {**PERSISTENT, "headers": {"x-delay": DELAY_MS}})

    def wait() -> None:
        stage.now_ms += DELAY_MS + 1
        stage.broker.on_pulse(stage.now_ms)

    assert LOG_BYTES_MAX < largest_block_after(stage, wait) < LOG_BYTES_MAX + 2 * len(BODY)
    assert len(client.drain("q")) == COUNT


def test_input_waits_while_much_waits_for_the_log() -> None:
    stage = StorageStage(FakeDisk(), holds=True)
    client = Client(stage)
    client.declare("q")
    stage.sync_all()
    stage.broker.turn.log_bytes_max = LOG_BYTES_MAX
    connection = client.peer.connection
    for _ in range(COUNT):
        stage.broker.begin_turn(stage.now_ms)
        connection.feed(publish(1, "q", BODY, PERSISTENT))
        stage.end_turn()
    assert stage.store.journal.waiting_bytes() < LOG_BYTES_MAX + 2 * len(BODY)
    turns = 0
    while connection.has_rest:
        turns += 1
        stage.sync()
        stage.broker.begin_turn(stage.now_ms)
        connection.go_on()
        stage.end_turn()
        assert stage.store.journal.waiting_bytes() < (COUNT + 1) * len(BODY)
    stage.sync_all()
    assert turns > 0
    assert stage.broker.vhost("/").queues["q"].ready.count == COUNT


def test_a_delayed_message_to_many_queues_is_written_twice_at_most() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    for number in range(10):
        client.declare(f"q{number}", **{"x-delayed": number % 2 == 0})
        bind = {"queue": f"q{number}", "exchange": "amq.fanout", "routing_key": ""}
        client.call(2, "queue.bind", **bind)
    stage.sync_all()
    properties = {**PERSISTENT, "headers": {"x-delay": DELAY_MS}}
    stage.broker.begin_turn(stage.now_ms)
    client.peer.connection.feed(publish(1, "", BODY, properties, exchange="amq.fanout"))
    stage.broker.end_turn()
    assert 2 * len(BODY) < stage.store.journal.waiting_bytes() < 3 * len(BODY)


@pytest.mark.parametrize("is_transaction", [False, True])
def test_a_message_is_refused_that_would_be_too_large_in_all_its_streams(
    is_transaction: bool,
) -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    size, count = 16 * 1024 * 1024, 9
    for number in range(count):
        name = f"s{number}"
        client.declare(name, **{"x-queue-type": "stream"})
        client.call(2, "queue.bind", queue=name, exchange="amq.fanout", routing_key="")
    peer = stage.opened()
    peer.open_channel(1)
    if is_transaction:
        peer.feed(method(1, "tx.select"))
        peer.take()
    publishes = COPIES_BYTES_MAX // (size * count) + 1 if is_transaction else 1
    body = bytes(size if is_transaction else COPIES_BYTES_MAX // count + 1)
    for _ in range(publishes):
        peer.feed(publish(1, "", body, PERSISTENT, exchange="amq.fanout"))
    if is_transaction:
        peer.feed(method(1, "tx.commit"))
    (closed,) = [each for each in peer.take() if isinstance(each, Method)]
    assert closed.name == "channel.close"
    assert closed.fields["reply_code"] == 406
    assert "bytes of copies in streams" in str(closed.fields["reply_text"])
    stage.sync_all()
    streams = stage.broker.vhost("/").queues
    assert [streams[f"s{number}"].message_count() for number in range(count)] == [0] * count
