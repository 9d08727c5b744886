"""The pipelined connection to Redis: each command is answered once, none is sent twice."""

import asyncio
import socket
from contextlib import closing
from typing import Any

import pytest
import redis
from redis.asyncio import ConnectionPool
from redis.exceptions import BusyLoadingError, RedisError, ResponseError

from leveret.clock import Clock
from leveret.job_service.shards import keepalive
from leveret.job_service.shards.redis.pipelined_connection import (
    PipelinedConnection,
    encode_array_head,
    encode_words,
)
from leveret.job_service.shards.redis.redis_client import RedisClient
from tests.jobs.shards.deployment import QUICK, WITHIN_S, Deployment, drain, new
from tests.proxy import proxy
from tools.services import RedisServer

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")
ANSWER_S = 3.0  # a deadline that a busy machine meets, and a test can wait for


def command(*words: bytes) -> bytes:
    return encode_array_head(len(words)) + encode_words(words)


def line_to(url: str) -> PipelinedConnection:
    return PipelinedConnection(ConnectionPool.from_url(url), WITHIN_S)


async def outcome(line: PipelinedConnection, command: bytes) -> Any:
    """The answer, or the fault."""
    try:
        return await line.ask(command)
    except Exception as fault:
        return fault


def figure(server: RedisServer, name: str) -> int:
    with closing(redis.Redis(port=server.port)) as client:
        found: Any = client.info("stats")
        return int(found[name])


def test_every_caller_gets_its_own_answer_and_a_refusal_is_of_one_alone(
    redis_server: RedisServer,
) -> None:
    async def scenario() -> None:
        line = line_to(redis_server.fresh_url())
        calls = [line.ask(command(b"INCRBY", b"n", b"1")) for _ in range(500)]
        calls.insert(250, line.ask(command(b"INCRBY", b"n", b"no number")))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(answers.pop(250), ResponseError)
        assert answers == list(range(1, 501))
        await line.close()

    asyncio.run(scenario())


def test_commands_of_the_same_moment_are_sent_together(own_redis: RedisServer) -> None:
    async def scenario() -> None:
        line = line_to(own_redis.url)
        await line.ask(command(b"PING"))
        before = figure(own_redis, "total_reads_processed")
        await asyncio.gather(*[line.ask(command(b"INCR", b"n")) for _ in range(200)])
        # Those of `figure` itself are among them.
        assert figure(own_redis, "total_reads_processed") - before < 20
        await line.close()

    asyncio.run(scenario())


def test_a_caller_that_gave_up_leaves_the_answers_of_others_in_order(
    redis_server: RedisServer,
) -> None:
    async def scenario() -> None:
        line = line_to(redis_server.fresh_url())
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(line.ask(command(b"ECHO", b"%d" % number))) for number in range(9)
            ]
            await asyncio.sleep(0)
            calls[3].cancel()
        assert calls.pop(3).cancelled()
        answers = [call.result() for call in calls]
        assert answers == [b"%d" % number for number in range(9) if number != 3]
        await line.close()

    asyncio.run(scenario())


def test_what_is_on_its_way_fails_when_redis_goes_and_the_next_call_connects_anew(
    own_redis: RedisServer,
) -> None:
    async def scenario() -> None:
        line = line_to(own_redis.url)
        await line.ask(command(b"SET", b"n", b"1"))
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(outcome(line, command(b"BLPOP", b"none", b"0"))),
                group.create_task(outcome(line, command(b"INCR", b"n"))),
            ]
            await asyncio.sleep(0.05)
            own_redis.end()
        assert all(isinstance(call.result(), (RedisError, OSError)) for call in calls)
        own_redis.start()
        assert await line.ask(command(b"INCR", b"n")) == 1
        await line.close()

    asyncio.run(scenario())


def test_a_connection_that_was_closed_while_idle_is_not_used(own_redis: RedisServer) -> None:
    async def scenario() -> None:
        line = line_to(own_redis.url)
        await line.ask(command(b"PING"))
        own_redis.end()
        own_redis.start()
        for _ in range(2):
            await asyncio.sleep(0)  # the event loop reads the end of the connection
        assert await line.ask(command(b"ECHO", b"again")) == b"again"
        await line.close()

    asyncio.run(scenario())


