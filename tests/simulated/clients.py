"""Clients of a simulated world: a publisher and a consumer that reconnect, and their accounts.

Every message has a body of its own. `Accounts` keeps which bodies were sent, confirmed, delivered
and acked, as the clients saw it.
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
)
from leveret.amqp.writer import MethodWriter
from leveret.amqp_client.client import AmqpClient, ClientListener, Delivery
from leveret.amqp_client.uri import parse_amqp_uri
from leveret.errors import LeveretError
from leveret.wire.properties import Properties, encode_header
from tests.simulated.loop import new_loop
from tests.simulated.network import Network

QUEUE: Final = "q"
DURABLE: Final = 2
RETRY_S: Final = 0.1
PREFETCH: Final = 20
UNCONFIRMED_MAX: Final = 30
_PERSISTENT: Final = Properties()
_PERSISTENT.delivery_mode = 2


class Accounts:
    """What all clients of a world have seen."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.confirmed: set[bytes] = set()
        self.delivered: Counter[bytes] = Counter()
        self.acked: set[bytes] = set()

    def lost(self) -> set[bytes]:
        """Return confirmed messages that nobody got."""
        return self.confirmed - set(self.delivered)

    def invented(self) -> set[bytes]:
        """Return delivered messages that nobody sent."""
        return set(self.delivered) - self.sent


class _Client(ClientListener):
    """A client that connects again until it is told to stop."""

    def __init__(self, network: Network, name: str, choose_url: Callable[[], str]) -> None:
        self._choose_url = choose_url
        self._rng = network.schedule.rng
        self._name = name
        self._is_lost: asyncio.Event
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
        client = AmqpClient(uri, self._name, self)
        try:
            await client.connect()
            declare = MethodWriter(QUEUE_DECLARE).short(0).short_string(QUEUE)
            await client.call(declare.octet(DURABLE).table({}), QUEUE_DECLARE_OK)
            await self.work(client)
        finally:
            await client.close()

    async def work(self, client: AmqpClient) -> None:
        """Use the connection until it is lost or the client is stopped."""
        raise NotImplementedError

    def on_lost(self, fault: Exception) -> None:
        self._is_lost.set()


class Publisher(_Client):
    """Publishes persistent messages with confirms, `count` in all."""

    def __init__(
        self,
        network: Network,
        name: str,
        choose_url: Callable[[], str],
        accounts: Accounts,
        count: int,
    ) -> None:
        self._accounts = accounts
        self._left = count
        self._number = 0
        self._unconfirmed: dict[int, bytes] = {}
        super().__init__(network, name, choose_url)

    async def work(self, client: AmqpClient) -> None:
        await client.call(MethodWriter(CONFIRM_SELECT).octet(0), CONFIRM_SELECT_OK)
        self._unconfirmed = {}
        seq = 0
        while (self._left > 0 or self._unconfirmed) and not self._is_lost.is_set():
            for _ in range(min(self._rng.randrange(20), self._left, self._room())):
                self._number += 1
                self._left -= 1
                seq += 1
                body = b"%s %d" % (self._name.encode(), self._number)
                self._accounts.sent.add(body)
                self._unconfirmed[seq] = body
                header = encode_header(_PERSISTENT, len(body))
                client.publish("", QUEUE, header, body, mandatory=False)
            await asyncio.sleep(self._rng.uniform(0.0, 0.05))
        self.is_stopping = self._left == 0 and not self._unconfirmed

    def _room(self) -> int:
        return UNCONFIRMED_MAX - len(self._unconfirmed)

    def on_confirm(self, seq: int, multiple: bool, is_acked: bool) -> None:
        for number in list(self._unconfirmed):
            if number == seq or (multiple and number < seq):
                body = self._unconfirmed.pop(number)
                if is_acked:
                    self._accounts.confirmed.add(body)


class Consumer(_Client):
    """Consumes and acks until it is stopped."""

    def __init__(
        self, network: Network, name: str, choose_url: Callable[[], str], accounts: Accounts
    ) -> None:
        self._accounts = accounts
        self._client: AmqpClient | None = None
        super().__init__(network, name, choose_url)

    async def work(self, client: AmqpClient) -> None:
        self._client = client
        qos = MethodWriter(BASIC_QOS).long(0).short(PREFETCH).octet(0)
        await client.call(qos, BASIC_QOS_OK)
        consume = MethodWriter(BASIC_CONSUME).short(0).short_string(QUEUE).short_string("")
        await client.call(consume.octet(0).table({}), BASIC_CONSUME_OK)
        await self._is_lost.wait()

    def on_delivery(self, delivery: Delivery) -> None:
        client = self._client
        assert client is not None
        self._accounts.delivered[delivery.body] += 1
        self._accounts.acked.add(delivery.body)
        client.send(MethodWriter(BASIC_ACK).longlong(delivery.tag).octet(0))
