"""Look at, redrive and drop dead letters over plain AMQP, on Leveret and RabbitMQ.

A `DeadLetterQueue` takes messages on one channel, decides about each, and requeues the others at
the end, so that the queue keeps them in order. A consumer takes many messages at a time, because a
round trip for each would take minutes for a long queue. It takes no more messages than the
queue held at the start. Messages that die during the work, redriven ones among them, are not seen.

    taken  ── redriven ──►  published to its queue, confirmed, then acked here
           ── dropped  ──►  acked here
           ── others   ──►  requeued at the end, in order

Invariant: a message leaves the dead-letter queue only after its copy was confirmed by the target
queue, or because it was to be dropped. If this process dies, the broker requeues everything that
was not acked. A death between confirm and ack leaves one message in both queues, with the same id.

Order. A quorum queue puts requeued messages behind those requeued before (RabbitMQ 4, Leveret) or
behind all others (RabbitMQ 3). Therefore all messages of such a queue are taken and requeued.
RabbitMQ 3 keeps the messages of one requeue in a map, which has no order beyond 32 entries, and
merges waiting commands. Therefore 32 are requeued at a time, and the next only after the broker
counts these as ready. If the connection is lost, the order of such a queue may change; nothing else
does.
"""

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import aiormq
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage
from aiormq.exceptions import (
    AMQPError,
    ChannelClosed,
    ChannelInvalidStateError,
    DeliveryError,
    PublishError,
)
from pamqp.commands import Basic

from leveret.bus.dead_letters.dead_letter import QUORUM_COUNTS, DeadLetter
from leveret.bus.dead_letters.dead_letter_filter import DeadLetterFilter
from leveret.bus.headers import continues_deaths, keeps_requeue_order
from leveret.clock import Clock
from leveret.errors import ClosedError, NotFoundError

ANSWER_TIMEOUT_S: Final = 30.0  # for each call
REQUEUE_BATCH: Final = 32  # messages; see above
TAKE_BATCH: Final = 2_000  # messages that a consumer takes before it is cancelled
TAKE_SINGLY_MAX: Final = 16  # up to so many, `basic.get` is quicker
READY_TIMEOUT_S: Final = 2.0  # for a batch to be counted as ready; then the next one follows
_POLL_S: Final = 0.001
ARRIVALS_MAX: Final = 1000  # new messages that are taken and requeued with the others
FAILURES_MAX: Final = 100
TAKEN_MAX: Final = 100_000  # messages held at the same time


@dataclass(slots=True)
class DeadLetterProgress:
    """Progress of the work on a dead-letter queue, and its result at the end."""

    total: int = 0  # messages in the queue at the start
    seen: int = 0
    matched: int = 0  # messages that the filter matches
    done: int = 0  # redriven or dropped
    failed: int = 0  # matched messages that could not be redriven
    # The first failures, with the reason.
    failures: list[tuple[DeadLetter, str]] = field(default_factory=list)
    # Number of messages redriven, by queue.
    targets: dict[str, int] = field(default_factory=dict)
    stopped: bool = False  # the work was stopped before its end
    truncated: bool = False  # the queue holds more than `scan_max` messages

    def fail(self, letter: DeadLetter, reason: str) -> None:
        """Note that a message stays in the queue."""
        self.failed += 1
        if len(self.failures) < FAILURES_MAX:
            self.failures.append((letter, reason))


@dataclass(frozen=True, slots=True)
class Selection:
    """The dead letters that an operation takes: a filter, and limits."""

    filter: DeadLetterFilter = field(default_factory=DeadLetterFilter)
    limit: int | None = None  # matched messages at most
    scan_max: int = TAKEN_MAX  # messages to look at, at most


OnProgress = Callable[[DeadLetterProgress], None]
OnLetter = Callable[[DeadLetter], None]


def _ignore(_: object) -> None:
    pass


