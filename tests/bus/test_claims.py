"""Claims of messages: of several processes, one handles a message."""

from __future__ import annotations

import asyncio
from pathlib import Path

from leveret.bus import Bus, ClaimState, QueueType, SqliteStore, topic
from leveret.bus.testing.fakes import FakeClock
from tests.bus.nodes import Node
from tests.bus.stage import FAST, Placed, Seen, put, pytestmark_bus

pytestmark = pytestmark_bus


async def test_one_of_many_processes_gets_the_claim(tmp_path: Path) -> None:
    """Each store has a connection of its own, as a process would."""
    stores = [SqliteStore(tmp_path / "claims.db") for _ in range(4)]
    try:
        for message in range(20):
            claims = (
                store.claim(f"m{message}", f"p{number}", 60.0)
                for number, store in enumerate(stores)
            )
            states = sorted(await asyncio.gather(*claims))
            assert states == [ClaimState.CLAIMED, *[ClaimState.HELD] * 3]
    finally:
        for store in stores:
            store.close()


async def test_claim_ends_with_its_lease_a_release_or_the_finish(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SqliteStore(tmp_path / "claims.db", clock=clock)
    assert await store.claim("m", "dead", 60.0) is ClaimState.CLAIMED
    assert await store.claim("m", "second", 60.0) is ClaimState.HELD
    clock.at_ms += 60_000
    assert await store.claim("m", "second", 60.0) is ClaimState.CLAIMED
    await store.release("m", "dead")
    assert await store.claim("m", "other", 60.0) is ClaimState.HELD, "not its claim"
    await store.release("m", "second")
    assert await store.claim("m", "other", 60.0) is ClaimState.CLAIMED
    await store.finish("m", "other")
    clock.at_ms += 120_000
    assert await store.claim("m", "dead", 60.0) is ClaimState.DONE
    store.close()


async def test_duplicates_in_two_services_are_handled_once(
    node: Node, prefix: str, tmp_path: Path
) -> None:
    layout = topic.layout(f"{prefix}.events", queue_type=QueueType.CLASSIC)
    seen: Seen[int] = Seen()
    stores = [SqliteStore(tmp_path / "claims.db") for _ in range(2)]
    buses = [Bus(node.url, layout, settings=FAST, idempotency=store) for store in stores]

    async def note(event: Placed) -> None:
        await seen.add(event.number)

    for bus in buses:
        bus.on(Placed)(note)
    async with buses[0], buses[1]:
        for number in range(20):
            for _ in range(2):
                body = b'{"number":%d}' % number
                await put(node.url, "", layout.queue, body, type="Placed", message_id=str(number))
        await put(node.url, "", layout.queue, b'{"number":99}', type="Placed", message_id="last")
        await seen.wait_for({*range(20), 99})
    for store in stores:
        store.close()
    assert sorted(seen.all) == [*range(20), 99]
