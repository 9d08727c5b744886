"""Connecting: a wrong login is told at once, and a bus with several addresses finds a broker."""

from __future__ import annotations

import asyncio
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from leveret.bus import Bus, LoginRefusedError, NotConnectedError, QueueType, topic
from leveret.bus.connections import connection
from leveret.bus.connections.connection import BrokerConnection
from leveret.errors import ConfigError
from leveret.testing import broker
from tests.bus.nodes import Node
from tests.bus.stage import FAST, WAIT_S, Placed, Seen, pytestmark_bus
from tests.proxy import proxy
from tests.tls.certificates import TestAuthority
from tools.ports import HOST, free_port

pytestmark = pytestmark_bus
FOREVER_S = 600.0  # of a start, which must not use it


def bus_of(urls: str | list[str], prefix: str) -> Bus:
    return Bus(urls, topic.layout(f"{prefix}.q", queue_type=QueueType.CLASSIC), settings=FAST)


async def test_wrong_password_is_told_at_once(node: Node, prefix: str) -> None:
    url = f"amqp://guest:wrong-one@{HOST}:{node.port}/"
    with pytest.raises(LoginRefusedError, match="refused the user 'guest' or its pass") as told:
        await bus_of(url, prefix).start(FOREVER_S)
    assert "wrong-one" not in str(told.value)


async def test_wrong_vhost_is_told_at_once(node: Node, prefix: str) -> None:
    with pytest.raises(LoginRefusedError, match=r"refused the vhost .*missing"):
        await bus_of(f"{node.url}missing", prefix).start(FOREVER_S)


def test_a_cancelled_start_leaves_nothing_to_do_without_a_loop(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector may find the connection in a thread without a loop."""
    made: list[Any] = []
    aio_pika_connection = connection._Connection

    class Kept(aio_pika_connection):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            made.append(self)

    async def start() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.0):
                await BrokerConnection.open(node.url, "name", FAST)

    monkeypatch.setattr(connection, "_Connection", Kept)
    with asyncio.Runner() as runner, warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        runner.run(start())
        assert len(made) == 1
        collecting = threading.Thread(target=made.clear)
        collecting.start()
        collecting.join()
    assert [str(warning.message) for warning in found] == []


async def test_one_node_that_refuses_the_login_is_passed_over(node: Node, prefix: str) -> None:
    async with bus_of([f"{node.url}missing", node.url], prefix) as bus:
        assert await bus.publish(Placed(1), routing_key=f"{prefix}.none", mandatory=False)


async def test_bus_moves_to_the_next_address(node: Node, prefix: str) -> None:
    """The first address is dead. The second one dies later."""
    async with proxy(node.port) as second, proxy(node.port) as third:
        nowhere = f"amqp://guest:guest@{HOST}:{free_port()}/"
        bus = bus_of([nowhere, second.url, third.url], prefix)
        seen: Seen[int] = Seen()

        @bus.on(Placed)
        async def note(event: Placed) -> None:
            await seen.add(event.number)

        async with bus:
            await bus.publish(Placed(1))
            assert third.is_empty.is_set()
            await second.close()
            await bus.publish(Placed(2))
            await seen.wait_for({1, 2})
            assert not third.is_empty.is_set()


def test_no_address_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError):
        bus_of([], prefix)


async def test_tls_with_a_certificate_of_the_client(tmp_path: Path) -> None:
    """The parameters of the address that docs/bus.md names."""
    authority = TestAuthority(tmp_path)
    server, client = authority.server(), authority.server("client")
    files: dict[str, Any] = {"tls_cert": server.cert, "tls_key": server.key}
    files |= {"tls_ca": authority.ca, "tls_verify": "required"}
    with broker(amqps_port=0, **files) as running:
        address = running.node.amqps_address
        assert address is not None
        url = f"amqps://guest:guest@{HOST}:{address[1]}/"
        own = f"certfile={client.cert}&keyfile={client.key}"
        async with bus_of(f"{url}?cafile={authority.ca}&{own}", "t") as bus:
            await bus.publish(Placed(1), routing_key="t.none", mandatory=False)
        reason = await why_not_started(bus_of(f"{url}?{own}", "t"))
        assert "certificate verify failed" in reason


async def why_not_started(bus: Bus) -> str:
    """Return the error of a start, which takes all of its time. A busy machine gets more of it."""
    timeout_s = 1.0
    while True:
        with pytest.raises(NotConnectedError) as told:
            await bus.start(timeout_s)
        if "no broker within" not in str(told.value) or timeout_s > WAIT_S:
            return str(told.value)
        timeout_s *= 4
