"""Slots for opening relays: a limit, the newest first, and none is lost."""

import asyncio

from leveret.cluster.relay_slots import OPENING_MAX, RelaySlots
from tests.unit.cluster.played import played


async def hold(
    slots: RelaySlots, number: int, inside: list[int], go: asyncio.Event, host: str = "192.0.2.1"
) -> None:
    async with slots.held(host):
        inside.append(number)
        await go.wait()


@played
async def test_newest_task_comes_first_and_a_cancelled_one_leaves_its_slot() -> None:
    slots, inside, go = RelaySlots(), list[int](), asyncio.Event()
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(hold(slots, number, inside, go)) for number in range(OPENING_MAX + 3)]
    await asyncio.sleep(0)
    assert inside == list(range(OPENING_MAX))
    tasks[-2].cancel()  # while it waits
    tasks[0].cancel()  # its slot goes to the newest one
    await asyncio.sleep(0)
    tasks[-1].cancel()  # the slot has come, and the task does not run yet
    await asyncio.wait(tasks[-2:])
    await asyncio.sleep(0)
    assert inside[OPENING_MAX:] == [OPENING_MAX]
    go.set()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [each is None for each in ended].count(True) == OPENING_MAX
    async with asyncio.TaskGroup() as group:  # all slots are free again
        for number in range(OPENING_MAX):
            group.create_task(hold(slots, number, inside, go))
    assert len(inside) == 2 * OPENING_MAX + 1


@played
async def test_addresses_take_turns() -> None:
    """One address with many connections must not keep the clients of others waiting."""
    slots, inside, go = RelaySlots(), list[int](), asyncio.Event()
    loop = asyncio.get_running_loop()
    holders = [loop.create_task(hold(slots, -1, [], go)) for _ in range(OPENING_MAX)]
    await asyncio.sleep(0)
    first = loop.create_task(hold(slots, 1_000, inside, go, "192.0.2.7"))
    flood = [loop.create_task(hold(slots, number, inside, go)) for number in range(100)]
    second = loop.create_task(hold(slots, 2_000, inside, go, "2001:db8::7"))
    await asyncio.sleep(0)
    for holder in holders[:4]:
        holder.cancel()
    await asyncio.wait(holders[:4])
    await asyncio.sleep(0)
    assert inside == [1_000, 99, 2_000, 98]
    go.set()
    await asyncio.gather(first, second, *flood, *holders[4:])
    assert sorted(inside) == [*range(100), 1_000, 2_000]


@played
async def test_a_task_that_is_cancelled_when_a_slot_is_given_makes_no_second_slot() -> None:
    slots, inside, go = RelaySlots(), list[int](), asyncio.Event()
    loop = asyncio.get_running_loop()
    holders = [loop.create_task(hold(slots, -1, [], go)) for _ in range(OPENING_MAX)]
    await asyncio.sleep(0)
    waiting = loop.create_task(hold(slots, -1, inside, go))
    await asyncio.sleep(0)
    holders[0].cancel()  # it gives its slot in the same pass of the loop
    waiting.cancel()
    await asyncio.wait([holders[0], waiting])
    later = [loop.create_task(hold(slots, number, inside, go)) for number in range(2)]
    await asyncio.sleep(0)
    assert inside == [0]
    go.set()
    await asyncio.gather(*later, *holders[1:])
    assert sorted(inside) == [0, 1]
