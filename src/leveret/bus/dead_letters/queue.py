"""Works on a dead-letter queue over plain AMQP: look, redrive, drop; on Leveret and RabbitMQ alike.

A `DeadLetterQueue` takes messages with `basic.get` on one channel, decides about each, and gives
back what stays at the end, so that the rest of the queue is as it was. It takes no more than the
queue held at the start: what dies again meanwhile, redriven messages among it, is not seen twice.

    taken  ── redriven ──►  published to its queue, confirmed, then acked here
           ── dropped  ──►  acked here
           ── the rest ──►  given back at the end, in order

Invariant: a message leaves the dead-letter queue only after its copy was confirmed by the target
queue, or because it was to be dropped. If this process dies, the broker gives back everything that
was not acked: between confirm and ack one message is in both queues, with the same id, never in
none.

Giving back keeps the order. A quorum queue puts what is given back behind what was given back
before (RabbitMQ 4, Leveret) or behind everything (RabbitMQ 3), so all of the rest is taken too and
goes back after it. RabbitMQ 3 keeps what is returned by one command as a map, which has no order
beyond 32 entries, and merges commands that wait: at most 32 go back at a time, and the next ones
only when these are counted as ready again. When the connection is lost instead, such a queue may
have another order; nothing else changes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import aiormq
from aiormq.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import (
    AMQPError,
    ChannelClosed,
    ChannelInvalidStateError,
    DeliveryError,
    PublishError,
)
from pamqp.commands import Basic

from leveret.bus.dead_letters.letter import QUORUM_COUNTS, DeadLetter
from leveret.bus.dead_letters.letter_filter import LetterFilter
from leveret.bus.headers import continues_deaths
from leveret.clock import Clock
from leveret.errors import ClosedError, NotFoundError

ANSWER_S: Final = 30.0  # for every single answer of the broker
BACK_AT_ONCE: Final = 32  # messages: see above
BACK_WITHIN_S: Final = 2.0  # until such messages are counted again; then the next go back anyway
_POLL_S: Final = 0.001
REST_MORE_MAX: Final = 1000  # that come meanwhile
FAILURES_KEPT: Final = 100
TAKEN_MAX: Final = 100_000  # of a queue that are held at the same time


@dataclass(slots=True)
class Outcome:
    """How far the work on a dead-letter queue is, and at last what became of it."""

    total: int = 0  # in the queue at the start
    seen: int = 0
    matched: int = 0  # by the filter
    done: int = 0  # redriven or dropped
    failed: int = 0  # that stay although they were to go
    failures: list[tuple[DeadLetter, str]] = field(default_factory=list)  # the first, and why
    targets: dict[str, int] = field(default_factory=dict)  # queue: messages that went or would go
    stopped: bool = False  # before the end, as asked
    truncated: bool = False  # the queue held more than were looked at

    def fail(self, letter: DeadLetter, why: str) -> None:
        """A letter stays."""
        self.failed += 1
        if len(self.failures) < FAILURES_KEPT:
            self.failures.append((letter, why))


@dataclass(frozen=True, slots=True)
class Selection:
    """Which letters, and how many of them."""

    chosen: LetterFilter = field(default_factory=LetterFilter)
    limit: int | None = None  # at most so many that match
    scan_max: int = TAKEN_MAX  # at most so many that are looked at


Report = Callable[[Outcome], None]
See = Callable[[DeadLetter], None]


def _ignore(_: object) -> None:
    pass


class DeadLetterQueue:
    """A dead-letter queue during one piece of work."""

    def __init__(self, connection: AbstractConnection, name: str, clock: Clock) -> None:
        self.name = name
        self._connection = connection
        self._clock = clock
        # Whether the broker counts on from an x-death that is published.
        self._continues = continues_deaths(dict(connection.server_properties or {}))
        self._taking: AbstractChannel | None = None  # holds what is taken
        self._sending: AbstractChannel | None = None
        self._held: list[int] = []  # delivery tags that go back at the end, in order
        self._returns_last = False  # as headers of its messages say: see above
        self.stop = asyncio.Event()  # set it to end the work after the message at hand

    async def open(self) -> int:
        """Opens the channels; how many messages wait. NotFoundError where there is no such
        queue."""
        self._taking = await self._connection.channel(publisher_confirms=False, timeout=ANSWER_S)
        self._sending = await self._connection.channel(timeout=ANSWER_S)
        try:
            return await self._count()
        except aiormq.exceptions.ChannelNotFoundEntity as fault:
            raise NotFoundError(f"there is no queue {self.name}") from fault

    async def look(self, selection: Selection, see: See, report: Report = _ignore) -> Outcome:
        """Shows each letter that is chosen to `see`; the queue stays as it was."""
        outcome = Outcome()
        async with self._all_back():
            async for tag, letter in self._letters(selection, outcome, report):
                self._held.append(tag)
                if letter is not None:
                    see(letter)
        return outcome

    async def redrive(
        self,
        selection: Selection,
        target: Callable[[DeadLetter], str | None],
        *,
        reset: bool = False,
        rate: float | None = None,  # messages a second, at most
        dry_run: bool = False,
        report: Report = _ignore,
    ) -> Outcome:
        """Sends the chosen letters to their target queues, one after the other."""
        outcome = Outcome()
        async with self._all_back():
            async for tag, letter in self._letters(selection, outcome, report):
                if letter is None:
                    self._held.append(tag)
                    continue
                queue = target(letter)
                why = "it does not say from which queue it came" if queue is None else None
                if queue is not None and not dry_run:
                    why = await self._send(letter, queue, reset=reset)
                if why is not None:
                    outcome.fail(letter, why)
                elif queue is not None:
                    outcome.targets[queue] = outcome.targets.get(queue, 0) + 1
                if why is not None or dry_run:
                    self._held.append(tag)
                    continue
                await self._ack(tag)
                outcome.done += 1
                report(outcome)
                await self._pause(rate)
        return outcome

    async def drop(
        self,
        selection: Selection,
        may: Callable[[Outcome], Awaitable[bool]] | None = None,
        report: Report = _ignore,
    ) -> Outcome:
        """Removes the chosen letters for good, if `may` agrees when all of them are known."""
        outcome = Outcome()
        chosen: list[int] = []
        async with self._all_back():
            async for tag, letter in self._letters(selection, outcome, report):
                self._held.append(tag)
                if letter is not None:
                    chosen.append(tag)
            if may is not None and chosen and not await may(outcome):
                outcome.stopped = True
            if outcome.stopped:
                return outcome
            gone = set(chosen)
            self._held = [tag for tag in self._held if tag not in gone]
            for tag in chosen:
                await self._ack(tag)
                outcome.done += 1
            report(outcome)
        return outcome

    async def _letters(
        self, selection: Selection, outcome: Outcome, report: Report
    ) -> AsyncIterator[tuple[int, DeadLetter | None]]:
        """Each message that waits now: its tag, and the letter itself if it is chosen."""
        outcome.total = await self._count()
        most = min(outcome.total, selection.scan_max)
        outcome.truncated = most < outcome.total
        while outcome.seen < most:
            if self.stop.is_set():
                outcome.stopped = True
                return
            if selection.limit is not None and outcome.matched >= selection.limit:
                return
            taken = await self._take(outcome.seen + 1)
            if taken is None:
                return
            tag, letter = taken
            outcome.seen += 1
            is_chosen = selection.chosen.takes(letter, self._clock.now_ms() / 1000)
            outcome.matched += is_chosen
            yield tag, letter if is_chosen else None
            report(outcome)

    async def _take(self, position: int) -> tuple[int, DeadLetter] | None:
        assert self._taking is not None
        message = await self._taking.basic_get(self.name, timeout=ANSWER_S)
        if not isinstance(message.delivery, Basic.GetOk):
            return None
        delivery = message.delivery
        headers = message.header.properties.headers or {}
        self._returns_last |= any(name in headers for name in QUORUM_COUNTS)
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
        """Publishes a copy to a queue and waits for the confirm; why it was not taken, if so."""
        assert self._sending is not None
        try:
            await self._sending.basic_publish(
                letter.body,
                routing_key=queue,
                properties=letter.redriven(queue, continues=self._continues, reset=reset),
                mandatory=True,
                timeout=ANSWER_S,
            )
        except PublishError:
            return f"there is no queue {queue}"
        except DeliveryError:
            return f"the queue {queue} refused it"
        except ChannelClosed as fault:  # too large, or not allowed: the next one may be
            self._sending = await self._connection.channel(timeout=ANSWER_S)
            return str(fault)
        except ValueError as fault:
            return str(fault)
        return None

    async def _ack(self, tag: int) -> None:
        assert self._taking is not None
        await self._taking.basic_ack(tag)

    async def _pause(self, rate: float | None) -> None:
        """Keeps the rate; ends at once when the work is to stop."""
        if rate is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), 1 / rate)

    async def _count(self) -> int:
        assert self._taking is not None
        declared = await self._taking.queue_declare(self.name, passive=True, timeout=ANSWER_S)
        return declared.message_count or 0

    @contextlib.asynccontextmanager
    async def _all_back(self) -> AsyncIterator[None]:
        """What was taken and not settled goes back, however the work ends."""
        try:
            yield
        finally:
            await self._give_back()

    async def _give_back(self) -> None:
        assert self._taking is not None
        if self._taking.is_closed:  # the broker has them back already
            self._held.clear()
            return
        if self._held and self._returns_last:
            await self._take_the_rest()
        ready = await self._count()  # a round trip: the acks before it have been seen too
        for first in range(0, len(self._held), BACK_AT_ONCE):
            some = self._held[first : first + BACK_AT_ONCE]
            await self._taking.basic_nack(some[-1], multiple=True, requeue=True)
            ready += len(some)
            await self._until_ready(ready)
        self._held.clear()

    async def _take_the_rest(self) -> None:
        """What is behind those that go back to the end must go there after them."""
        most = await self._count() + REST_MORE_MAX
        for _ in range(most):
            taken = await self._take(0)
            if taken is None:
                return
            self._held.append(taken[0])

    async def _until_ready(self, count: int) -> None:
        """Waits until so many messages are ready; somebody else may be taking some of them."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + BACK_WITHIN_S
        while await self._count() < count and loop.time() < until_s:  # noqa: ASYNC110 no event tells
            await asyncio.sleep(_POLL_S)


@contextlib.asynccontextmanager
async def dead_letter_queue(
    url: str, name: str, clock: Clock | None = None
) -> AsyncIterator[DeadLetterQueue]:
    """A dead-letter queue to work on. Closed where the broker cannot be reached, or is lost."""
    try:
        async with asyncio.timeout(ANSWER_S):
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
