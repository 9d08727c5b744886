"""Publish messages over AMQP, and return when the broker has confirmed them all.

The number of unconfirmed messages is limited. After a lost connection the publisher connects again
and publishes the unconfirmed messages again, with the same ids, so that the broker can drop the
duplicates.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from leveret.amqp.methods import CONFIRM_SELECT, CONFIRM_SELECT_OK
from leveret.amqp.writer import MethodWriter
from leveret.amqp_client.client import AmqpClient, ClientListener
from leveret.amqp_client.uri import PORTS, AmqpUri
from leveret.errors import ClosedByPeerError, ClosedError, LeveretError
from pyspark_leveret.client import PAUSE_S, Broker
from pyspark_leveret.errors import BrokerError, LoginRefusedError
from pyspark_leveret.messages import Message
from pyspark_leveret.options import Options

UNCONFIRMED_MAX: Final = 2000
UNCONFIRMED_BYTES_MAX: Final = 8 * 1024 * 1024
CONFIRM_S: Final = 120.0  # longest wait for the next confirm
_TURN: Final = 100  # messages that are sent before the event loop reads confirms


def publish(options: Options, name: str, messages: Iterator[Message]) -> int:
    """Publish all messages and return their number. Raise BrokerError."""
    return asyncio.run(_Publisher(options, name).run(messages))


class _Publisher(ClientListener):
    """Publishes the messages of one call of `publish`."""

    def __init__(self, options: Options, name: str) -> None:
        self._options = options
        self._name = name
        self._client: AmqpClient | None = None
        self._waiting: dict[int, Message] = {}  # by number of the publish on this connection
        self._waiting_bytes = 0
        self._seq = 0
        self._started_s = 0.0
        self._fault: Exception | None = None  # the error that ends the publishing
        self._moved = asyncio.Event()  # set by each confirm, return, loss, and end of a block

    async def run(self, messages: Iterator[Message]) -> int:
        count = 0
        await self._connect()
        self._started_s = asyncio.get_running_loop().time()
        for message in messages:
            await self._pace(count)
            self._send(message)
            count += 1
            if count % _TURN == 0 or self._is_full():
                await self._room()
        while self._waiting:
            await self._wait()
        assert self._client is not None
        await self._client.close()
        return count

    async def _pace(self, count: int) -> None:
        """Wait until the next message is due, if the options have a rate."""
        rate = self._options.records_per_second
        if rate is not None:
            now_s = asyncio.get_running_loop().time()
            await asyncio.sleep(max(self._started_s + count / rate - now_s, 0))
            self._raise()

    async def _connect(self) -> None:
        """Connect, with retries at each node, and publish the unconfirmed messages again."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._options.retry_s
        pause_s = PAUSE_S[0]
        while True:
            try:
                self._client = AmqpClient(_address(self._options), self._name, self)
                await self._client.connect()
                await self._client.call(MethodWriter(CONFIRM_SELECT).octet(0), CONFIRM_SELECT_OK)
                break
            except ClosedByPeerError as fault:
                raise BrokerError(f"the broker refuses: {fault}") from fault
            except (OSError, LeveretError, TimeoutError) as fault:
                if loop.time() + pause_s > until_s:
                    raise BrokerError(f"the broker cannot be reached by AMQP: {fault}") from fault
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S[1])
            self._options = self._options.at_address(1)
        again = list(self._waiting.values())
        self._waiting, self._waiting_bytes, self._seq = {}, 0, 0
        for message in again:
            self._send(message)

    def _send(self, message: Message) -> None:
        assert self._client is not None
        self._seq += 1
        self._waiting[self._seq] = message
        self._waiting_bytes += len(message[3])
        self._client.publish(*message, self._options.is_mandatory)

    def _is_full(self) -> bool:
        is_long = len(self._waiting) >= UNCONFIRMED_MAX
        assert self._client is not None
        return is_long or self._waiting_bytes >= UNCONFIRMED_BYTES_MAX or self._client.is_lost

    async def _room(self) -> None:
        """Read confirms, and wait while too many messages are unconfirmed."""
        await asyncio.sleep(0)
        self._raise()
        assert self._client is not None
        while self._is_full() or not self._client.is_writable:
            await self._wait()

    async def _wait(self) -> None:
        self._raise()
        assert self._client is not None
        if self._client.is_lost:
            await self._connect()
            return
        self._moved.clear()
        try:
            async with asyncio.timeout(CONFIRM_S):
                await self._moved.wait()
        except TimeoutError:
            raise BrokerError(f"the broker has confirmed nothing for {CONFIRM_S:.0f} s") from None
        self._raise()

    def _raise(self) -> None:
        if self._fault is not None:
            raise self._fault

    def on_confirm(self, seq: int, multiple: bool, is_acked: bool) -> None:
        if not is_acked:
            text = "the broker did not take a message: a queue is full, or its disk is"
            self._fault = self._fault or BrokerError(text)
        settled = [seq]
        if multiple:
            settled = []
            for number in self._waiting:  # they ascend
                if number > seq:
                    break
                settled.append(number)
        for number in settled:
            message = self._waiting.pop(number, None)
            if message is not None:
                self._waiting_bytes -= len(message[3])
        self._moved.set()

    def on_returned(self, body: bytes) -> None:
        self._fault = self._fault or BrokerError(_unroutable(self._options))
        self._moved.set()

    def on_writable(self) -> None:
        self._moved.set()

    def on_lost(self, fault: Exception) -> None:
        if isinstance(fault, ClosedByPeerError) or not isinstance(fault, ClosedError):
            self._fault = self._fault or BrokerError(f"the broker refuses: {fault}")
        self._moved.set()


def _unroutable(options: Options) -> str:
    """Return why the broker sends a message back."""
    queue = options.queue if options.queue is not None else options.stream
    if queue is not None:
        return f"there is no queue '{queue}' in vhost '{options.vhost}' any more"
    text = "a message was routed to no queue: is there a binding for its key?"
    return f"{text} The option 'mandatory' of Spark's writer, set to false, lets such messages go"


def _address(options: Options) -> AmqpUri:
    """Return the AMQP address: with the given port, the announced one, or the usual one."""
    url = options.url
    port = options.amqp_port or _announced_port(options) or PORTS["amqps" if url.is_tls else "amqp"]
    return AmqpUri(
        host=url.host,
        port=port,
        user=url.user,
        password=url.password,
        vhost=options.vhost,
        tls=url.is_tls,
        heartbeat_s=0,  # the loop does not run while Spark computes the next rows
    )


def _announced_port(options: Options) -> int | None:
    wanted = "amqp/ssl" if options.url.is_tls else "amqp"
    try:
        found = Broker(options).ask("GET", "/api/overview")
    except LoginRefusedError:  # another login over AMQP would be refused too
        raise
    except BrokerError as fault:
        if fault.status in (401, 404):  # this user may not see the overview
            return None
        raise
    ports = [one["port"] for one in found.get("listeners", []) if one["protocol"] == wanted]
    return ports[0] if ports else None
