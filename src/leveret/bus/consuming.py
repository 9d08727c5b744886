"""Consume the queue of a service: handle each delivery, and let the `Settler` settle it.

Each delivery is handled in a task of its own; the prefetch count bounds their number. A message
that came too early waits in a queue of the broker. A message that came back without an answer is
handled again only if it may (`returned_message`), and never twice in this process (`attempts`).
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, Final

import aiormq.abc

from leveret.bus import headers as bus_headers
from leveret.bus.attempts import Attempt, Attempts
from leveret.bus.connections.broker_addresses import BrokerAddresses
from leveret.bus.connections.content_frames import ContentReceiver, DeliveredContent
from leveret.bus.connections.declare import declare_topology
from leveret.bus.connections.recovering_connection import RecoveringConnection
from leveret.bus.consuming_session import ConsumingSession
from leveret.bus.delivery import Delivery
from leveret.bus.dispatch import Dispatcher
from leveret.bus.errors import TopologyMismatchError
from leveret.bus.handler_result import TOO_EARLY, Action, Decision, HandlerResult, decide
from leveret.bus.loop_watch import LoopWatch
from leveret.bus.metrics import BusMetrics
from leveret.bus.pausing import pause
from leveret.bus.publishing import Publisher
from leveret.bus.received_message import ReceivedMessage, receive
from leveret.bus.retry_policy import Backoff
from leveret.bus.returned_message import maybe_decide
from leveret.bus.running_handlers import HandlerThreads
from leveret.bus.settings import BusSettings
from leveret.bus.settling import SESSION_ERRORS, Settler
from leveret.bus.topology import Layout, Topology, wait_step_ms
from leveret.clock import Clock

WAIT_MS_MAX: Final = bus_headers.COUNT_MAX  # a message that is due later is not from a bus
CANCEL_TIMEOUT_S: Final = 5.0  # for handlers that clean up after the stop deadline

_REQUEUED: Final = Decision(Action.REQUEUE)
_log: Final = logging.getLogger(__name__)


class Consumer:
    """Consumes one queue over a connection that recovers."""

    def __init__(
        self,
        addresses: BrokerAddresses,
        name: str,
        layout: Layout,
        dispatcher: Dispatcher,
        publisher: Publisher,
        settings: BusSettings,
        clock: Clock,
        rng: Random,
        metrics: BusMetrics,
    ) -> None:
        self._metrics = metrics
        self._addresses = addresses
        self._name = name
        self._layout = layout
        self._dispatcher = dispatcher
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._pool = ThreadPoolExecutor(settings.threads_max, thread_name_prefix="leveret-bus")
        self._threads = HandlerThreads(self._pool, settings.threads_max)
        self._settler = Settler(layout, publisher, settings, clock, rng)
        self._attempts = Attempts()
        self._watch = LoopWatch(settings.blocked_loop_s, dispatcher.running.name_of)
        self._stopping = asyncio.Event()
        self._working: set[asyncio.Task[None]] = set()
        backoff = Backoff(rng, settings.backoff_s_min, settings.backoff_s_max)
        self.connection = RecoveringConnection(name, self._open, backoff, settings.probe_interval_s)

    def start(self) -> None:
        """Begin to connect, and to watch the event loop."""
        self.connection.start()
        self._watch.start()

    async def _open(self) -> ConsumingSession:
        connection = await self._addresses.open(self._name, self._settings)
        try:
            await declare_topology(connection, self._settler.layout.consuming)
            channel = await connection.channel()
            tag = f"{self._layout.service}-{self._rng.getrandbits(64):016x}"
            now_ms = self._clock.now_ms()
            session = ConsumingSession(connection, channel, now_ms, self._layout, tag)
            await self._consume_returned(session)  # first, so that it is known to `_decide`
            await self._consume(session)
            return session
        except BaseException:
            await connection.close()
            raise

    async def _consume(self, session: ConsumingSession) -> None:
        channel = session.channel
        channel.on_consumer_cancel_callbacks.add(
            lambda frame: session.mark_lost("the broker cancelled the consumer")
        )
        await session.connection.call(channel.basic_qos(prefetch_count=self._settings.prefetch))
        self._receive(session, channel, is_alone=False)
        consume = channel.basic_consume(
            session.queue, _unexpected, consumer_tag=session.consumer_tag
        )
        await session.connection.call(consume)

    async def _consume_returned(self, session: ConsumingSession) -> None:
        """Consume messages that came back without an answer, one at a time."""
        queue = self._layout.returned
        try:
            await declare_topology(session.connection, Topology(queues=(queue,)))
        except TopologyMismatchError as fault:
            _log.info("messages that come back are not set aside: %s", fault)
            return
        channel = await session.connection.channel()
        session.add_returned(channel)
        await session.connection.call(channel.basic_qos(prefetch_count=1))
        self._receive(session, channel, is_alone=True)
        consume = channel.basic_consume(queue.name, _unexpected, consumer_tag=session.returned_tag)
        await session.connection.call(consume)

    def _receive(
        self, session: ConsumingSession, channel: aiormq.abc.AbstractChannel, *, is_alone: bool
    ) -> None:
        """Handle each delivery of a channel in a task of its own."""
        loop = asyncio.get_running_loop()

        def on_delivered(content: DeliveredContent) -> None:
            message = receive(content, channel, session.queue, is_alone=is_alone)
            task = loop.create_task(self._work(session, message), name="delivery")
            self._working.add(task)
            task.add_done_callback(self._working.discard)

        session.connection.receive(channel, ContentReceiver(on_delivered=on_delivered))

    async def _work(self, session: ConsumingSession, message: ReceivedMessage) -> None:
        """Handle and settle one delivery."""
        try:
            earlier = await self._attempts.maybe_earlier(message)
            if earlier is None or earlier.decision is None:
                await self._attempt(session, message, is_own=earlier is not None)
            else:
                await self._settle_again(session, message, earlier)
        except asyncio.CancelledError:
            # The session is lost, or the stop deadline has passed: another consumer gets it.
            self._settler.requeue(session, message)
            raise
        except Exception:
            text = "handling message %s of queue %s failed: it is requeued"
            _log.exception(text, message.delivery.message_id, message.delivery.queue)
            await pause(self._stopping, self._settings.backoff_s_max)
            self._settler.requeue(session, message)

    async def _settle_again(
        self, session: ConsumingSession, message: ReceivedMessage, earlier: Attempt
    ) -> None:
        """Settle a message that came back after its handler had finished in this process."""
        _log.info("message %s came back and is not handled again", message.delivery.message_id)
        if earlier.is_done:
            self._settler.ack(session, message)
        else:
            await self._settler.settle(session, message, earlier)

    async def _attempt(
        self, session: ConsumingSession, message: ReceivedMessage, *, is_own: bool
    ) -> None:
        if message.is_alone:
            await self._attempts.wait_for(message.delivery.message_id)
        attempt = self._attempts.begin(message)
        try:
            decision, result = await self._decide(session, message, is_own=is_own)
            if decision is _REQUEUED:
                self._settler.requeue(session, message)
                return
            attempt.decision, attempt.result = decision, result
            await self._settler.settle(session, message, attempt)
        finally:
            self._attempts.end(message, attempt)

    async def _decide(
        self, session: ConsumingSession, message: ReceivedMessage, *, is_own: bool
    ) -> tuple[Decision, HandlerResult]:
        delivery = message.delivery
        if step_ms := await self._wait_until_due(delivery):
            return Decision(Action.WAIT, step_ms), TOO_EARLY
        policy = self._dispatcher.policy(delivery)
        if delivery.is_redelivered:
            may_set_aside = session.returned_channel is not None
            limit = policy.retries_max
            returned = maybe_decide(message, limit, is_own=is_own, may_set_aside=may_set_aside)
            if returned is not None:
                return returned
        # A message that is alone has a place of its own: waiting for one would be a risk to it.
        async with contextlib.nullcontext() if message.is_alone else session.slot(self._slots):
            if self._stopping.is_set() or session.is_lost:
                return _REQUEUED, TOO_EARLY
            began_s = time.monotonic()
            result = await self._dispatcher.handle(delivery, self._threads)
        retries, early_s = delivery.retry_count, self._settings.early_wait_s
        decision = decide(result, retries, self._layout, policy, early_s)
        event = self._dispatcher.label(delivery)
        self._metrics.on_handled(event, decision.action, time.monotonic() - began_s)
        return decision, result

    async def _wait_until_due(self, delivery: Delivery) -> int:
        """Hold a message that is due within a second. Return the step to wait for, 0 if it is due.

        The message waits for longer steps in a queue of the broker.
        """
        due_s = delivery.due_s
        while due_s is not None and not self._stopping.is_set():
            wait_ms = round(due_s * 1000) - self._clock.now_ms()
            if not 0 < wait_ms <= WAIT_MS_MAX:
                break
            if step_ms := wait_step_ms(wait_ms):
                return step_ms
            await pause(self._stopping, wait_ms / 1000)
        return 0

    async def stop(self, deadline_s: float) -> None:
        """Cancel the consumer, wait for running handlers, and requeue the rest."""
        self._stopping.set()
        session = self.connection.stop_reconnecting()
        if session is not None:
            cancel = session.channel.basic_cancel(session.consumer_tag)
            await self._cancel(session, cancel)
            if session.returned_channel is not None:
                cancel = session.returned_channel.basic_cancel(session.returned_tag)
                await self._cancel(session, cancel)
        if self._working:
            await asyncio.wait(set(self._working), timeout=deadline_s)
        for task in set(self._working):
            task.cancel()
        if self._working:
            _, running = await asyncio.wait(set(self._working), timeout=CANCEL_TIMEOUT_S)
            if running:
                _log.error("%d handlers still run after they were cancelled", len(running))
        self._watch.stop()
        await self.connection.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _cancel(self, session: ConsumingSession, cancel: Coroutine[Any, Any, Any]) -> None:
        """Cancel a consumer. On a lost session there is none."""
        try:
            await session.connection.call(cancel)
        except SESSION_ERRORS as fault:
            session.mark_lost(str(fault))


async def _unexpected(message: aiormq.abc.DeliveredMessage) -> None:
    raise AssertionError(f"the client library got delivery {message.delivery_tag}")
