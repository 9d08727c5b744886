"""Clients of a simulated world, which reconnect when their connection ends, and their accounts.

Every message has a body of its own. `Accounts` keeps which bodies were sent, confirmed, delivered
and acked, as the clients saw it, and notes every broken promise in `faults`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from leveret.amqp.methods import (
    BASIC_ACK,
    BASIC_CONSUME,
    BASIC_CONSUME_OK,
    BASIC_QOS,
    BASIC_QOS_OK,
    CONFIRM_SELECT,
    CONFIRM_SELECT_OK,
    QUEUE_DECLARE,
    QUEUE_DECLARE_OK,
    TX_COMMIT,
    TX_COMMIT_OK,
    TX_SELECT,
    TX_SELECT_OK,
)
from leveret.amqp.writer import MethodWriter
from leveret.amqp_client.client import AmqpClient, ClientListener, Delivery
from leveret.amqp_client.uri import parse_amqp_uri
from leveret.errors import LeveretError
from leveret.wire.properties import Properties, encode_header
from leveret.wire.tables import Table, table_of
from tests.simulated.loop import new_loop
from tests.simulated.network import Network

QUEUE: Final = "q"
STREAM: Final = "s"  # a stream
SHORT_STREAM: Final = "t"  # a stream that keeps its last few messages
DURABLE: Final = 2
RETRY_S: Final = 0.1
PREFETCH: Final = 20
UNCONFIRMED_MAX: Final = 30
KEY_BYTES: Final = 9  # of a body: they name the message, the rest is padding
_PADDING_BYTES: Final = (0, 0, 0, 50, 2000)
_ARGUMENTS: Final[dict[str, Table]] = {
    QUEUE: {},
    STREAM: table_of({"x-queue-type": "stream"}),
    SHORT_STREAM: table_of(
        {
            "x-queue-type": "stream",
            "x-max-length-bytes": 2000,
            "x-stream-max-segment-size-bytes": 1000,
        }
    ),
}
_OFFSET_HEADER: Final = b"x-stream-offset"
_PERSISTENT: Final = Properties()
_PERSISTENT.delivery_mode = 2


class Accounts:
    """Messages that all clients have sent, received, acked and seen confirmed."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.confirmed: set[bytes] = set()
        self.delivered: Counter[bytes] = Counter()
        self.acked: set[bytes] = set()
        self.settled: set[bytes] = set()  # acked by a transaction that was committed
        self.offsets: dict[int, bytes] = {}  # of the stream
        self.faults: list[str] = []
        # Called with a body that a client is told of, by its confirm or its delivery.
        self.on_told: Callable[[bytes], None] = _ignore
        self.connections: dict[bytes, tuple[str, int]] = {}  # of a message: publisher, connection
        self._newest: dict[tuple[str, int], int] = {}  # number of the last message, by connection

    def lost(self) -> set[bytes]:
        """Return confirmed messages that nobody got."""
        return self.confirmed - set(self.delivered)

    def invented(self) -> set[bytes]:
        """Return delivered messages that nobody sent."""
        return set(self.delivered) - self.sent

    def on_delivered(self, body: bytes, *, is_redelivered: bool) -> None:
        """Note a message of the queue, which has one consumer.

        AMQP keeps the order of a connection. After a cut, bytes of a connection that its publisher
        has given up may still arrive, later than those of the next one. A redelivered message has
        no place in the order: a connection of the consumer that its node does not know to be dead
        has held it, while later messages went to the next connection.
        """
        self.on_told(body)
        if body in self.settled:
            self.faults.append(f"{body[:KEY_BYTES]!r} was acked, and is delivered again")
        if body not in self.delivered and not is_redelivered:
            connection = self.connections.get(body, ("", 0))  # invented messages are found later
            number = int(body[:KEY_BYTES].partition(b"-")[2])
            if number < self._newest.get(connection, 0):
                self.faults.append(f"{body[:KEY_BYTES]!r} came after later ones of its connection")
            self._newest[connection] = number
        self.delivered[body] += 1

    def on_read(self, offset: int, body: bytes) -> None:
        """Note a message of the stream."""
        self.on_told(body)
        known = self.offsets.setdefault(offset, body)
        if known != body:
            self.faults.append(
                f"offset {offset} was {known[:KEY_BYTES]!r}, and is {body[:KEY_BYTES]!r}"
            )
        self.delivered[body] += 1


def _ignore(body: bytes) -> None:
    """Do nothing: the default of a callback."""


class Client(ClientListener):
    """A client that connects again until it is told to stop."""

    def __init__(
        self,
        network: Network,
        name: str,
        choose_url: Callable[[], str],
        accounts: Accounts,
        queue: str = QUEUE,
    ) -> None:
        self._choose_url = choose_url
        self._rng = network.schedule.rng
        self._name = name
        self.accounts = accounts
        self._queue = queue
        self._is_lost = asyncio.Event()
        self._arrived = asyncio.Event()  # a delivery, or the end of the connection
        self.ready = -1  # messages in the queue, as of the last declaration
        self.is_stopping = False
        self.loop = new_loop(network.schedule, name, network)
        self.task = self.loop.start(self._run())

    async def _run(self) -> None:
        while not self.is_stopping:
            try:
                await self._connect_and_work()
            except (OSError, TimeoutError, LeveretError):
                await asyncio.sleep(RETRY_S)

    async def _connect_and_work(self) -> None:
        uri = parse_amqp_uri(self._choose_url(), "/")
        self._is_lost = asyncio.Event()
        self._arrived = asyncio.Event()
        client = AmqpClient(uri, self._name, self)
        try:
            await client.connect()
            declare = MethodWriter(QUEUE_DECLARE).short(0).short_string(self._queue)
            declare.octet(DURABLE).table(_ARGUMENTS[self._queue])
            declared = await client.call(declare, QUEUE_DECLARE_OK)
            declared.short_string()
            self.ready = declared.long()
            await self.work(client)
        finally:
            await client.close()

    async def work(self, client: AmqpClient) -> None:
        """Use the connection until it is lost or the client is stopped."""
        raise NotImplementedError

    def on_lost(self, fault: Exception) -> None:
        self._is_lost.set()
        self._arrived.set()

    def stop(self) -> None:
        """Close the connection, and do not connect again."""
        self.is_stopping = True
        self.loop.run_inside(self._is_lost.set)
        self.loop.run_inside(self._arrived.set)


