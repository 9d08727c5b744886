"""Deaths that wait for the next turn: a kill in between neither loses nor doubles a message."""

from collections import Counter

from leveret.engine.turns.turn import DEATH_WORK, WORK_MAX
from leveret.testing.disk import FakeDisk
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

TTL_MS = 1_000
COUNT = 3 * WORK_MAX // DEATH_WORK


def test_kill_between_two_turns_of_deaths_keeps_each_message_once() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("dead")
    client.declare(
        "q",
        **{
            "x-message-ttl": TTL_MS,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        },
    )
    bodies = [b"%d" % number for number in range(COUNT)]
    for body in bodies:
        client.publish("q", body)
    stage.sync_all()
    kills = 0
    while kills < 5:
        stage = StorageStage(stage.killed(), now_ms=stage.now_ms + TTL_MS + 1)
        stage.run_one_turn()
        died = stage.broker.vhost("/").queues["dead"].ready.count
        if not stage.broker.turn.leaving:
            break
        kills += 1
        assert 0 < died < COUNT
    assert kills >= 2
    stage.end_turn()
    stage.sync_all()
    stage = StorageStage(stage.killed(), now_ms=stage.now_ms)
    assert Counter(bodies_in(stage, "dead")) == Counter(bodies)
    assert bodies_in(stage, "q") == []
