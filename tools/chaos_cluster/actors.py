"""Publishers and consumers at any node of a cluster, by pika and by aio-pika.

A publisher sends each number once, to an exchange that hands it to all queues, and notes which ones
were confirmed. A consumer takes one queue, and proves by a fence that its acks are safe: see
`tools.chaos.consumers`. After every lost connection an actor connects to another node.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Final
from zlib import crc32

import aio_pika
import pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aio_pika.exceptions import ChannelInvalidStateError
from aiormq.exceptions import AMQPError as AiormqError
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from leveret.clock import Clock
from tools.chaos.accounts import Account, Key, Sender
from tools.chaos.bodies import Label, decode_body, encode_body

EXCHANGE: Final = "chaos"
FENCE: Final = "fence"  # a queue that keeps one message
FENCE_EVERY: Final = 20  # deliveries
HEARTBEAT_S: Final = 4  # a client leaves a node that was frozen or cut off after two of them
ANSWER_S: Final = 30.0  # for one answer of a broker, heartbeats or not
BATCH: Final = 10
PAUSE_S: Final = 0.01
PREFETCH: Final = 50
SESSION_S: Final = 10.0  # then a client connects to another node
WAKE_S: Final = 0.2
ENDED: Final = (AMQPError, AiormqError, ChannelInvalidStateError, OSError, TimeoutError)


class Actor(threading.Thread):
    """Repeats its work at one node after the other until it is told to stop."""

    def __init__(self, name: str, urls: list[str], rng: Random) -> None:
        super().__init__(name=name, daemon=True)
        self._urls = urls
        self.rng = rng
        self.stopping = threading.Event()
        self.error: BaseException | None = None  # a fault of the actor itself

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                try:
                    self.work(f"{self.rng.choice(self._urls)}?heartbeat={HEARTBEAT_S}")
                except* ENDED:  # aio-pika raises a group if it cannot nack several messages
                    pass
                self.stopping.wait(PAUSE_S)
        except BaseException as error:  # a thread that dies in silence looks like lost messages
            self.error = error

    def work(self, url: str) -> None:
        """Use one connection until it ends, or some time has passed."""
        raise NotImplementedError

    def session(self) -> Callable[[], bool]:
        """Return a function that is True while a session goes on."""
        last_s = time.monotonic() + self.rng.uniform(0, SESSION_S)
        return lambda: time.monotonic() < last_s and not self.stopping.is_set()


@contextlib.contextmanager
def connect(url: str) -> Iterator[pika.BlockingConnection]:
    """Connect by pika, and close without an error."""
    parameters = pika.URLParameters(f"{url}&socket_timeout=10&stack_timeout={ANSWER_S:.0f}")
    connection = pika.BlockingConnection(parameters)
    try:
        yield connection
    finally:
        with contextlib.suppress(*ENDED):
            connection.close()


class Publishing:
    """The numbers of one publisher."""

    def __init__(self, number: int, rng: Random) -> None:
        self.sender = Sender(number)
        self._rng = rng
        self._last = 0
        self._lane = 0
        self._crcs: dict[Key, int] = {}  # CRC-32 of the body of each message

    def begin(self) -> None:
        """Begin a connection. What an older one has sent may arrive later, when a cut is over."""
        self._lane += 1

    def next(self) -> tuple[Key, bytes]:
        """Return the next message: its key, and its body."""
        self._last += 1
        label = Label(self.sender.number, self._last, self._lane)
        self.sender.sent.add(label.key)
        body = encode_body(label, self._rng)
        self._crcs[label.key] = crc32(body)
        return label.key, body

    def copied_crcs(self) -> dict[Key, int]:
        """Return the CRC-32 of the bodies of all messages so far. Any thread may ask."""
        return self._crcs.copy()


class PikaPublisher(Actor):
    """Publishes one message at a time."""

    def __init__(self, number: int, urls: list[str], rng: Random) -> None:
        super().__init__(f"pika publisher {number}", urls, rng)
        self.publishing = Publishing(number, rng)

    def work(self, url: str) -> None:
        goes_on = self.session()
        with connect(url) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            self.publishing.begin()
            while goes_on():
                key, body = self.publishing.next()
                properties = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish(EXCHANGE, "", body, properties, mandatory=True)
                self.publishing.sender.confirmed.add(key)
                self.stopping.wait(PAUSE_S)


class Consuming:
    """The deliveries of one consumer, and the acks or rejects that a fence covers."""

    def __init__(self, account: Account, *, rejects: bool) -> None:
        self.account = account
        self.rejects = rejects  # messages go to the dead-letter exchange of the queue
        self._clock = Clock()
        self._unfenced: list[Key] = []

    def begin(self) -> None:
        self.account.begin_session()
        self._unfenced = []

    def on_delivery(self, body: bytes, redelivered: bool) -> bool:
        """Note a delivery that is about to be settled; return True if it is time for a fence."""
        label = decode_body(body)
        self.account.on_delivery(label, redelivered=redelivered, now_ms=self._clock.now_ms())
        if label is not None:
            self._unfenced.append(label.key)
        return len(self._unfenced) >= FENCE_EVERY

    def take(self) -> list[Key]:
        """Return the messages whose acks the next fence covers."""
        taken, self._unfenced = self._unfenced, []
        return taken


class PikaConsumer(Actor):
    """Consumes one queue."""

    def __init__(
        self, account: Account, urls: list[str], rng: Random, *, rejects: bool = False
    ) -> None:
        super().__init__(f"pika consumer of {account.name}", urls, rng)
        self.consuming = Consuming(account, rejects=rejects)

    def work(self, url: str) -> None:
        goes_on = self.session()
        with connect(url) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_qos(prefetch_count=PREFETCH)
            self.consuming.begin()
            queue = self.consuming.account.name
            for method, _, body in channel.consume(queue, inactivity_timeout=WAKE_S):
                is_due = method is None
                if method is not None:
                    is_due = self.take(channel, method.delivery_tag, method.redelivered, body)
                if is_due:
                    self.fence(channel)
                if not goes_on():
                    break
            self.fence(channel)

    def take(self, channel: BlockingChannel, tag: int, redelivered: bool, body: bytes) -> bool:
        """Settle a message; return True if it is time for a fence."""
        is_due = self.consuming.on_delivery(body, redelivered)
        if self.consuming.rejects:
            channel.basic_reject(tag, requeue=False)
        else:
            channel.basic_ack(tag)
        return is_due

    def fence(self, channel: BlockingChannel) -> None:
        taken = self.consuming.take()
        if taken:
            channel.basic_publish("", FENCE, b"", pika.BasicProperties(delivery_mode=2))
            self.consuming.account.settle(taken)


class PikaPoller(PikaConsumer):
    """Takes one message at a time by basic.get."""

    def work(self, url: str) -> None:
        goes_on = self.session()
        with connect(url) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            self.consuming.begin()
            while goes_on():
                method, _, body = channel.basic_get(self.consuming.account.name)
                is_due = method is None
                if method is not None:
                    is_due = self.take(channel, method.delivery_tag, method.redelivered, body)
                if is_due:
                    self.fence(channel)
                if method is None:
                    self.stopping.wait(WAKE_S)
            self.fence(channel)


class AioActor(Actor):
    """An actor on aio-pika, with an event loop of its own."""

    def work(self, url: str) -> None:
        # aiormq cancels a call, and so its caller, if the connection ends while a channel opens.
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self._use(url))

    async def _use(self, url: str) -> None:
        connection = await aio_pika.connect(url, timeout=ANSWER_S)
        try:
            async with asyncio.timeout(SESSION_S + ANSWER_S):
                await self.use(await connection.channel(publisher_confirms=True))
        finally:
            with contextlib.suppress(*ENDED):
                async with asyncio.timeout(WAKE_S):
                    await connection.close()

    async def use(self, channel: AbstractChannel) -> None:
        """Use a channel until it ends, or some time has passed."""
        raise NotImplementedError


class AioPublisher(AioActor):
    """Publishes several messages at a time."""

    def __init__(self, number: int, urls: list[str], rng: Random) -> None:
        super().__init__(f"aio-pika publisher {number}", urls, rng)
        self.publishing = Publishing(number, rng)

    async def use(self, channel: AbstractChannel) -> None:
        goes_on = self.session()
        exchange = await channel.get_exchange(EXCHANGE)
        self.publishing.begin()

        async def publish(key: Key, body: bytes) -> None:
            message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await exchange.publish(message, "", timeout=ANSWER_S)
            self.publishing.sender.confirmed.add(key)

        while goes_on():
            batch = [self.publishing.next() for _ in range(BATCH)]
            done = await asyncio.gather(
                *(publish(key, body) for key, body in batch), return_exceptions=True
            )
            for result in done:
                if isinstance(result, BaseException):
                    raise result
            await asyncio.sleep(PAUSE_S * BATCH)


class AioConsumer(AioActor):
    """Consumes one queue."""

    def __init__(
        self, account: Account, urls: list[str], rng: Random, *, rejects: bool = False
    ) -> None:
        super().__init__(f"aio-pika consumer of {account.name}", urls, rng)
        self.consuming = Consuming(account, rejects=rejects)

    async def use(self, channel: AbstractChannel) -> None:
        goes_on = self.session()
        await channel.set_qos(prefetch_count=PREFETCH)
        self.consuming.begin()
        queue = await channel.get_queue(self.consuming.account.name)
        async with queue.iterator() as messages:
            while goes_on():
                is_due = True
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(WAKE_S):
                        message = await anext(messages, None)
                        if message is None:
                            return  # the connection has ended
                        is_due = await self._take(message)
                if is_due:
                    await self._fence(channel)
        await self._fence(channel)

    async def _take(self, message: AbstractIncomingMessage) -> bool:
        is_due = self.consuming.on_delivery(message.body, bool(message.redelivered))
        if self.consuming.rejects:
            await message.reject(requeue=False)
        else:
            await message.ack()
        return is_due

    async def _fence(self, channel: AbstractChannel) -> None:
        taken = self.consuming.take()
        if taken:
            message = aio_pika.Message(b"", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(message, FENCE, timeout=ANSWER_S)
            self.consuming.account.settle(taken)
