"""Run rounds: publish, lose the broker, publish on, wait for recovery, and count messages.

The publisher never stops on a failure: what is not confirmed is published again under the same id,
as a program would do that must not lose anything. A round ends when everything that was confirmed
has been handled.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from leveret.bus import Bus, BusSettings, fanout, topic
from leveret.bus.errors import BusError
from leveret.bus.topology import Layout
from tests.bus.nodes import Node
from tools.chaos_bus.ledger import Ledger
from tools.chaos_bus.losses import DESTROYS, LOSSES, Scene
from tools.chaos_bus.proxy import Proxy

AGAIN_WITHIN_S: Final = 10.0  # from the broker being reachable to a new message being handled
ALL_WITHIN_S: Final = 60.0  # a broker holds messages for a connection that ended silently
PUBLISH_S: Final = 5.0  # for one attempt
PUBLISHERS: Final = 8  # at once
RETRY_S: Final = 0.05
POLL_S: Final = 0.01

log = logging.getLogger(__name__)


@dataclass
class Ping:
    """The event that is published."""

    number: int


class Play:
    """A bus that publishes to itself, through a proxy."""

    def __init__(self, scene: Scene, rate: float, ledger: Ledger) -> None:
        self._scene = scene
        self._pause_s = PUBLISHERS / rate
        self._next = 0
        self._unconfirmed = 0
        self._may_publish = asyncio.Event()
        scene.on_deleted = self._may_publish.set
        self._ledger = ledger
        self.bus = Bus(scene.proxy.url, scene.layout, settings=BusSettings(stop_deadline_s=5.0))
        self.bus.on(Ping)(self._handle)

    async def _handle(self, event: Ping) -> None:
        self._ledger.handled[event.number] += 1

    async def publish_on(self) -> None:
        """Publish while that is allowed, each message until it is confirmed."""
        while True:
            await self._may_publish.wait()
            self._next += 1
            self._unconfirmed += 1
            await self._publish(self._next)
            self._unconfirmed -= 1
            await asyncio.sleep(self._pause_s)

    async def _publish(self, number: int) -> None:
        ledger = self._ledger
        while True:
            try:
                await self.bus.publish(
                    Ping(number),
                    message_id=str(number),
                    mandatory=True,
                    routing_key=self._scene.layout.queue,
                    timeout_s=PUBLISH_S,
                )
            except BusError as fault:
                log.debug("message %s: %s", number, fault)
                await asyncio.sleep(RETRY_S)
            else:
                ledger.confirmed.add(number)
                return

    async def round(self, name: str, rng: Random) -> None:
        """One loss, from a steady state to a steady state."""
        self._may_publish.set()
        await self._handled_since(self._next, ALL_WITHIN_S)
        if name in DESTROYS:
            await self._drain()
        await asyncio.sleep(rng.random() * 0.2)  # a random moment between two messages
        consumes = self._scene.proxy.consumes
        await LOSSES[name](self._scene)
        await self._recovered(consumes)
        await self._drain()

    async def _recovered(self, consumes: int) -> None:
        """Wait until the bus is healthy and has handled a message published after the loss."""
        loop = asyncio.get_running_loop()
        reachable_s = loop.time()
        proxy = self._scene.proxy
        await _until(lambda: proxy.consumes > consumes, ALL_WITHIN_S)
        await self._handled_since(self._next, ALL_WITHIN_S)
        while not (await self.bus.health()).is_consuming:
            assert loop.time() - reachable_s < ALL_WITHIN_S, "it is not healthy again"
            await asyncio.sleep(POLL_S)
        took_s = loop.time() - reachable_s
        self._ledger.recoveries_s.append(took_s)
        self._ledger.late += took_s > AGAIN_WITHIN_S

    async def _handled_since(self, number: int, within_s: float) -> None:
        """Wait until a message published after this one was handled."""
        handled = self._ledger.handled
        await _until(lambda: any(each in handled for each in self._after(number)), within_s)

    def _after(self, number: int) -> range:
        return range(number + 1, self._next + 1)

    async def _drain(self) -> None:
        """Stop publishing and wait until all is handled. Raise TimeoutError if some are lost."""
        self._may_publish.clear()
        ledger = self._ledger
        await _until(lambda: not self._unconfirmed and not ledger.lost, ALL_WITHIN_S)


async def _until(holds: Callable[[], bool], within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - the condition changes in many places
            await asyncio.sleep(POLL_S)


def layout_of(topology: str, name: str) -> Layout:
    """Return the layout of a service whose prefix is the first word of the loss.

    Another service of its prefix would take what is published while the queue is gone.
    """
    service = f"{name}-chaos"
    return fanout.layout(service) if topology == "fanout" else topic.layout(service)


@contextlib.asynccontextmanager
async def playing(node: Node, layout: Layout, rate: float, ledger: Ledger) -> AsyncIterator[Play]:
    """Run a bus that publishes."""
    proxy = Proxy(node.port)
    await proxy.start()
    try:
        play = Play(Scene(node, proxy, layout), rate, ledger)
        async with play.bus:
            loop = asyncio.get_running_loop()
            publishing = {loop.create_task(play.publish_on()) for _ in range(PUBLISHERS)}
            try:
                yield play
            finally:
                for task in publishing:
                    task.cancel()
                await asyncio.wait(publishing)
    finally:
        await proxy.stop()