def test_a_connection_that_the_network_lost_during_a_rest_is_replaced(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keepalive, "REST_S", -1.0)  # every pause is a rest

    async def scenario() -> None:
        async with proxy(redis_server.port) as network:
            line = line_to(f"redis://127.0.0.1:{network.port}/0")
            await line.ask(command(b"PING"))
            network.silence()
            calls = [line.ask(command(b"ECHO", b"%d" % number)) for number in range(9)]
            assert await asyncio.gather(*calls) == [b"%d" % number for number in range(9)]
            await line.close()

    asyncio.run(scenario())


def test_a_connection_that_works_is_kept_after_a_rest(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keepalive, "REST_S", -1.0)
    monkeypatch.setattr(keepalive, "SIGN_S", WITHIN_S)

    async def scenario() -> None:
        async with proxy(redis_server.port) as network:
            line = line_to(f"redis://127.0.0.1:{network.port}/0")
            for number in range(3):
                assert await line.ask(command(b"ECHO", b"%d" % number)) == b"%d" % number
            assert network.opened == 1
            await line.close()

    asyncio.run(scenario())


def test_a_connection_that_ends_while_it_is_checked_is_replaced(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keepalive, "REST_S", -1.0)
    monkeypatch.setattr(keepalive, "SIGN_S", WITHIN_S)

    async def scenario() -> None:
        async with proxy(redis_server.port) as network:
            line = line_to(f"redis://127.0.0.1:{network.port}/0")
            await line.ask(command(b"PING"))
            network.reset()  # the event loop has not noticed yet
            assert await line.ask(command(b"ECHO", b"again")) == b"again"
            await line.close()

    asyncio.run(scenario())


def test_the_system_looks_after_connections_that_rest(redis_server: RedisServer) -> None:
    async def scenario() -> None:
        client = RedisClient(redis_server.fresh_url(), QUICK, Clock())
        await client.find_run()
        link = client._pipelined._link
        assert link is not None
        used = link._transport.get_extra_info("socket")
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for option, value in keepalive.TCP_OPTIONS.items():
            assert used.getsockopt(socket.IPPROTO_TCP, option) == value
        await client.close()

    asyncio.run(scenario())


def test_a_connection_that_cannot_be_used_is_closed() -> None:
    """Redis accepts the connection, and is still loading its data."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(b"+OK\r\n" * data.count(b"SETINFO"))
            if b"INFO\r\n$6\r\nserver" in data:
                writer.write(b"-LOADING Redis is loading the dataset in memory\r\n")
        writer.close()
        ended.set()

    async def scenario() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            line = line_to(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0")
            fault = await outcome(line, command(b"PING"))
            assert isinstance(fault, BusyLoadingError)
            async with asyncio.timeout(WITHIN_S):
                await ended.wait()
            await line.close()

    asyncio.run(scenario())


def test_a_command_that_is_not_answered_ends_by_the_deadline(redis_server: RedisServer) -> None:
    async def scenario() -> None:
        line = PipelinedConnection(ConnectionPool.from_url(redis_server.fresh_url()), ANSWER_S)
        with pytest.raises(TimeoutError):
            await line.ask(command(b"BLPOP", b"none", b"0"))
        assert await line.ask(command(b"ECHO", b"again")) == b"again"
        await line.close()

    asyncio.run(scenario())


def test_a_redis_that_has_lost_the_scripts_is_given_them(
    deployment: Deployment, redis_server: RedisServer
) -> None:
    async def scenario() -> None:
        async with deployment.node() as store:
            await store.enqueue([new(payload=b"1"), new(payload=b"2", idempotency_key="k")])
            with closing(redis.Redis(port=redis_server.port)) as client:
                client.script_flush()
            jobs = [new(payload=b"3"), new(payload=b"4", idempotency_key="l")]
            first = (await store.enqueue(jobs)).ids
            with closing(redis.Redis(port=redis_server.port)) as client:
                client.script_flush()
            await store.enqueue([new(payload=b"5")])
            again = (await store.enqueue([new(payload=b"6", idempotency_key="l")])).ids
            assert again == first[1:]
            assert sorted(await drain(store, "t")) == [b"1", b"2", b"3", b"4", b"5"]

    asyncio.run(scenario())
