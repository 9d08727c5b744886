"""Settle deliveries: ack, reject, and copy to delay queues, dead letters or the own queue.

A delivery is acked only after its handler succeeded, or after a copy of it was confirmed elsewhere.
A crash in between makes a duplicate, never a loss. A copy is published once and its confirm is
awaited as long as the session lasts: a second copy would be a second message if a blocked broker
takes both later.
"""

import asyncio
import logging
from dataclasses import replace
from random import Random
from typing import Final

import aiormq

from leveret.bus import headers as bus_headers
from leveret.bus.attempts import Attempt
from leveret.bus.connections.connection import NoAnswerError
from leveret.bus.connections.content_frames import encode_ack, encode_nack
from leveret.bus.connections.declare import declare_topology
from leveret.bus.consuming_session import ConsumingSession
from leveret.bus.errors import PublishError, TopologyMismatchError, UnroutableError
from leveret.bus.handler_result import MAX_RETRIES_EXCEEDED, Action, Decision, HandlerResult
from leveret.bus.outgoing_message import copy_of_message
from leveret.bus.publishing import Publisher
from leveret.bus.received_message import ReceivedMessage
from leveret.bus.settings import BusSettings
from leveret.bus.topology import DEFAULT_EXCHANGE, Layout, PublishAddress, Topology
from leveret.clock import Clock

COPY_TIMEOUT_S: Final = 24 * 3600.0  # for the confirm of a copy, while the broker takes none

# These errors mean that the session is lost.
SESSION_ERRORS: Final = (NoAnswerError, aiormq.AMQPError, aiormq.ChannelInvalidStateError)
_COPIES: Final = (
    *(Action.DELAY, Action.WAIT, Action.RENEW, Action.SET_ASIDE),
    Action.DEAD_LETTER,
)
_log: Final = logging.getLogger(__name__)


