"""No message that a client can publish stops a start: recovery parks what it cannot handle."""

import json

from leveret.testing.disk import FakeDisk
from tests.simulation.storage_stage import Client, StorageStage, bodies_in

TTL_MS = 1_000
LONG_KEY = "k" * 300


def set_old_policy(stage: StorageStage) -> None:
    """Set a dead-letter key that no routing key can be, as an older version accepted it."""
    value = {
        "pattern": "^faulty$",
        "apply-to": "queues",
        "priority": 0,
        "definition": {"dead-letter-exchange": "", "dead-letter-routing-key": LONG_KEY},
    }
    stage.broker.begin_turn(stage.now_ms)
    stage.broker.register.put("policy", json.dumps(["/", "old"]), json.dumps(value))
    stage.end_turn()


def test_start_parks_a_message_that_it_cannot_dead_letter() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    arguments = {"x-message-ttl": TTL_MS}
    client.declare("dead")
    client.declare("faulty", **arguments)
    client.declare(
        "good", **arguments, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    )
    set_old_policy(stage)
    for queue in ("good", "faulty", "good"):
        client.publish(queue, f"of {queue}".encode())
    stage.sync_all()
    for _ in range(2):  # the second start finds what the first has written
        stage = StorageStage(stage.killed(), now_ms=stage.now_ms + TTL_MS + 1)
        stage.broker.on_pulse(stage.now_ms)
        stage.end_turn()
        stage.sync_all()
        assert bodies_in(stage, "dead") == [b"of good", b"of good"]
        assert bodies_in(stage, "leveret.parked") == [b"of faulty"]
        assert bodies_in(stage, "faulty") == []
