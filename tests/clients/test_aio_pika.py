"""aio-pika: robust connections, confirms, iterators, transactions, its RPC and Master patterns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustChannel, AbstractRobustConnection
from aio_pika.exceptions import (
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    DeliveryError,
    ProbableAuthenticationError,
    PublishError,
    QueueEmpty,
)
from aio_pika.patterns import RPC, Master, RejectMessage

from tests.clients.relay import Relay

Address = tuple[str, int]
Fresh = Callable[[str], str]
WAIT_S = 60

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def connection(amqp_url: str) -> AsyncIterator[AbstractRobustConnection]:
    async with await aio_pika.connect_robust(amqp_url) as connection:
        yield connection


@pytest.fixture
async def channel(connection: AbstractRobustConnection) -> AbstractRobustChannel:
    return await connection.channel(on_return_raises=True)


async def test_publish_is_confirmed_and_consumed(
    channel: AbstractRobustChannel, fresh: Fresh
) -> None:
    exchange = await channel.declare_exchange(fresh("logs"), aio_pika.ExchangeType.TOPIC)
    queue = await channel.declare_queue(exclusive=True)
    await queue.bind(exchange, "log.#")
    sent = aio_pika.Message(
        b"hello",
        headers={"attempt": 1, "tags": ["a", "b"], "deep": {"yes": True}},
        content_type="text/plain",
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        message_id="m-1",
    )
    confirmation = await exchange.publish(sent, "log.info")
    assert type(confirmation).__name__ == "Ack"
    message = await queue.get(timeout=WAIT_S)
    await message.ack()
    assert (message.body, message.routing_key) == (b"hello", "log.info")
    assert message.headers == {"attempt": 1, "tags": ["a", "b"], "deep": {"yes": True}}
    assert message.message_id == "m-1"


async def test_a_thousand_confirms_at_once(channel: AbstractRobustChannel, fresh: Fresh) -> None:
    queue = await channel.declare_queue(fresh("burst"))
    publish = channel.default_exchange.publish
    await asyncio.gather(
        *(publish(aio_pika.Message(str(n).encode()), queue.name) for n in range(1000))
    )
    assert (await queue.purge()).message_count == 1000


async def test_unroutable_publish_raises(channel: AbstractRobustChannel) -> None:
    with pytest.raises(PublishError) as caught:
        await channel.default_exchange.publish(aio_pika.Message(b"lost"), "clients.missing")
    assert caught.value.message is not None
    assert caught.value.message.body == b"lost"


async def test_rejected_publish_raises(channel: AbstractRobustChannel, fresh: Fresh) -> None:
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = await channel.declare_queue(fresh("full"), arguments=full)
    await channel.default_exchange.publish(aio_pika.Message(b"fits"), queue.name)
    with pytest.raises(DeliveryError):
        await channel.default_exchange.publish(aio_pika.Message(b"does not"), queue.name)


async def test_queue_iterator_and_process_context(
    channel: AbstractRobustChannel, fresh: Fresh
) -> None:
    queue = await channel.declare_queue(fresh("iterate"))
    await channel.set_qos(prefetch_count=3)
    for number in range(10):
        await channel.default_exchange.publish(aio_pika.Message(bytes([number])), queue.name)
    received: list[bytes] = []
    async with queue.iterator(timeout=WAIT_S) as messages:
        async for message in messages:
            async with message.process():
                received.append(message.body)
            if len(received) == 10:
                break
    assert received == [bytes([number]) for number in range(10)]
    assert (await queue.purge()).message_count == 0


async def test_failed_processing_requeues_then_rejects(
    channel: AbstractRobustChannel, fresh: Fresh
) -> None:
    dead = await channel.declare_queue(fresh("dead"))
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}
    queue = await channel.declare_queue(fresh("risky"), arguments=to_dead)
    await channel.default_exchange.publish(aio_pika.Message(b"bad"), queue.name)
    for _ in range(2):
        message = await queue.get(timeout=WAIT_S)
        with pytest.raises(ValueError, match="boom"):
            async with message.process(requeue=True, reject_on_redelivered=True):
                raise ValueError("boom")
    async with dead.iterator(timeout=WAIT_S) as messages:
        dead_letter = await anext(messages)
        await dead_letter.ack()
    assert dead_letter.body == b"bad"
    assert dead_letter.headers["x-first-death-reason"] == "rejected"


async def test_get_from_an_empty_queue(channel: AbstractRobustChannel, fresh: Fresh) -> None:
    queue = await channel.declare_queue(fresh("empty"))
    with pytest.raises(QueueEmpty):
        await queue.get(timeout=WAIT_S)
    assert await queue.get(fail=False, timeout=WAIT_S) is None


async def test_iterator_times_out_on_an_empty_queue(
    channel: AbstractRobustChannel, fresh: Fresh
) -> None:
    queue = await channel.declare_queue(fresh("quiet"))
    async with queue.iterator(timeout=0.2) as messages:
        with pytest.raises(asyncio.TimeoutError):
            await anext(messages)
    await channel.default_exchange.publish(aio_pika.Message(b"still works"), queue.name)


async def test_transaction_commits_and_rolls_back(
    connection: AbstractRobustConnection, fresh: Fresh
) -> None:
    channel = await connection.channel(publisher_confirms=False)
    queue = await channel.declare_queue(fresh("tx"))
    async with channel.transaction():
        await channel.default_exchange.publish(aio_pika.Message(b"kept"), queue.name)
    with pytest.raises(ValueError, match="undo"):
        async with channel.transaction():
            await channel.default_exchange.publish(aio_pika.Message(b"undone"), queue.name)
            raise ValueError("undo")
    message = await queue.get(timeout=WAIT_S)
    assert message.body == b"kept"
    assert await queue.get(fail=False, timeout=WAIT_S) is None


async def test_errors_have_their_own_types(
    connection: AbstractRobustConnection, channel: AbstractRobustChannel, fresh: Fresh
) -> None:
    with pytest.raises(ChannelNotFoundEntity):
        await channel.declare_queue("clients.missing", passive=True)
    other = await connection.channel()
    queue = await other.declare_queue(fresh("differs"))
    with pytest.raises(ChannelPreconditionFailed):
        await other.declare_queue(queue.name, durable=True)


async def test_wrong_password_is_told(amqp_address: Address) -> None:
    host, port = amqp_address
    with pytest.raises(ProbableAuthenticationError):
        await aio_pika.connect(host=host, port=port, login="guest", password="wrong")


async def test_rpc_pattern_returns_results_and_errors(
    channel: AbstractRobustChannel, fresh: Fresh
) -> None:
    rpc = await RPC.create(channel)
    name = fresh("rpc")

    async def multiply(*, x: int, y: int) -> int:
        if x < 0:
            raise ValueError("negative")
        return x * y

    await rpc.register(name, multiply, auto_delete=True)
    assert await rpc.call(name, {"x": 6, "y": 7}) == 42
    results = await asyncio.gather(*(rpc.call(name, {"x": n, "y": 2}) for n in range(50)))
    assert results == [n * 2 for n in range(50)]
    with pytest.raises(ValueError, match="negative"):
        await rpc.call(name, {"x": -1, "y": 1})
    await rpc.unregister(multiply)
    await rpc.close()


async def test_rpc_call_that_nobody_answers_times_out(
    channel: AbstractRobustChannel, fresh: Fresh
) -> None:
    """The call expires in its queue and comes back through a dead-letter headers exchange."""
    rpc = await RPC.create(channel)
    to_caller = {"x-dead-letter-exchange": RPC.DLX_NAME}
    queue = await channel.declare_queue(fresh("nobody"), arguments=to_caller)
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(asyncio.TimeoutError, match="Message timed-out"):
            await rpc.call(queue.name, {}, expiration=1)
    await rpc.close()


async def test_master_pattern_shares_tasks_among_workers(
    connection: AbstractRobustConnection, fresh: Fresh
) -> None:
    name = fresh("tasks")
    done: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    for worker_name in ("first", "second"):
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)

        async def work(*, number: int, worker_name: str = worker_name) -> None:
            if number == 13:
                raise RejectMessage(requeue=False)
            await done.put((worker_name, number))

        await Master(channel).create_worker(name, work, durable=True)
    master = Master(await connection.channel())
    for number in range(40):
        await master.create_task(name, {"number": number})
    async with asyncio.timeout(WAIT_S):
        results = [await done.get() for _ in range(39)]
    assert sorted(number for _, number in results) == [n for n in range(40) if n != 13]
    assert {worker for worker, _ in results} == {"first", "second"}


async def test_robust_connection_restores_everything_after_a_cut(
    relay: Relay, connection: AbstractRobustConnection, fresh: Fresh
) -> None:
    host, port = relay.address
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def on_message(message: AbstractIncomingMessage) -> None:
        async with message.process():
            await received.put(message.body)

    robust = await aio_pika.connect_robust(host=host, port=port, reconnect_interval=0.1)
    async with robust, asyncio.timeout(2 * WAIT_S):
        channel = await robust.channel()
        exchange = await channel.declare_exchange(fresh("restored"), auto_delete=True)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, "key")
        await queue.consume(on_message)
        reconnected = asyncio.Event()
        robust.reconnect_callbacks.add(lambda *_: reconnected.set())
        await exchange.publish(aio_pika.Message(b"before"), "key")
        assert await received.get() == b"before"
        relay.cut()
        await reconnected.wait()
        await channel.ready()
        other = await connection.channel()
        target = await other.get_exchange(exchange.name)
        await target.publish(aio_pika.Message(b"after"), "key")
        assert await received.get() == b"after"


async def test_robust_connection_returns_after_the_broker_closed_it(
    amqp_url: str, fresh: Fresh
) -> None:
    """`immediate` is refused by closing the connection, which then comes back by itself."""
    robust = await aio_pika.connect_robust(amqp_url, reconnect_interval=0.1)
    async with robust, asyncio.timeout(2 * WAIT_S):
        channel = await robust.channel()
        queue = await channel.declare_queue(fresh("survivor"), durable=True)
        reconnected = asyncio.Event()
        robust.reconnect_callbacks.add(lambda *_: reconnected.set())
        with pytest.raises(Exception, match="immediate"):
            await channel.default_exchange.publish(
                aio_pika.Message(b""), queue.name, immediate=True
            )
        await reconnected.wait()
        await channel.ready()
        await channel.default_exchange.publish(aio_pika.Message(b"again"), queue.name)
        message = await queue.get(timeout=WAIT_S)
        assert message.body == b"again"
        await message.ack()


async def test_heartbeats_keep_an_idle_connection(amqp_address: Address) -> None:
    host, port = amqp_address
    async with await aio_pika.connect(f"amqp://{host}:{port}/?heartbeat=2") as connection:
        channel = await connection.channel()
        closed = channel.closed()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(closed), 7)
        assert (await channel.declare_queue(exclusive=True)).name


async def test_stream_is_followed(channel: AbstractRobustChannel, fresh: Fresh) -> None:
    name = fresh("stream")
    await channel.set_qos(prefetch_count=10)
    queue = await channel.declare_queue(
        name, durable=True, arguments={"x-queue-type": "stream", "x-max-age": "1h"}
    )
    publish = channel.default_exchange.publish
    await publish(aio_pika.Message(b"0"), name)
    found: list[tuple[object, bytes]] = []
    async with queue.iterator(arguments={"x-stream-offset": "first"}, timeout=WAIT_S) as messages:
        async for message in messages:
            found.append((message.headers["x-stream-offset"], message.body))
            await message.ack()
            if len(found) == 4:
                break
            await publish(aio_pika.Message(b"%d" % len(found)), name)
    assert found == [(number, b"%d" % number) for number in range(4)]