class Publisher(Client):
    """Publishes persistent messages with confirms, `count` in all."""

    def __init__(
        self,
        network: Network,
        name: str,
        choose_url: Callable[[], str],
        accounts: Accounts,
        count: int,
        queue: str = QUEUE,
    ) -> None:
        self._left = count
        self._number = 0
        self._connection = 0
        self._unconfirmed: dict[int, bytes] = {}
        super().__init__(network, name, choose_url, accounts, queue)

    async def work(self, client: AmqpClient) -> None:
        await client.call(MethodWriter(CONFIRM_SELECT).octet(0), CONFIRM_SELECT_OK)
        self._unconfirmed = {}
        self._connection += 1
        seq = 0
        while (self._left > 0 or self._unconfirmed) and not self._is_lost.is_set():
            for _ in range(min(self._rng.randrange(20), self._left, self._room())):
                self._left -= 1
                seq += 1
                body = self._unconfirmed[seq] = self._make_body()
                header = encode_header(_PERSISTENT, len(body))
                client.publish("", self._queue, header, body, mandatory=False)
            await asyncio.sleep(self._rng.uniform(0.0, 0.05))
        self.is_stopping = self._left == 0 and not self._unconfirmed

    def _make_body(self) -> bytes:
        self._number += 1
        body = b"%s-%0*d" % (
            self._name.encode(),
            KEY_BYTES - len(self._name) - 1,
            self._number,
        )
        body += b"." * self._rng.choice(_PADDING_BYTES)
        self.accounts.sent.add(body)
        self.accounts.connections[body] = self._name, self._connection
        return body

    def _room(self) -> int:
        return UNCONFIRMED_MAX - len(self._unconfirmed)

    def on_confirm(self, seq: int, multiple: bool, is_acked: bool) -> None:
        for number in list(self._unconfirmed):
            if number == seq or (multiple and number < seq):
                body = self._unconfirmed.pop(number)
                if is_acked:
                    self.accounts.on_told(body)
                    self.accounts.confirmed.add(body)


class Consumer(Client):
    """Consumes and acks until it is stopped, on some connections by transactions."""

    async def work(self, client: AmqpClient) -> None:
        self._client = client
        self._deliveries: list[Delivery] = []
        qos = MethodWriter(BASIC_QOS).long(0).short(PREFETCH).octet(0)
        await client.call(qos, BASIC_QOS_OK)
        self._has_transactions = self._rng.random() < 0.5
        if self._has_transactions:
            await client.call(MethodWriter(TX_SELECT), TX_SELECT_OK)
        consume = MethodWriter(BASIC_CONSUME).short(0).short_string(self._queue).short_string("")
        await client.call(consume.octet(0).table({}), BASIC_CONSUME_OK)
        if self._has_transactions:
            await self._settle(client)
        await self._is_lost.wait()

    async def _settle(self, client: AmqpClient) -> None:
        """Ack what has arrived, and commit it."""
        while not self._is_lost.is_set():
            await self._arrived.wait()
            self._arrived.clear()
            bodies = [self._ack(client, delivery) for delivery in self._deliveries]
            self._deliveries.clear()
            if bodies:
                await client.call(MethodWriter(TX_COMMIT), TX_COMMIT_OK)
                self.accounts.settled.update(bodies)

    def on_delivery(self, delivery: Delivery) -> None:
        self.accounts.on_delivered(delivery.body, is_redelivered=delivery.redelivered)
        if self._has_transactions:
            self._deliveries.append(delivery)
            self._arrived.set()
        else:
            self._ack(self._client, delivery)

    def _ack(self, client: AmqpClient, delivery: Delivery) -> bytes:
        client.send(MethodWriter(BASIC_ACK).longlong(delivery.tag).octet(0))
        self.accounts.acked.add(delivery.body)
        return delivery.body


class StreamReader(Client):
    """Reads the whole stream, again on each connection."""

    async def work(self, client: AmqpClient) -> None:
        self._client = client
        qos = MethodWriter(BASIC_QOS).long(0).short(PREFETCH).octet(0)
        await client.call(qos, BASIC_QOS_OK)
        consume = MethodWriter(BASIC_CONSUME).short(0).short_string(STREAM).short_string("")
        arguments = table_of({"x-stream-offset": "first"})
        await client.call(consume.octet(0).table(arguments), BASIC_CONSUME_OK)
        await self._is_lost.wait()

    def on_delivery(self, delivery: Delivery) -> None:
        at = delivery.header.index(_OFFSET_HEADER) + len(_OFFSET_HEADER) + 1
        self.accounts.on_read(int.from_bytes(delivery.header[at : at + 8], "big"), delivery.body)
        self._client.send(MethodWriter(BASIC_ACK).longlong(delivery.tag).octet(0))
