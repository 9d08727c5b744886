"""Definitions over AMQP are answered after they are on disk, in order with all other answers.

The proof is the disk at the moment of the answer: a node that starts from it after a kill or a loss
of power knows the definition.
"""

from collections.abc import Callable
from random import Random

import pytest

from leveret.testing.disk import SYNC, FakeDisk
from tests.protocol.stage import Peer, closes, method, publish, tune_ok
from tests.simulation.storage_stage import PERSISTENT, StorageStage

Known = Callable[[StorageStage], bool]


def opened(stage: StorageStage) -> Peer:
    peer = stage.opened()
    peer.open_channel(1)
    return peer


def has_queue(name: str) -> Known:
    return lambda stage: name in stage.broker.vhost("/").queues


def has_exchange(name: str) -> Known:
    return lambda stage: name in stage.broker.vhost("/").exchanges


def is_bound(source: str) -> Known:
    return lambda stage: bool(stage.broker.vhost("/").exchanges[source].bindings)


def has_messages(name: str) -> Known:
    return lambda stage: stage.broker.vhost("/").queues[name].message_count() > 0


# Method, fields, a fact about the node, and whether it is true after the method.
STEPS: list[tuple[str, dict[str, object], Known, bool]] = [
    ("queue.declare", {"queue": "q", "durable": True}, has_queue("q"), True),
    ("exchange.declare", {"exchange": "e", "durable": True}, has_exchange("e"), True),
    ("exchange.declare", {"exchange": "f", "durable": True}, has_exchange("f"), True),
    ("queue.bind", {"queue": "q", "exchange": "e", "routing_key": "k"}, is_bound("e"), True),
    ("exchange.bind", {"destination": "e", "source": "f"}, is_bound("f"), True),
    ("queue.purge", {"queue": "q"}, has_messages("q"), False),
    ("exchange.unbind", {"destination": "e", "source": "f"}, is_bound("f"), False),
    ("queue.unbind", {"queue": "q", "exchange": "e", "routing_key": "k"}, is_bound("e"), False),
    ("exchange.delete", {"exchange": "e"}, has_exchange("e"), False),
    ("queue.delete", {"queue": "q"}, has_queue("q"), False),
]


def definition(name: str, fields: dict[str, object]) -> bytes:
    kind = {"type": "direct"} if name == "exchange.declare" else {}
    return method(1, name, **kind, **fields)


@pytest.mark.parametrize("ending", ["killed", "power lost"])
def test_every_answered_definition_survives(ending: str, seed: int) -> None:
    print(f"seed {seed}")
    stage = StorageStage(FakeDisk())
    peer = opened(stage)
    for name, fields, is_known, expected in STEPS:
        if name == "queue.purge":
            peer.feed(publish(1, "q", b"m", PERSISTENT))
            stage.sync_all()
        stage.holds = True
        peer.feed(definition(name, fields))
        assert peer.names() == [], f"{name} was answered before the sync"
        while stage.take_report():
            pass
        assert peer.names() == [f"{name}-ok"]
        disk = stage.disk
        again = StorageStage(disk.killed() if ending == "killed" else disk.crash(Random(seed)))
        assert is_known(again) == expected, name
        again.abandon()
        stage.holds = False
    stage.abandon()


def test_answer_to_a_second_declare_waits_for_the_first_one() -> None:
    """The queue of another connection is not on disk yet either."""
    stage = StorageStage(FakeDisk())
    first, second = opened(stage), opened(stage)
    stage.holds = True
    first.feed(method(1, "queue.declare", queue="q", durable=True))
    second.feed(method(1, "queue.declare", queue="q", durable=True))
    second.feed(method(1, "queue.declare", queue="q", passive=True))
    assert second.names() == []
    stage.sync()
    assert second.names() == ["queue.declare-ok"] * 2
    stage.stop()


