"""Consumes a service's queue and settles every delivery, in one place.

A delivery is acked only when its handler succeeded, or when a copy of it is confirmed elsewhere: in
the dead letters, or in the queue of a delay step. Dying in between means a duplicate, never a loss.
Deliveries are worked on in tasks of our own; their number is bounded by the prefetch count.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

import aiormq
import aiormq.abc

from leveret.bus import headers as names
from leveret.bus.connections.connection import BrokerConnection, SilentBrokerError
from leveret.bus.connections.declare import declare
from leveret.bus.connections.link import Link, Session
from leveret.bus.delivery import Delivery
from leveret.bus.dispatch import Dispatcher
from leveret.bus.early import early_wait_s
from leveret.bus.outcome import MAX_RETRIES_EXCEEDED, TOO_EARLY, Act, Decision, Handled, decide
from leveret.bus.outgoing import of_copy
from leveret.bus.policy import Backoff
from leveret.bus.publishing import Publisher
from leveret.bus.received import Received, received
from leveret.bus.settings import BusSettings
from leveret.bus.topology import DEFAULT_EXCHANGE, Layout, Target
from leveret.clock import Clock
from leveret.errors import PublishError, UnroutableError

CANCEL_S: Final = 5.0  # for handlers that clean up when time to stop is over

_log: Final = logging.getLogger(__name__)


class ConsumingSession(Session):
    """A channel with one consumer."""

    def __init__(
        self,
        connection: BrokerConnection,
        channel: aiormq.abc.AbstractChannel,
        since_ms: int,
        layout: Layout,
        consumer_tag: str,
    ) -> None:
        super().__init__(connection, channel, since_ms)
        self.queue = layout.queue
        self.consumer_tag = consumer_tag
        self._retry_queue = layout.retry_queue
        self._retry_exchange = layout.retry_exchange
        self._waiting: set[asyncio.Task[Any]] = set()  # deliveries that no handler has yet
        self._lost.add_done_callback(self._on_lost)

    @asynccontextmanager
    async def place(self, places: asyncio.Semaphore) -> AsyncIterator[None]:
        """Wait for a handler's place; a session that is lost waits no more."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            await places.acquire()
        finally:
            self._waiting.discard(task)
        try:
            yield
        finally:
            places.release()

    def _on_lost(self, lost: "asyncio.Future[str]") -> None:
        for task in self._waiting:
            task.cancel()

    async def probe(self) -> str:
        """Ask on the consumer's own channel, where a cancel would have come before the answer."""
        await self.require_retry_path()
        declared = await self.connection.ask(self.channel.queue_declare(self.queue, passive=True))
        consumers: dict[str, Any] = getattr(self.channel, "consumers", {})
        if self.consumer_tag not in consumers:
            return "the broker cancelled the consumer"
        return "" if declared.consumer_count else "the broker lists no consumer"

    async def require_retry_path(self) -> None:
        """Raise where a reject would lead nowhere: brokers drop such a message without a word."""
        ask, channel = self.connection.ask, self.channel
        if self._retry_exchange != DEFAULT_EXCHANGE:
            await ask(channel.exchange_declare(self._retry_exchange, passive=True))
        await ask(channel.queue_declare(self._retry_queue, passive=True))


