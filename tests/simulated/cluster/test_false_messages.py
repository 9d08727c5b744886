"""A node that sends false messages loses its connection, and stops no other node."""

from collections.abc import Callable

import pytest

from leveret.cluster.raft.block import NORMAL, Block
from leveret.cluster.raft.fields import U64_MAX
from leveret.cluster.raft.messages import APPEND, APPEND_REPLY, HEARTBEAT, PRE_VOTE, Message
from tests.simulated.cluster.machine import DAMAGED, Machine
from tests.simulated.cluster.world import CheckedSchedule, started


def term_of(machine: Machine) -> int:
    assert machine.member is not None
    return machine.member.term


def second_leader(leader: Machine, target: Machine) -> Message:
    return Message(HEARTBEAT, 0, 0, term_of(leader))


def endless_term(leader: Machine, target: Machine) -> Message:
    return Message(HEARTBEAT, 0, 0, U64_MAX)


def endless_question(leader: Machine, target: Machine) -> Message:
    return Message(PRE_VOTE, 0, 0, U64_MAX)


def more_than_there_is(leader: Machine, target: Machine) -> Message:
    message = Message(APPEND_REPLY, 0, 0, term_of(leader))
    message.index = 1_000_000
    return message


def append(leader: Machine, after: int, data: bytes) -> Message:
    """Return a message of a leader of the next term, with one block."""
    assert leader.member is not None
    assert leader.member.host is not None
    term = term_of(leader) + 1
    message = Message(APPEND, 0, 0, term)
    message.index, message.log_term = after, leader.member.host.raft.log.term(after)
    message.blocks = [Block(after + 1, term, NORMAL, data)]
    return message


def damaged_block(leader: Machine, target: Machine) -> Message:
    return append(leader, committed(leader), DAMAGED)


def committed(machine: Machine) -> int:
    assert machine.member is not None
    assert machine.member.host is not None
    return machine.member.host.committed


@pytest.mark.parametrize(
    ("make", "is_for_leader"),
    [
        (second_leader, True),
        (second_leader, False),
        (endless_term, True),
        (endless_question, True),
        (more_than_there_is, True),
        (damaged_block, False),
    ],
)
def test_a_false_message_ends_its_connection_and_no_node(
    schedule: CheckedSchedule,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[Machine, Machine], Message],
    is_for_leader: bool,
) -> None:
    world, leader = started(schedule, "a", "b", "c")
    world.load()
    schedule.run_for(1)
    followers = [machine for machine in world.machines.values() if machine is not leader]
    liar, target = followers[0], leader if is_for_leader else followers[1]
    world.until(lambda: committed(target) > 1)
    for machine in world.machines.values():
        machine.hears_lies = True
    message = make(leader, target)
    message.source, message.target = liar.number, target.number
    tell(liar, target, message)
    world.until(lambda: "it breaks the protocol between nodes: " in caplog.text)
    assert not target.ended
    world.calm()
    assert {machine.ended for machine in world.machines.values()} == {""}


def tell(liar: Machine, target: Machine, message: Message) -> None:
    """Send a message that the member itself would not send."""
    assert liar.loop is not None
    assert liar.member is not None
    links = liar.member.links
    liar.loop.run_inside(lambda: links.send(target.name, liar.number, target.number, [message]))


def test_a_world_notices_a_false_message(schedule: CheckedSchedule) -> None:
    world, leader = started(schedule, "a", "b", "c")
    liar = next(machine for machine in world.machines.values() if machine is not leader)
    message = second_leader(leader, leader)
    message.source, message.target = liar.number, leader.number
    tell(liar, leader, message)
    with pytest.raises(AssertionError, match="two nodes lead in term"):
        schedule.run_for(10)
    schedule.faults.clear()
