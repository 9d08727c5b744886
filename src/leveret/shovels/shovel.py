"""One shovel: takes from its source, passes on to its target, settles at the source.

    ack-mode      settled at the source       a message is lost when
    on-confirm    when the target has it      never; after a fault some may come twice
    on-publish    when it was sent            the target goes down before it has read
    no-ack        when it was delivered       anything goes down

When an end fails, both are closed, and after `reconnect-delay` everything begins anew. Whatever was
not settled is in the source again.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from leveret.amqp_client.client import Delivery
from leveret.engine.turns.session import Session
from leveret.errors import LeveretError
from leveret.shovels.content import Edits
from leveret.shovels.ends import Carrier, Source, Target
from leveret.shovels.host import ThisNode
from leveret.shovels.local import LocalSource, LocalTarget
from leveret.shovels.remote import RemoteSource, RemoteTarget
from leveret.shovels.settings import HTTP, NEVER, NO_ACK, ON_PUBLISH, QUEUE_LENGTH, ShovelSettings
from leveret.shovels.state import RUNNING, STARTING, TERMINATED, ShovelState

log = logging.getLogger(__name__)

BATCH: Final = 200  # messages that are passed on at once
AGAIN_S: Final = 1.0  # before a message that the target refused is given back to the source


class Shovel(ShovelState, Carrier):
    """Carries between two ends until it is ended, or until it has carried enough."""

    def __init__(
        self,
        name: str,
        vhost: str,
        settings: ShovelSettings,
        node: ThisNode,
        node_name: str,
        now_ms: Callable[[], int],
        on_state: Callable[[ShovelState], None],
    ) -> None:
        if settings.ack_mode == NO_ACK and settings.delete_after != NEVER:
            # What was delivered beyond the last one must be able to go back.
            settings = replace(settings, ack_mode=ON_PUBLISH)
        super().__init__(name, vhost, settings, now_ms())
        self._node = node
        self._now_ms = now_ms
        self._on_state = on_state
        self._edits = Edits(settings, name, vhost, node_name)
        self._attempt = 0
        self._reset()

    def _reset(self) -> None:
        self._source: Source | None = None
        self._inbox: list[Delivery] = []
        self._wake = asyncio.Event()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._done: list[int] = []
        self._again: list[int] = []
        self._never: list[int] = []
        self._is_settling = False
        self._unsettled = 0  # passed on, and not answered by the target

    @property
    def session(self) -> Session | None:
        return self._source.session if self._source is not None else None

    # Running

    async def run(self) -> None:
        while True:
            try:
                await self._carry_once()
                return
            except (LeveretError, OSError, TimeoutError) as fault:
                self._set_state(TERMINATED, str(fault) or "no answer in time")
                log.warning("shovel '%s' in vhost '%s': %s", self.name, self.vhost, self.reason)
            if self.settings.reconnect_s == 0:
                return
            await asyncio.sleep(self.settings.reconnect_s)
            self._set_state(STARTING, None)

    def _set_state(self, state: str, reason: str | None) -> None:
        self.state = state
        self.reason = reason
        self.since_ms = self._now_ms()
        self._on_state(self)

    async def _carry_once(self) -> None:
        """Open both ends and carry until one fails, or until it was enough."""
        self._reset()
        source, target = self._ends()
        self._attempt += 1
        carrying: asyncio.Task[None] | None = None
        try:
            await target.open(self)
            await source.open(self)
            self._source = source
            self._begin(source)
            carrying = asyncio.get_running_loop().create_task(self._carry(source, target))
            await asyncio.wait({carrying, self._lost}, return_when=asyncio.FIRST_COMPLETED)
            if self._lost.done():
                self._lost.result()
            carrying.result()
        finally:
            if carrying is not None:
                carrying.cancel()
                await asyncio.wait({carrying})
            if self._lost.done() and not self._lost.cancelled():
                self._lost.exception()  # it was told, or the node ends: nobody waits for it
            self._settle()
            await source.close()
            await target.close()

    def _begin(self, source: Source) -> None:
        self._set_state(RUNNING, None)
        if self.remaining is None and self.settings.delete_after != NEVER:
            after = self.settings.delete_after
            self.remaining = source.length if after == QUEUE_LENGTH else int(after)

    def _ends(self) -> tuple[Source, Target]:
        settings = self.settings
        name = f"shovel {self.name}"
        uri = settings.src_uris[self._attempt % len(settings.src_uris)]
        source: Source = RemoteSource(settings, uri, name)
        if not uri.host:
            source = LocalSource(self._node, settings, uri.vhost, name)
        if settings.dest_protocol == HTTP:
            # Imported here because few nodes need an HTTP client.
            from leveret.shovels.webhook import WebhookTarget

            return source, WebhookTarget(
                settings, settings.http_uris[self._attempt % len(settings.http_uris)]
            )
        uri = settings.dest_uris[self._attempt % len(settings.dest_uris)]
        if not uri.host:
            return source, LocalTarget(self._node, settings, uri.vhost, name)
        return source, RemoteTarget(settings, uri, name)

    async def _carry(self, source: Source, target: Target) -> None:
        while not self._has_enough():
            if not self._inbox or self._room() == 0:
                await self._wake.wait()
                self._wake.clear()
            batch = self._inbox[: min(BATCH, self._room())]
            del self._inbox[: len(batch)]
            if batch:
                self._unsettled += len(batch)
                await target.send([self._edited(delivery) for delivery in batch])
                await asyncio.sleep(0)
            if not self._inbox:
                source.more()

    def _edited(self, delivery: Delivery) -> Delivery:
        header = self._edits.apply(delivery.header, len(delivery.body), self._now_ms())
        return delivery if header is delivery.header else replace(delivery, header=header)

    def _room(self) -> int:
        """How many messages may still be passed on before it is enough."""
        return BATCH if self.remaining is None else self.remaining - self._unsettled

    def _has_enough(self) -> bool:
        return self.remaining is not None and self.remaining <= 0 and self._unsettled == 0

    # What the ends tell

    def on_delivery(self, delivery: Delivery) -> None:
        self._inbox.append(delivery)
        self._wake.set()

    def on_done(self, tag: int) -> None:
        self.carried += 1
        self._unsettled -= 1
        if self.remaining is not None:
            self.remaining -= 1
        self._done.append(tag)
        self._settle_soon()

    def on_refused(self, tag: int, *, again: bool) -> None:
        loop = asyncio.get_running_loop()
        if again:
            loop.call_later(AGAIN_S, self._give_back, self._again, tag)
        else:
            self._unsettled -= 1
            if self.remaining is not None:
                self.remaining -= 1
            self._never.append(tag)
            self._settle_soon()

    def _give_back(self, again: list[int], tag: int) -> None:
        """The target may take it now: let the source deliver it once more."""
        if again is self._again:  # else the ends were opened anew meanwhile
            self._unsettled -= 1
            again.append(tag)
            self._settle_soon()

    def on_lost(self, fault: Exception) -> None:
        if not self._lost.done():
            self._lost.set_exception(fault)

    def _settle_soon(self) -> None:
        self._wake.set()
        if not self._is_settling:
            self._is_settling = True
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        """Tell the source what became of its messages."""
        self._is_settling = False
        done, again, never = self._done, self._again[:], self._never
        self._done, self._never = [], []
        self._again.clear()
        if self._source is not None and self.settings.ack_mode != NO_ACK:
            if done or again or never:
                self._source.settle(done, again, never)
