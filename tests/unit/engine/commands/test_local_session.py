"""A session inside the node: what its owner is told."""

from leveret.engine.commands.consuming import consume
from leveret.engine.commands.local_session import LocalSession
from leveret.engine.commands.settling import close_session
from leveret.engine.message import Message
from leveret.engine.turns.session import Outlet
from tests.unit.engine.front import Client, got

CREDIT_BYTES = 1_000_000


def test_fault_in_a_callback_is_noted_and_told_to_the_owner_and_no_message_is_lost() -> None:
    client = Client()
    queue = client.queue("q")
    broker = client.stage.broker
    told: list[str] = []

    def fail(messages: list[Message]) -> None:
        raise RuntimeError("a bug")

    outlet = Outlet()
    outlet.name = "shovel"
    outlet.credit = CREDIT_BYTES
    session = LocalSession(
        outlet,
        broker.turn,
        fail,
        lambda seq, is_taken: None,
        lambda: told.append("ended"),
        lambda: told.append("fault"),
    )
    consume(session, queue, "t", no_ack=False, arguments={}, timeout_ms=0)
    assert got(client.publish("q", "one")) == []
    assert told == ["fault"]
    (fault,) = broker.turn.faults
    assert fault.startswith("sending deliveries to connection 'shovel' failed: RuntimeError: a bug")
    broker.begin_turn(client.stage.now_ms)
    close_session(broker.slots, session)
    client.stage.end_turn()
    assert queue.message_count() == 1
