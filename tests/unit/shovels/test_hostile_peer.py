"""A broker that sends more than it should, or reads nothing: the client stays fair and small."""

import asyncio
import tracemalloc
from typing import Any, cast

import pytest

from leveret.amqp.methods import (
    BASIC_ACK,
    BASIC_DELIVER,
    CONNECTION_START,
    CONNECTION_TUNE,
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_METHOD,
)
from leveret.amqp.writer import MethodWriter
from leveret.amqp_client.client import (
    FRAMES_PER_READ,
    UNREAD_BYTES_MAX,
    AmqpClient,
    ClientListener,
    Delivery,
    _frame,
)
from leveret.amqp_client.uri import parse_amqp_uri
from leveret.errors import ClosedError
from leveret.shovels.interfaces import ShovelListener
from leveret.shovels.remote import INBOX_BYTES_MAX, RemoteSource
from leveret.wire.properties import Properties, encode_header

WITHIN_S = 60.0


class Transport(asyncio.Transport):
    """A connection whose other end is the test."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = True
        self.has_ended = asyncio.Event()
        self.unread_bytes = 0
        self._is_reading = True

    def write(self, data: object) -> None:
        """Forget the bytes."""

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def close(self) -> None:
        """Wait for the other end to read everything."""

    def abort(self) -> None:
        self.is_open = False
        self.has_ended.set()


class Listener(ClientListener):
    def __init__(self, confirms: int = 0) -> None:
        self.confirmed = 0
        self.fault: Exception | None = None
        self.has_all = asyncio.Event()
        self._confirms = confirms

    def on_confirm(self, seq: int, multiple: bool, is_acked: bool) -> None:
        self.confirmed += 1
        if self.confirmed == self._confirms:
            self.has_all.set()

    def on_lost(self, fault: Exception) -> None:
        self.fault = fault


def connected(listener: ClientListener) -> tuple[AmqpClient, Transport]:
    client = AmqpClient(parse_amqp_uri("amqp://far:1", "/"), "test", listener)
    transport = Transport()
    client.connection_made(transport)
    return client, transport


def test_many_small_frames_are_read_in_slices() -> None:
    async def run() -> None:
        listener = Listener(confirms=2 * FRAMES_PER_READ + 1)
        client, transport = connected(listener)
        ack = _frame(FRAME_METHOD, 1, MethodWriter(BASIC_ACK).longlong(1).octet(0).payload())
        client.data_received(ack * (2 * FRAMES_PER_READ + 1) + ack[:5])
        assert listener.confirmed == FRAMES_PER_READ
        assert not transport.is_reading()
        client.resume()  # the listener takes more, but the client rests
        assert not transport.is_reading()
        async with asyncio.timeout(WITHIN_S):
            await listener.has_all.wait()
        assert transport.is_reading()
        client.data_received(ack[5:])
        assert listener.confirmed == 2 * FRAMES_PER_READ + 2

    asyncio.run(run())


def begin_delivery(client: AmqpClient, body_size: int) -> None:
    """Let the broker send the start of a message."""
    deliver = MethodWriter(BASIC_DELIVER).short_string("").longlong(1).octet(0)
    deliver.short_string("").short_string("k")
    client.data_received(_frame(FRAME_METHOD, 1, deliver.payload()))
    client.data_received(_frame(FRAME_HEADER, 1, encode_header(Properties(), body_size)))


def test_an_empty_part_of_a_message_ends_the_connection() -> None:
    async def run() -> None:
        listener = Listener()
        client, transport = connected(listener)
        begin_delivery(client, 10)
        client.data_received(_frame(FRAME_BODY, 1, b""))
        assert str(listener.fault) == "the broker sent an empty part of a message"
        assert not transport.is_open

    asyncio.run(run())


def test_a_message_inside_another_one_ends_the_connection() -> None:
    async def run() -> None:
        listener = Listener()
        client, transport = connected(listener)
        begin_delivery(client, 10)
        client.data_received(_frame(FRAME_BODY, 1, b"a part"))
        begin_delivery(client, 10)
        assert str(listener.fault) == "the broker sent a message inside another one"
        assert not transport.is_open

    asyncio.run(run())


def test_a_message_in_tiny_parts_takes_no_more_memory_than_its_size() -> None:
    size = 20_000
    part = _frame(FRAME_BODY, 1, b"xy")
    whole: list[bytes] = []

    class Receiver(ClientListener):
        def on_delivery(self, delivery: Delivery) -> None:
            whole.append(delivery.body)

    async def run() -> None:
        client, _ = connected(Receiver())
        begin_delivery(client, size)
        tracemalloc.start()
        try:
            for _ in range(size // 2 - 1):
                client.data_received(part)
            assert tracemalloc.get_traced_memory()[0] < 2 * size
        finally:
            tracemalloc.stop()
        client.data_received(part)
        assert whole == [b"xy" * (size // 2)]

    asyncio.run(run())


def test_a_broker_that_reads_no_acks_is_left() -> None:
    async def run() -> None:
        listener = Listener()
        client, transport = connected(listener)
        client.pause_writing()
        ack = MethodWriter(BASIC_ACK).longlong(1).octet(0)
        transport.unread_bytes = UNREAD_BYTES_MAX
        client.send(ack)
        assert listener.fault is None
        transport.unread_bytes += 1
        client.send(ack)
        assert str(listener.fault) == "the broker does not read what it is sent"
        assert not transport.is_open

    asyncio.run(run())


def test_a_broker_that_reads_nothing_does_not_keep_a_closed_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for limit in ("CLOSE_TIMEOUT_S", "UNREAD_S"):
        monkeypatch.setattr(f"leveret.amqp_client.client.{limit}", 0.0)

    async def run() -> None:
        client, transport = connected(Listener())
        transport.unread_bytes = 1
        await client.close()
        async with asyncio.timeout(WITHIN_S):
            await transport.has_ended.wait()

    asyncio.run(run())


def test_a_broker_with_tiny_frames_is_refused() -> None:
    has_ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start = MethodWriter(CONNECTION_START).short(9).table({}).long_string(b"PLAIN")
        writer.write(_frame(FRAME_METHOD, 0, start.long_string(b"en_US").payload()))
        head = await reader.readexactly(len(b"AMQP....") + 7)
        await reader.readexactly(int.from_bytes(head[-4:], "big") + 1)  # connection.start-ok
        tune = MethodWriter(CONNECTION_TUNE).short(1).long(100).short(0)
        writer.write(_frame(FRAME_METHOD, 0, tune.payload()))
        writer.close()
        await writer.wait_closed()
        has_ended.set()

    async def run() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            uri = parse_amqp_uri(f"amqp://127.0.0.1:{port}", "/")
            client = AmqpClient(uri, "test", ClientListener())
            async with asyncio.timeout(WITHIN_S):
                with pytest.raises(ClosedError, match="frames of 100 bytes only"):
                    await client.connect()
                await client.close()
                await has_ended.wait()

    asyncio.run(run())


def test_a_source_stops_reading_at_a_size_too() -> None:
    class Inbox:
        def on_delivery(self, delivery: Delivery) -> None:
            """Leave it there."""

    async def run() -> None:
        source = RemoteSource(cast(Any, None), cast(Any, None), "test", cast(Any, None))
        source._client, transport = connected(source)
        source._listener = cast(ShovelListener, Inbox())
        half = Delivery(1, "", "q", False, b"", bytes(INBOX_BYTES_MAX // 2))
        source.on_delivery(half)
        assert transport.is_reading()
        source.on_delivery(half)
        assert not transport.is_reading()
        source.request_more()
        assert transport.is_reading()

    asyncio.run(run())
