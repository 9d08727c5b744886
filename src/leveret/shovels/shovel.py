"""One shovel: take messages from its source, pass them to its target, settle them at the source.

    ack-mode      settled at the source            a message is lost if
    on-confirm    when the target confirmed it     never; after a fault some may come twice
    on-publish    when it was sent                 the target fails before it has read it
    no-ack        when it was delivered            anything fails

If an end fails, both are closed and opened again after `reconnect-delay`. Messages that were not
settled are in the source again. An end also fails when the owner of the shovel may no longer use
it.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from leveret.amqp_client.client import Delivery
from leveret.engine.turns.session import Session
from leveret.errors import LeveretError, system_reason
from leveret.shovels.interfaces import ShovelListener, ShovelSource, ShovelTarget
from leveret.shovels.local import LocalSource, LocalTarget
from leveret.shovels.local_node import LocalNode
from leveret.shovels.owner import Owner
from leveret.shovels.property_changes import PropertyChanges
from leveret.shovels.remote import RemoteSource, RemoteTarget
from leveret.shovels.settings import HTTP, NEVER, NO_ACK, ON_PUBLISH, QUEUE_LENGTH, ShovelSettings
from leveret.shovels.status import RUNNING, STARTING, TERMINATED, ShovelStatus
from leveret.shovels.targets import TargetCheck

log = logging.getLogger(__name__)

BATCH: Final = 200  # messages passed on at once
REQUEUE_AFTER_S: Final = 1.0  # before a message that the target refused is requeued


class Shovel(ShovelStatus, ShovelListener):
    """Moves messages between two ends until it is cancelled, or `remaining` is 0."""

    kind = "shovel"  # in log lines

    def __init__(
        self,
        name: str,
        vhost: str,
        settings: ShovelSettings,
        owner: Owner,
        node: LocalNode,
        node_name: str,
        now_ms: Callable[[], int],
        on_state: Callable[[ShovelStatus], None],
    ) -> None:
        if settings.ack_mode == NO_ACK and settings.delete_after != NEVER:
            # Messages delivered beyond the last one must be requeued, so they need acks.
            settings = replace(settings, ack_mode=ON_PUBLISH)
        super().__init__(name, vhost, settings, owner.name, now_ms())
        self._owner = owner
        self._node = node
        self._now_ms = now_ms
        self._on_state = on_state
        self._changes = PropertyChanges(settings, name, vhost, node_name)
        self._attempt = 0
        self._reset()

    def _reset(self) -> None:
        self._source: ShovelSource | None = None
        self._ends: list[ShovelSource | ShovelTarget] = []
        self._inbox: list[Delivery] = []
        self._wake = asyncio.Event()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Tags to settle at the source.
        self._acked: list[int] = []
        self._requeued: list[int] = []
        self._rejected: list[int] = []
        self._is_settling = False
        self._unsettled = 0  # passed on, without an answer of the target yet

    @property
    def session(self) -> Session | None:
        return self._source.session if self._source is not None else None

    async def run(self) -> None:
        while True:
            try:
                await self._run_once()
                return
            except (LeveretError, OSError, TimeoutError) as fault:
                self._set_state(TERMINATED, system_reason(fault))
                where = f"{self.kind} '{self.name}' in vhost '{self.vhost}'"
                log.warning("%s: %s", where, self.reason)
            if self.settings.reconnect_s == 0:
                return
            await asyncio.sleep(self.settings.reconnect_s)
            self._set_state(STARTING, None)

    def _set_state(self, state: str, reason: str | None) -> None:
        self.state = state
        self.reason = reason
        self.since_ms = self._now_ms()
        self._on_state(self)

    async def _run_once(self) -> None:
        """Open both ends and move messages until one fails, or `remaining` is 0."""
        self._reset()
        source, target = self._make_ends()
        self._ends = [source, target]
        self._attempt += 1
        moving: asyncio.Task[None] | None = None
        try:
            await target.open(self)
            await source.open(self)
            self._source = source
            self._begin_moving(source)
            moving = asyncio.get_running_loop().create_task(self._move(source, target))
            await asyncio.wait({moving, self._lost}, return_when=asyncio.FIRST_COMPLETED)
            if self._lost.done():
                self._lost.result()
            moving.result()
        finally:
            if moving is not None:
                moving.cancel()
                await asyncio.wait({moving})
            if self._lost.done() and not self._lost.cancelled():
                self._lost.exception()  # read, so that asyncio does not log it
            self._settle()
            await source.close()
            await target.close()

    def _begin_moving(self, source: ShovelSource) -> None:
        self._set_state(RUNNING, None)
        if self.remaining is None and self.settings.delete_after != NEVER:
            after = self.settings.delete_after
            self.remaining = source.length if after == QUEUE_LENGTH else int(after)

    def _make_ends(self) -> tuple[ShovelSource, ShovelTarget]:
        settings = self.settings
        name = f"shovel {self.name}"
        uri = settings.src_uris[self._attempt % len(settings.src_uris)]
        check = TargetCheck(self._node.targets, self._owner)
        source: ShovelSource = RemoteSource(settings, uri, name, check)
        if not uri.host:
            source = LocalSource(self._node, self._owner, settings, uri.vhost, name)
        if settings.dest_protocol == HTTP:
            # Imported here because few nodes need an HTTP client.
            from leveret.shovels.webhook import WebhookTarget

            address = settings.http_uris[self._attempt % len(settings.http_uris)]
            return source, WebhookTarget(settings, address, check)
        uri = settings.dest_uris[self._attempt % len(settings.dest_uris)]
        if not uri.host:
            return source, LocalTarget(self._node, self._owner, settings, uri.vhost, name)
        return source, RemoteTarget(settings, uri, name, check)

    async def _move(self, source: ShovelSource, target: ShovelTarget) -> None:
        while not self._is_finished():
            if not self._inbox or self._allowed() == 0:
                await self._wake.wait()
                self._wake.clear()
            batch = self._inbox[: min(BATCH, self._allowed())]
            del self._inbox[: len(batch)]
            if batch and source.session is not None:
                # The leader of a cluster shows other systems only what the cluster keeps.
                await self._node.tellable()
            if self._lost.done():
                return  # the caller raises the fault; nothing is passed on after it
            if batch:
                self._unsettled += len(batch)
                await target.send([self._changed(delivery) for delivery in batch])
                await asyncio.sleep(0)
            if not self._inbox:
                source.request_more()

    def _changed(self, delivery: Delivery) -> Delivery:
        header = self._changes.apply(delivery.header, len(delivery.body), self._now_ms())
        return delivery if header is delivery.header else replace(delivery, header=header)

    def _allowed(self) -> int:
        """Return how many messages may be passed on now."""
        return BATCH if self.remaining is None else self.remaining - self._unsettled

    def _is_finished(self) -> bool:
        return self.remaining is not None and self.remaining <= 0 and self._unsettled == 0

    def on_delivery(self, delivery: Delivery) -> None:
        self._inbox.append(delivery)
        self._wake.set()

    def on_accepted(self, tag: int) -> None:
        self.moved += 1
        self._unsettled -= 1
        if self.remaining is not None:
            self.remaining -= 1
        self._acked.append(tag)
        self._settle_soon()

    def on_refused(self, tag: int, *, retry: bool) -> None:
        loop = asyncio.get_running_loop()
        if retry:
            loop.call_later(REQUEUE_AFTER_S, self._requeue, self._requeued, tag)
        else:
            self._unsettled -= 1
            if self.remaining is not None:
                self.remaining -= 1
            self._rejected.append(tag)
            self._settle_soon()

    def _requeue(self, requeued: list[int], tag: int) -> None:
        """Let the source deliver a message again, because the target may accept it now."""
        if requeued is self._requeued:  # otherwise the ends were opened again meanwhile
            self._unsettled -= 1
            requeued.append(tag)
            self._settle_soon()

    def recheck(self) -> None:
        try:
            for end in self._ends:
                end.recheck()
        except LeveretError as fault:
            self.on_lost(fault)

    def on_lost(self, fault: Exception) -> None:
        if not self._lost.done():
            self._lost.set_exception(fault)

    def _settle_soon(self) -> None:
        self._wake.set()
        if not self._is_settling:
            self._is_settling = True
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        """Settle messages at the source."""
        self._is_settling = False
        acked, requeued, rejected = self._acked, self._requeued[:], self._rejected
        self._acked, self._rejected = [], []
        self._requeued.clear()
        if self._source is not None and self.settings.ack_mode != NO_ACK:
            if acked or requeued or rejected:
                self._source.settle(acked, requeued, rejected)
