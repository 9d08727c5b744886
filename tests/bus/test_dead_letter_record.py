"""The record of a dead letter: when it died, and where its event was published."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pamqp.commands import Basic

from leveret.bus import Bus, Delivery, RetryPolicy, topic
from leveret.bus.dead_letters.dead_letter import DeadLetter
from tests.bus.nodes import Node
from tests.bus.stage import FAST, Placed, Seen, pytestmark_bus, take

pytestmark = pytestmark_bus
FIRST, LAST = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "died"),
    [
        ({"x-died-at": LAST, "x-death": [{"count": 9, "time": FIRST}]}, LAST),
        ({"x-death": [{"count": 9, "time": FIRST}]}, None),  # the time of the first of nine
        ({"x-death": [{"count": 1, "time": LAST}, {"count": 1, "time": FIRST}]}, LAST),
        ({"x-death": "nothing"}, FIRST),
        ({}, FIRST),
    ],
)
def test_age_of_a_letter_is_that_of_its_last_death(
    headers: dict[str, Any], died: datetime | None
) -> None:
    letter = DeadLetter(1, "", "", b"", Basic.Properties(headers=headers, timestamp=FIRST))
    assert letter.died_s == (None if died is None else died.timestamp())


@pytest.mark.parametrize("delay_s", [0.03, 0.06])  # by a reject, and by a copy
async def test_handler_sees_the_first_publish_after_each_retry(
    node: Node, prefix: str, delay_s: float
) -> None:
    layout = topic.layout(
        f"{prefix}.events", exchange=f"{prefix}.x", routing_keys=("a.*",), retry_delay_s=0.03
    )
    bus = Bus(node.url, layout, settings=FAST)
    seen: Seen[tuple[str, str]] = Seen()

    @bus.on(Placed, retry=RetryPolicy(2, (delay_s,)))
    async def fail(event: Placed, delivery: Delivery) -> int:
        await seen.add((delivery.exchange, delivery.routing_key))
        return 500

    async with bus:
        await bus.publish(Placed(1), routing_key="a.b")
        letter = await take(node.url, layout.dlq)
    assert seen.all == [(f"{prefix}.x", "a.b")] * 3
    assert letter.headers["x-original-exchange"] == f"{prefix}.x"
    assert letter.headers["x-original-routing-key"] == "a.b"
