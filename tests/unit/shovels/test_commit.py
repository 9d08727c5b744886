"""A shovel shows other systems only messages that the cluster has committed."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from leveret.amqp_client.client import Delivery
from leveret.engine.turns.session import Session
from leveret.shovels.interfaces import ShovelListener, ShovelSource, ShovelTarget
from leveret.shovels.local_node import LocalNode
from leveret.shovels.owner import Owner
from leveret.shovels.settings import ShovelSettings, parse_settings
from leveret.shovels.shovel import Shovel
from leveret.wire.properties import Properties, encode_header

WITHIN_S = 60.0


class _Source(ShovelSource):
    """A queue of this node with one message."""

    session = cast(Session, object())

    async def open(self, listener: ShovelListener) -> None:
        listener.on_delivery(Delivery(1, "", "q", False, encode_header(Properties(), 4), b"body"))

    def settle(
        self, acked: Sequence[int], requeued: Sequence[int], rejected: Sequence[int]
    ) -> None:
        """Do nothing."""

    def request_more(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


class _Target(ShovelTarget):
    def __init__(self) -> None:
        self.sent = asyncio.Event()

    async def open(self, listener: ShovelListener) -> None:
        """Do nothing."""

    async def send(self, deliveries: Sequence[Delivery]) -> None:
        self.sent.set()

    async def close(self) -> None:
        """Do nothing."""


class _Shovel(Shovel):
    def __init__(self, settings: ShovelSettings, node: LocalNode) -> None:
        self.target = _Target()
        owner = cast(Owner, _Named())
        super().__init__("s", "/", settings, owner, node, "node", lambda: 0, lambda _: None)

    def _make_ends(self) -> tuple[ShovelSource, ShovelTarget]:
        return _Source(), self.target


class _Named:
    name = "guest"


def test_shovel_waits_until_its_messages_are_committed() -> None:
    async def run() -> None:
        asked, committed = asyncio.Event(), asyncio.Event()

        async def tellable() -> None:
            asked.set()
            await committed.wait()

        unused = cast(Any, None)
        node = LocalNode(unused, unused, unused, unused, 0, unused, unused, unused, tellable)
        settings = parse_settings(
            {"src-uri": "amqp://", "src-queue": "q", "dest-uri": "amqp://", "dest-queue": "p"}, "/"
        )
        shovel = _Shovel(settings, node)
        running = asyncio.get_running_loop().create_task(shovel.run())
        async with asyncio.timeout(WITHIN_S):
            await asked.wait()
            assert not shovel.target.sent.is_set()
            committed.set()
            await shovel.target.sent.wait()
        running.cancel()
        await asyncio.wait({running})

    asyncio.run(run())