class Settler:
    """Settles the deliveries of one consumer."""

    def __init__(
        self, layout: Layout, publisher: Publisher, settings: BusSettings, clock: Clock, rng: Random
    ) -> None:
        self.layout = layout  # with a queue for each delay that was used
        self._publisher = publisher
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._declaring = asyncio.Lock()
        self._refused_ms: set[int] = set()  # delays whose queue this user may not declare

    async def settle(
        self, session: ConsumingSession, message: ReceivedMessage, attempt: Attempt
    ) -> None:
        """Do what the decision of an attempt says."""
        decision = attempt.decision
        assert decision is not None
        if decision.action is Action.REJECT and message.is_alone:
            # The broker would count the reject for the queue of returned messages.
            attempt.decision = decision = replace(decision, action=Action.DELAY)
        if decision.action is Action.REJECT:
            await self._retry(session, message)
        elif decision.action is Action.ACK or await self._copy(session, message, attempt):
            self.ack(session, message)
        else:
            await asyncio.sleep(self._settings.backoff_s_max)
            self.requeue(session, message)

    def ack(self, session: ConsumingSession, message: ReceivedMessage) -> None:
        """Tell the broker that the message is done."""
        self._answer(session, message, encode_ack(message.channel.number, message.tag))

    def requeue(self, session: ConsumingSession, message: ReceivedMessage) -> None:
        """Give the message back to its queue."""
        nack = encode_nack(message.channel.number, message.tag, requeue=True)
        self._answer(session, message, nack)

    async def _retry(self, session: ConsumingSession, message: ReceivedMessage) -> None:
        """Reject the delivery if the broker has the queues that bring it back."""
        try:
            await session.require_retry_path()
        except SESSION_ERRORS as fault:
            # The delivery stays unsettled, so it comes again when the topology is complete.
            session.mark_lost(str(fault))
            return
        nack = encode_nack(message.channel.number, message.tag, requeue=False)
        self._answer(session, message, nack)

    def _answer(self, session: ConsumingSession, message: ReceivedMessage, frame: bytes) -> None:
        """Send an ack or nack, once. If the channel is closed, the broker has requeued it."""
        if not message.is_settled:
            message.is_settled = True
            if not message.channel.is_closed:
                session.connection.send(frame)

    async def _copy(
        self, session: ConsumingSession, message: ReceivedMessage, attempt: Attempt
    ) -> bool:
        """Publish the copy that a decision asks for. Return True if it is confirmed."""
        if session.is_lost:
            # The broker delivers the message again, so a copy would be a duplicate.
            return False
        decision, result = attempt.decision, attempt.result
        assert decision is not None and result is not None and decision.action in _COPIES
        try:
            if decision.action is Action.DEAD_LETTER:
                await self._copy_to_dead_letters(message, decision, result)
            else:
                await self._copy_to_queue(session, message, decision)
        except PublishError as fault:
            _log.error("message %s stays in its queue: %s", message.delivery.message_id, fault)
            if isinstance(fault, UnroutableError):
                session.mark_lost("a queue of the topology is missing")
            return False
        attempt.is_copied = True
        return True

    async def _copy_to_queue(
        self, session: ConsumingSession, message: ReceivedMessage, decision: Decision
    ) -> None:
        """Publish a copy that comes back to the own queue: after a delay, or at once."""
        delivery = message.delivery
        count = delivery.retry_count + (decision.action is Action.DELAY)
        count += decision.unanswered
        continues = bus_headers.continues_deaths(session.connection.server_properties)
        headers = bus_headers.copy_headers(
            message.headers, session.queue, count, continues=continues
        )
        copies = bus_headers.count_of(message.headers.get(bus_headers.COPY_COUNT))
        headers[bus_headers.COPY_COUNT] = copies + 1
        if decision.jitter_ms:
            later_ms = decision.delay_ms + self._rng.randrange(decision.jitter_ms + 1)
            headers[bus_headers.RETRY_AT_MS] = self._clock.now_ms() + later_ms
        if decision.unanswered:
            headers[bus_headers.UNANSWERED_COUNT] = message.unanswered + decision.unanswered
        queue = session.queue
        if decision.action is Action.SET_ASIDE and session.returned_channel is not None:
            queue = self.layout.returned.name
        elif decision.delay_ms:
            queue = await self._wait_queue(session, decision.delay_ms)
        await self._publish_copy(message, headers, PublishAddress(DEFAULT_EXCHANGE, queue))

    async def _wait_queue(self, session: ConsumingSession, delay_ms: int) -> str:
        """Return the queue for a delay. Declare it when it is used for the first time."""
        async with self._declaring:
            if delay_ms not in self._refused_ms and not self.layout.has_delay(delay_ms):
                await self._declare(session, delay_ms)
        if delay_ms in self._refused_ms:
            return self.layout.retry_queue  # the message may come back earlier, and waits again
        step = self.layout.step(delay_ms)
        return self.layout.retry_queue if step is None else step.queue

    async def _declare(self, session: ConsumingSession, delay_ms: int) -> None:
        wider = self.layout.with_delays((delay_ms,))
        known = self.layout.consuming.queues
        added = tuple(each for each in wider.consuming.queues if each not in known)
        try:
            await declare_topology(session.connection, Topology(queues=added))
        except TopologyMismatchError as fault:
            _log.warning("messages wait in %s instead: %s", self.layout.retry_queue, fault)
            self._refused_ms.add(delay_ms)
        else:
            self.layout = wider

    async def _copy_to_dead_letters(
        self, message: ReceivedMessage, decision: Decision, result: HandlerResult
    ) -> None:
        delivery = message.delivery
        count = delivery.retry_count
        headers = bus_headers.dead_letter_headers(
            message.headers,
            delivery.queue,
            count,
            result.status_code,
            result.error,
            self._clock.now_ms(),
        )
        if self.layout.counts_in_header:
            headers[bus_headers.RETRY_COUNT] = count
        await self._publish_copy(message, headers, self.layout.dead_letters)
        _log.error(
            "%s: message %s of %s is in %s after %d retries; status %s, error %s",
            MAX_RETRIES_EXCEEDED if decision.is_exhausted else "a permanent fault",
            delivery.message_id,
            delivery.queue,
            self.layout.dlq,
            count,
            result.status_code,
            result.error,
        )

    async def _publish_copy(
        self, message: ReceivedMessage, headers: bus_headers.Headers, address: PublishAddress
    ) -> None:
        delivery = message.delivery
        headers.setdefault(bus_headers.ORIGINAL_EXCHANGE, delivery.exchange)
        headers.setdefault(bus_headers.ORIGINAL_ROUTING_KEY, delivery.routing_key)
        message_id = delivery.message_id or f"{self._rng.getrandbits(128):032x}"
        copy = copy_of_message(delivery.body, message.properties, headers, address, message_id)
        await self._publisher.publish(copy, COPY_TIMEOUT_S)
