"""Publish the messages of an outbox, and remove each after its confirm.

Several processes may have a relay for the same outbox. The relay that holds the lease publishes,
and the others wait. It reads the outbox from its first message to its last, again and again.
Messages with the same key are published one after the other. Messages without a key, or with
different keys, are published concurrently. A message that the broker refuses, or that cannot be
read, stays in the outbox, and later messages with its key wait for it. The broker closes the
channel for a message that names no exchange, and all messages on their way fail with it. They are
then published one by one, until those that the broker takes are gone.

Delivery is at least once. A message is published again under the same id if the relay dies between
its confirm and its removal. If a relay is frozen for longer than its lease, another relay may
publish the same messages.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from leveret.bus.errors import (
    BusError,
    DecodeError,
    EncodeError,
    NackedError,
    PublishRefusedError,
    TooLargeError,
    UnroutableError,
)
from leveret.bus.outbox import Outbox, OutboxMessage
from leveret.bus.outgoing_message import OutgoingMessage
from leveret.bus.pausing import pause
from leveret.bus.settings import BusSettings

BATCH: Final = 200  # messages that are read at once
LEASE_S: Final = 60.0
# Errors that concern one message. After any other error the relay stops reading and tries later.
_OF_MESSAGE: Final = (
    DecodeError,
    EncodeError,
    NackedError,
    PublishRefusedError,
    TooLargeError,
    UnroutableError,
)
_log: Final = logging.getLogger(__name__)

Publish = Callable[[OutgoingMessage, float], Awaitable[None]]  # with a timeout in seconds


class OutboxRelay:
    """Publishes the messages of an outbox, from `start` to `stop`."""

    def __init__(self, outbox: Outbox, publish: Publish, settings: BusSettings) -> None:
        self._outbox = outbox
        self._publish = publish
        self._settings = settings
        self._owner = secrets.token_hex(16)
        self._lease_end_s = 0.0  # event loop time; counted from before the claim
        # Positions of messages that may be the one for which the broker closed the channel.
        self._suspects: set[int] = set()
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to publish."""
        assert self._running is None
        self._running = asyncio.get_running_loop().create_task(
            self._relay_until_stopped(), name="outbox relay"
        )

    async def stop(self, deadline_s: float) -> None:
        """Finish the messages that are being published, within the deadline."""
        self._stopping.set()
        if self._running is not None:
            await asyncio.wait({self._running}, timeout=deadline_s)
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _relay_until_stopped(self) -> None:
        while not self._stopping.is_set():
            try:
                is_clean = not await self._has_lease() or await self._sweep()
            except Exception as fault:
                _log.exception("the outbox relay failed and tries again: %r", fault)
                is_clean = False
            settings = self._settings
            pause_s = settings.outbox_poll_s if is_clean else settings.backoff_s_max
            await pause(self._stopping, pause_s)
        try:
            await self._outbox.release(self._owner)
        except Exception as fault:
            text = "the lease of the outbox was not released and ends after %g s: %r"
            _log.warning(text, LEASE_S, fault)

    async def _has_lease(self) -> bool:
        """Return True if this relay may publish. Renew the lease when half of it is over."""
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        if asked_s < self._lease_end_s - LEASE_S / 2:
            return True
        is_owner = await self._outbox.claim(self._owner, LEASE_S)
        self._lease_end_s = asked_s + LEASE_S if is_owner else 0.0
        return is_owner

    async def _sweep(self) -> bool:
        """Publish all messages once, in order. Return True if none failed."""
        after = 0
        failed: set[str] = set()  # keys
        faults: list[BusError] = []
        while not self._stopping.is_set() and await self._has_lease():
            found = await self._outbox.read(after, BATCH)
            if not found:
                break
            after = found[-1].position
            await self._relay([each for each in found if each.key not in failed], failed, faults)
            if any(not isinstance(each, _OF_MESSAGE) for each in faults):
                break
        if faults:
            text = "%d messages were not published and stay in the outbox; the first error: %s"
            _log.error(text, len(faults), faults[0])
        return not faults

    async def _relay(
        self, messages: list[OutboxMessage], failed: set[str], faults: list[BusError]
    ) -> None:
        """Publish some messages, and remove those that are confirmed."""
        by_key: dict[str | int, list[OutboxMessage]] = {}
        for each in messages:
            by_key.setdefault(each.key or each.position, []).append(each)
        alone: list[list[OutboxMessage]] = []
        done: list[int] = []
        try:
            async with asyncio.TaskGroup() as group:
                for some in by_key.values():
                    if some[0].position in self._suspects:
                        alone.append(some)
                    else:
                        group.create_task(self._relay_in_order(some, done, failed, faults))
            for some in alone:  # a closed channel then concerns no other message
                await self._relay_in_order(some, done, failed, faults)
        finally:
            if done:
                await asyncio.shield(self._outbox.remove(done))

    async def _relay_in_order(
        self,
        messages: list[OutboxMessage],
        done: list[int],
        failed: set[str],
        faults: list[BusError],
    ) -> None:
        loop = asyncio.get_running_loop()
        for each in messages:
            left_s = self._lease_end_s - loop.time()
            if self._stopping.is_set() or left_s <= 0:
                return
            try:
                if isinstance(each.message, DecodeError):
                    raise each.message
                await self._publish(each.message, min(left_s, self._settings.publish_timeout_s))
            except BusError as fault:
                faults.append(fault)
                if isinstance(fault, PublishRefusedError):
                    self._suspects.add(each.position)
                if each.key:
                    failed.add(each.key)
                return
            done.append(each.position)
            self._suspects.discard(each.position)