class Consumer:
    """Consumes one queue through one link."""

    def __init__(
        self,
        url: str,
        name: str,
        layout: Layout,
        dispatcher: Dispatcher,
        publisher: Publisher,
        settings: BusSettings,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._url = url
        self._name = name
        self._layout = layout
        self._dispatcher = dispatcher
        self._publisher = publisher
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._pool = ThreadPoolExecutor(settings.threads_max, thread_name_prefix="leveret-bus")
        self._stopping = asyncio.Event()
        self._working: set[asyncio.Task[None]] = set()
        self._is_careful = False  # a message came that the client library could not decode
        backoff = Backoff(rng, settings.backoff_s_min, settings.backoff_s_max)
        self.link = Link(name, self._open, backoff, settings.probe_interval_s)

    # Connecting

    async def _open(self) -> ConsumingSession:
        connection = await BrokerConnection.open(
            self._url, self._name, self._settings, is_careful=self._is_careful
        )
        connection.closing.add_done_callback(self._on_closed)
        try:
            await declare(connection, self._layout.consuming)
            channel = await connection.channel()
            tag = f"{self._layout.service}-{self._rng.getrandbits(64):016x}"
            now_ms = self._clock.now_ms()
            session = ConsumingSession(connection, channel, now_ms, self._layout, tag)
            await self._consume(session)
            return session
        except BaseException:
            await connection.close()
            raise

    def _on_closed(self, closing: "asyncio.Future[Any]") -> None:
        fault = None if closing.cancelled() else closing.exception()
        if isinstance(fault, aiormq.exceptions.InvalidFrameError) and not self._is_careful:
            _log.warning("%s: a message cannot be decoded; more care is taken now", self._name)
            self._is_careful = True

    async def _consume(self, session: ConsumingSession) -> None:
        channel = session.channel
        channel.on_consumer_cancel_callbacks.add(
            lambda frame: session.lose("the broker cancelled the consumer")
        )
        await session.connection.ask(channel.basic_qos(prefetch_count=self._settings.prefetch))
        consume = channel.basic_consume(
            session.queue, self._on_delivery(session), consumer_tag=session.consumer_tag
        )
        await session.connection.ask(consume)

    def _on_delivery(self, session: ConsumingSession) -> Callable[[Any], Any]:
        async def on_delivery(message: aiormq.abc.DeliveredMessage) -> None:
            work = self._work(session, received(message, session.queue))
            task = asyncio.get_running_loop().create_task(work, name="delivery")
            self._working.add(task)
            task.add_done_callback(self._working.discard)

        return on_delivery

    # Working on a delivery

    async def _work(self, session: ConsumingSession, message: Received) -> None:
        try:
            decision, outcome = await self._decide(session, message.delivery)
            await self._settle(session, message, decision, outcome)
        except asyncio.CancelledError:
            # The session is lost, or time to stop is over: the broker gives it to somebody else.
            await self._give_back(session, message)
            raise
        except Exception:
            _log.exception("message %s is given back", message.delivery.message_id)
            await self._pause(self._settings.early_wait_s_max)
            await self._give_back(session, message)

    async def _decide(
        self, session: ConsumingSession, delivery: Delivery
    ) -> tuple[Decision, Handled]:
        due_s = delivery.due_s
        if due_s is not None and self._clock.now_ms() / 1000 < due_s:
            return Decision(Act.REQUEUE), TOO_EARLY
        async with session.place(self._slots):
            if self._stopping.is_set() or session.is_lost:
                return Decision(Act.REQUEUE), TOO_EARLY
            outcome = await self._dispatcher.handle(delivery, self._pool)
        policy = self._dispatcher.policy(delivery)
        return decide(outcome, delivery.retry_count, self._layout, policy), outcome

    async def _settle(
        self, session: ConsumingSession, message: Received, decision: Decision, outcome: Handled
    ) -> None:
        if decision.act is Act.REQUEUE:
            await self._wait(message.delivery)
            await self._give_back(session, message)
        elif decision.act is Act.REJECT:
            await self._retry(session, message)
        elif decision.act is Act.ACK or await self._is_copied(session, message, decision, outcome):
            message.is_settled = True
            await self._tell(session, session.channel.basic_ack(message.tag))
        else:
            await self._pause(self._settings.early_wait_s_min)
            await self._give_back(session, message)

    async def _is_copied(
        self, session: ConsumingSession, message: Received, decision: Decision, outcome: Handled
    ) -> bool:
        """Publish the copy of a delivery that is not to be lost; whether it is confirmed."""
        if session.is_lost:
            # The broker gives the message out again: a copy now would be one too many.
            return False
        try:
            if decision.act is Act.DELAY:
                await self._delay(session, message, decision.delay_ms)
            else:
                await self._bury(message, decision, outcome)
        except PublishError as fault:
            _log.error("message %s stays in its queue: %s", message.delivery.message_id, fault)
            if isinstance(fault, UnroutableError):
                session.lose("a queue of the topology is missing")
            return False
        return True

    async def _delay(self, session: ConsumingSession, message: Received, delay_ms: int) -> None:
        step = self._layout.step(delay_ms)
        assert step is not None
        continues = names.continues_deaths(session.connection.server_properties)
        count = message.delivery.retry_count + 1
        headers = names.carried(message.headers, session.queue, count, continues=continues)
        target = Target(DEFAULT_EXCHANGE, step.queue)
        await self._publish_copy(message, headers, target)

    async def _bury(self, message: Received, decision: Decision, outcome: Handled) -> None:
        delivery = message.delivery
        count = delivery.retry_count
        headers = names.dead_letter(
            message.headers, delivery.queue, count, outcome.code, outcome.error
        )
        if self._layout.counts_in_header:
            headers[names.RETRY_COUNT] = count
        await self._publish_copy(message, headers, self._layout.dead_letters)
        what = MAX_RETRIES_EXCEEDED if decision.is_exhausted else "a permanent fault"
        _log.error(
            "%s: message %s of %s is in %s after %d retries; status %s, error %s",
            what,
            delivery.message_id,
            delivery.queue,
            self._layout.dlq,
            count,
            outcome.code,
            outcome.error,
        )

    async def _publish_copy(
        self, message: Received, headers: names.Headers, target: Target
    ) -> None:
        message_id = message.delivery.message_id or f"{self._rng.getrandbits(128):032x}"
        body = message.delivery.body
        copy = of_copy(body, message.properties, headers, target, message_id)
        await self._publisher.publish(copy)

    async def _wait(self, delivery: Delivery) -> None:
        """Too early: wait a little here, so that the message does not go round at full speed."""
        now_s = self._clock.now_ms() / 1000
        await self._pause(early_wait_s(now_s, delivery.due_s, self._settings, self._rng))

    async def _pause(self, pause_s: float) -> None:
        """Wait, or stop waiting when the bus stops."""
        try:
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _retry(self, session: ConsumingSession, message: Received) -> None:
        """Reject, once it is sure that the message will come back."""
        try:
            await session.require_retry_path()
        except (SilentBrokerError, aiormq.AMQPError, aiormq.ChannelInvalidStateError) as fault:
            # It stays unsettled, so it is delivered again when the topology is whole.
            session.lose(str(fault))
            return
        await self._reject(session, message, requeue=False)

    async def _give_back(self, session: ConsumingSession, message: Received) -> None:
        await self._reject(session, message, requeue=True)

    async def _reject(self, session: ConsumingSession, message: Received, *, requeue: bool) -> None:
        if not message.is_settled:
            message.is_settled = True
            await self._tell(session, session.channel.basic_nack(message.tag, requeue=requeue))

    async def _tell(self, session: ConsumingSession, settling: Any) -> None:
        """Settle; on a session that is lost the broker has taken the message back already."""
        try:
            await session.connection.ask(settling)
        except (SilentBrokerError, aiormq.AMQPError, aiormq.ChannelInvalidStateError) as fault:
            session.lose(str(fault))
            _log.info("a delivery could not be settled and will come again: %s", fault)

    # Stopping

    async def stop(self, deadline_s: float) -> None:
        """Take no more, finish what is begun, give back the rest."""
        self._stopping.set()
        session = self.link.end()
        if session is not None:
            cancel = session.channel.basic_cancel(session.consumer_tag)
            await self._tell(session, cancel)
        if self._working:
            await asyncio.wait(set(self._working), timeout=deadline_s)
        for task in set(self._working):
            task.cancel()
        if self._working:
            _, deaf = await asyncio.wait(set(self._working), timeout=CANCEL_S)
            if deaf:
                _log.error("%d handlers were cancelled and run on", len(deaf))
        await self.link.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