def test_transient_objects_and_known_ones_are_answered_at_once() -> None:
    stage = StorageStage(FakeDisk())
    peer, other = opened(stage), opened(stage)
    peer.send(1, "queue.declare", queue="known", durable=True)
    stage.holds = True
    other.feed(publish(1, "known", b"m", PERSISTENT))  # a block is being written
    peer.feed(method(1, "queue.declare", queue="known", durable=True))
    assert peer.names() == ["queue.declare-ok"]
    for fields in ({"exclusive": True}, {}):
        peer.feed(method(1, "queue.declare", queue=f"t{len(fields)}", **fields))
        peer.feed(method(1, "queue.bind", queue=f"t{len(fields)}", exchange="amq.fanout"))
        assert peer.names() == ["queue.declare-ok", "queue.bind-ok"]
    stage.stop()


def test_later_answers_and_confirms_do_not_overtake_a_held_answer() -> None:
    stage = StorageStage(FakeDisk())
    peer = opened(stage)
    peer.send(1, "confirm.select")
    stage.holds = True
    peer.feed(method(1, "queue.declare", queue="q", durable=True))
    peer.feed(publish(1, "q", b"m") + method(1, "basic.qos") + method(0, "connection.close"))
    assert peer.names() == []
    stage.sync()
    assert peer.names() == ["queue.declare-ok", "basic.qos-ok", "connection.close-ok"]
    stage.stop()


def test_methods_behind_a_commit_are_answered_after_it() -> None:
    stage = StorageStage(FakeDisk())
    peer = opened(stage)
    peer.send(1, "queue.declare", queue="q", durable=True)
    peer.send(1, "tx.select")
    stage.holds = True
    commit = publish(1, "q", b"m", PERSISTENT) + method(1, "tx.commit")
    peer.feed(commit + method(1, "basic.qos"))
    peer.feed(method(1, "queue.declare", queue="q", durable=True))
    assert peer.names() == []
    stage.sync()
    assert peer.names() == ["tx.commit-ok", "basic.qos-ok", "queue.declare-ok"]
    stage.stop()


def test_heartbeats_do_not_wait_for_the_log() -> None:
    stage = StorageStage(FakeDisk())
    peer = stage.opened(tune_ok(heartbeat_s=10))
    peer.open_channel(1)
    stage.holds = True
    peer.feed(method(1, "queue.declare", queue="q", durable=True))
    stage.advance(20_000)
    assert peer.names() == ["heartbeat"] * 4
    stage.sync()
    assert peer.names() == ["queue.declare-ok"]
    stage.stop()


def test_thousand_pipelined_declares_need_few_syncs() -> None:
    stage = StorageStage(FakeDisk())
    peer = opened(stage)
    syncs = stage.disk.counts[SYNC]
    frames = [method(1, "queue.declare", queue=f"q{n}", durable=True) for n in range(1000)]
    for part in range(0, 1000, 250):  # four reads of the socket
        peer.feed(b"".join(frames[part : part + 250]))
    stage.sync()
    assert peer.names() == ["queue.declare-ok"] * 1000
    assert stage.disk.counts[SYNC] - syncs <= 4
    stage.stop()


@pytest.mark.parametrize("is_temporary", [True, False])
def test_definition_that_cannot_be_written_closes_the_connection(is_temporary: bool) -> None:
    stage = StorageStage(FakeDisk())
    peer, other = opened(stage), opened(stage)
    peer.send(1, "queue.declare", queue="known", durable=True)
    if is_temporary:
        stage.disk.fail_write()
    else:
        stage.disk.fail_sync()
    refused = [("connection", 541, "INTERNAL_ERROR - the log cannot be written")]
    assert closes(peer.send(1, "queue.declare", queue="q", durable=True)) == refused
    if is_temporary:
        stage.run_timers()  # the log tries again
        stage.sync()
    else:
        assert closes(opened(stage).send(1, "queue.declare", queue="r", durable=True)) == refused
    answers = other.send(1, "queue.declare", queue="known", durable=True)
    assert closes(answers) == []
    assert len(answers) == 1
    stage.abandon()