class DeadLetterQueue:
    """A dead-letter queue for the time of one command."""

    def __init__(self, connection: AbstractConnection, name: str, clock: Clock) -> None:
        self.name = name
        self._connection = connection
        self._clock = clock
        # True if the broker continues an x-death that was published.
        server = dict(connection.server_properties or {})
        self._continues = continues_deaths(server)
        self._keeps_requeue_order = keeps_requeue_order(server)
        self._taking: AbstractChannel | None = None  # holds the messages that were taken
        self._sending: AbstractChannel | None = None
        self._arrived: collections.deque[DeliveredMessage] = (
            collections.deque()
        )  # not yet looked at
        self._first_tags: set[int] = set()  # of each consumer, and behind its last message
        self._held: list[int] = []  # delivery tags to requeue at the end, in order
        self._requeues_at_end = False  # a quorum queue, by the headers of its messages; see above
        self.stop = asyncio.Event()  # set it to end the work after the present message

    async def open(self) -> int:
        """Open the channels and return the number of messages. Raise NotFoundError."""
        self._taking = await self._connection.channel(
            publisher_confirms=False, timeout=ANSWER_TIMEOUT_S
        )
        self._sending = await self._connection.channel(timeout=ANSWER_TIMEOUT_S)
        try:
            return await self._count()
        except aiormq.exceptions.ChannelNotFoundEntity as fault:
            raise NotFoundError(f"there is no queue {self.name}") from fault

    async def look(
        self, selection: Selection, see: OnLetter, report: OnProgress = _ignore
    ) -> DeadLetterProgress:
        """Call `see` with each matched message. The queue keeps all of them, in order."""
        progress = DeadLetterProgress()
        async with self._requeue_at_exit():
            async for tag, letter in self._letters(selection, progress, report):
                self._held.append(tag)
                if letter is not None:
                    see(letter)
        return progress

    async def redrive(
        self,
        selection: Selection,
        target: Callable[[DeadLetter], str | None],
        *,
        reset: bool = False,
        rate: float | None = None,  # messages per second at most
        dry_run: bool = False,
        report: OnProgress = _ignore,
    ) -> DeadLetterProgress:
        """Send the matched messages to their target queues, one after the other."""
        progress = DeadLetterProgress()
        async with self._requeue_at_exit():
            async for tag, letter in self._letters(selection, progress, report):
                if letter is None:
                    self._held.append(tag)
                    continue
                queue = target(letter)
                reason = "its headers do not name the queue it came from" if queue is None else None
                if queue is not None and not dry_run:
                    reason = await self._send(letter, queue, reset=reset)
                if reason is not None:
                    progress.fail(letter, reason)
                elif queue is not None:
                    progress.targets[queue] = progress.targets.get(queue, 0) + 1
                if reason is not None or dry_run:
                    self._held.append(tag)
                    continue
                await self._ack(tag)
                progress.done += 1
                report(progress)
                await self._pause(rate)
        return progress

    async def drop(
        self,
        selection: Selection,
        may: Callable[[DeadLetterProgress], Awaitable[bool]] | None = None,
        report: OnProgress = _ignore,
    ) -> DeadLetterProgress:
        """Delete the matched messages, if `may` returns True once all of them are known."""
        progress = DeadLetterProgress()
        chosen: list[int] = []
        async with self._requeue_at_exit():
            async for tag, letter in self._letters(selection, progress, report):
                self._held.append(tag)
                if letter is not None:
                    chosen.append(tag)
            if may is not None and chosen and not await may(progress):
                progress.stopped = True
            if progress.stopped:
                return progress
            gone = set(chosen)
            self._held = [tag for tag in self._held if tag not in gone]
            for tag in chosen:
                await self._ack(tag)
                progress.done += 1
            report(progress)
        return progress

    async def _letters(
        self, selection: Selection, progress: DeadLetterProgress, report: OnProgress
    ) -> AsyncIterator[tuple[int, DeadLetter | None]]:
        """Yield the tag of each message, with the message if it matches, else with None."""
        progress.total = await self._count()
        most = min(progress.total, selection.scan_max)
        progress.truncated = most < progress.total
        while progress.seen < most:
            if self.stop.is_set():
                progress.stopped = True
                return
            if selection.limit is not None and progress.matched >= selection.limit:
                return
            await self._fill(most - progress.seen, selection, progress)
            taken = await self._take_letter(progress.seen + 1)
            if taken is None:
                return
            tag, letter = taken
            progress.seen += 1
            is_match = selection.filter.matches(letter, self._clock.now_ms() / 1000)
            progress.matched += is_match
            yield tag, letter if is_match else None
            report(progress)

    async def _fill(self, left: int, selection: Selection, progress: DeadLetterProgress) -> None:
        """Let a consumer take the next messages, if many are wanted."""
        if self._arrived:
            return
        if selection.limit is not None and selection.filter.is_empty:
            left = min(left, selection.limit - progress.matched)
        if left > TAKE_SINGLY_MAX:
            await self._consume(min(left, TAKE_BATCH))

    async def _consume(self, count: int) -> None:
        """Take so many messages, or fewer if the queue has no more."""
        assert self._taking is not None
        more = asyncio.Event()

        async def on_message(message: DeliveredMessage) -> None:
            self._arrived.append(message)
            more.set()

        await self._taking.basic_qos(prefetch_count=count, timeout=ANSWER_TIMEOUT_S)
        consumed = await self._taking.basic_consume(self.name, on_message, timeout=ANSWER_TIMEOUT_S)
        while len(self._arrived) < count:
            more.clear()
            try:
                async with asyncio.timeout(READY_TIMEOUT_S):
                    await more.wait()
            except TimeoutError:
                break  # other clients have taken the rest
        if self._arrived:
            tags = [each.delivery_tag or 0 for each in self._arrived]
            self._first_tags |= {tags[0], tags[-1] + 1}
        assert consumed.consumer_tag is not None
        await self._taking.basic_cancel(consumed.consumer_tag, timeout=ANSWER_TIMEOUT_S)

    async def _take_letter(self, position: int) -> tuple[int, DeadLetter] | None:
        assert self._taking is not None
        if self._arrived:
            message = self._arrived.popleft()
        else:
            message = await self._taking.basic_get(self.name, timeout=ANSWER_TIMEOUT_S)
        delivery = message.delivery
        if not isinstance(delivery, Basic.GetOk | Basic.Deliver):
            return None
        headers = message.header.properties.headers or {}
        self._requeues_at_end |= any(name in headers for name in QUORUM_COUNTS)
        letter = DeadLetter(
            position,
            delivery.exchange or "",
            delivery.routing_key or "",
            message.body,
            message.header.properties,
        )
        assert delivery.delivery_tag is not None
        return delivery.delivery_tag, letter

    async def _send(self, letter: DeadLetter, queue: str, *, reset: bool) -> str | None:
        """Publish a copy and wait for the confirm. Return why it failed, or None."""
        assert self._sending is not None
        try:
            await self._sending.basic_publish(
                letter.body,
                routing_key=queue,
                properties=letter.redrive_properties(queue, continues=self._continues, reset=reset),
                mandatory=True,
                timeout=ANSWER_TIMEOUT_S,
            )
        except PublishError:
            return f"there is no queue {queue}"
        except DeliveryError:
            return f"the queue {queue} refused it"
        except ChannelClosed as fault:  # too large or not permitted; the next message may pass
            self._sending = await self._connection.channel(timeout=ANSWER_TIMEOUT_S)
            return str(fault)
        except ValueError as fault:
            return str(fault)
        return None

    async def _ack(self, tag: int) -> None:
        assert self._taking is not None
        await self._taking.basic_ack(tag)

    async def _pause(self, rate: float | None) -> None:
        """Wait as the rate says; end at once when the work is stopped."""
        if rate is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), 1 / rate)

    async def _count(self) -> int:
        assert self._taking is not None
        declared = await self._taking.queue_declare(
            self.name, passive=True, timeout=ANSWER_TIMEOUT_S
        )
        return declared.message_count or 0

    @contextlib.asynccontextmanager
    async def _requeue_at_exit(self) -> AsyncIterator[None]:
        """Requeue the messages that were taken and not settled, however the block ends."""
        try:
            yield
        finally:
            await self._requeue_held()

    async def _requeue_held(self) -> None:
        assert self._taking is not None
        if self._taking.is_closed:  # the broker has requeued them already
            self._held.clear()
            return
        while self._arrived:
            await self._hold_next()
        if self._held and self._requeues_at_end:
            await self._take_others()
        if self._held and (self._keeps_requeue_order or not self._requeues_at_end):
            await self._taking.basic_nack(self._held[-1], multiple=True, requeue=True)
            await self._count()  # a round trip, so the broker has processed it
            self._held.clear()
        ready = await self._count()  # a round trip, so the broker has processed the acks before it
        for tags in self._requeue_batches():
            await self._taking.basic_nack(tags[-1], multiple=True, requeue=True)
            ready += len(tags)
            await self._wait_until_ready(ready)
        self._held.clear()

    def _requeue_batches(self) -> Iterator[list[int]]:
        """Yield the held tags in batches. No batch has messages of two consumers, for the order."""
        batch: list[int] = []
        for tag in self._held:
            if len(batch) == REQUEUE_BATCH or (batch and tag in self._first_tags):
                yield batch
                batch = []
            batch.append(tag)
        if batch:
            yield batch

    async def _take_others(self) -> None:
        """Take the messages behind the held ones too, so that the order is kept."""
        for _ in range(TAKEN_MAX // TAKE_BATCH + 1):
            waiting = await self._count()
            if waiting > TAKE_SINGLY_MAX:
                await self._consume(min(waiting, TAKE_BATCH))
            for _ in range(TAKE_BATCH if self._arrived else ARRIVALS_MAX):
                if not await self._hold_next():
                    return

    async def _hold_next(self) -> bool:
        """Take one more message, to be requeued. Return False if there is none."""
        taken = await self._take_letter(0)
        if taken is not None:
            self._held.append(taken[0])
        return taken is not None

    async def _wait_until_ready(self, count: int) -> None:
        """Wait until so many messages are ready, or the timeout: other clients may take some."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + READY_TIMEOUT_S
        while await self._count() < count and loop.time() < until_s:  # noqa: ASYNC110 the broker sends no event
            await asyncio.sleep(_POLL_S)


@contextlib.asynccontextmanager
async def open_dead_letter_queue(
    url: str, name: str, clock: Clock | None = None
) -> AsyncIterator[DeadLetterQueue]:
    """Connect and yield the queue. Raise ClosedError if the broker cannot be reached or is lost."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            connection = await aiormq.connect(url)
    except (AMQPError, OSError) as fault:
        raise ClosedError(
            f"no connection to the broker: {str(fault) or type(fault).__name__}"
        ) from fault
    try:
        queue = DeadLetterQueue(connection, name, clock or Clock())
        await queue.open()
        yield queue
    except (AMQPError, OSError) as fault:
        text = str(fault) or type(fault).__name__
        raise ClosedError(f"the connection to the broker was lost: {text}") from fault
    except ChannelInvalidStateError as fault:
        raise ClosedError("the connection to the broker was lost") from fault
    finally:
        with contextlib.suppress(AMQPError, OSError, RuntimeError):
            await connection.close()
