"""Federation links that change while their upstream is slow to answer."""

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest

from leveret.federation import manager
from leveret.testing.broker import broker
from tests.http.asking import ask
from tests.http.test_federation import Node
from tests.http.test_shovels import wait_until
from tests.proxy import Proxy, Way, proxy

POLICY = "/api/policies/%2F/p"


@pytest.fixture
def up() -> Iterator[Node]:
    with broker(http=True, node="up") as server:
        node = Node(server)
        with closing(node.connection):
            yield node


@pytest.fixture
def down() -> Iterator[Node]:
    """A broker with the queue `q`, bound to the exchange `x`."""
    with broker(http=True, node="down") as server:
        node = Node(server)
        with closing(node.connection):
            node.channel.exchange_declare("x", "direct")
            node.declare("q")
            node.channel.queue_bind("q", "x", "early")
            yield node


def federate(down: Node, line: Proxy) -> None:
    """Federate `x`. A link that fails stays in error: it does not connect again in the test."""
    value = {"uri": line.url, "reconnect-delay": 600}
    path = "/api/parameters/federation-upstream/%2F/u"
    assert ask(down.server, "PUT", path, {"value": value})[0] == 201
    down.put_policy("^x$", "exchanges", federation_upstream="u")


def test_binding_made_while_the_link_connects_is_made_at_the_upstream(up: Node, down: Node) -> None:
    def bind_late() -> None:
        wait_until(lambda: up.bindings_of("x") == {"early"})
        down.channel.queue_bind("q", "x", "late")
        vhost, federation = down.server.node.broker.vhost("/"), down.server.node.view.federation
        wait_until(lambda: federation._versions["/"] == int(vhost.version))

    async def play() -> None:
        async with proxy(up.server.port) as line:
            line.stalls_line = 2  # the link declares its internal exchange over this one
            await asyncio.to_thread(federate, down, line)
            await asyncio.to_thread(wait_until, lambda: line.opened == 2)
            first, second = line.lines
            first.silence([Way.BACK])  # the link makes its bindings, and waits for the answer
            second.flow()
            await asyncio.to_thread(bind_late)
            line.flow()
            await asyncio.to_thread(down.wait_for_links)
            await asyncio.to_thread(wait_until, lambda: up.bindings_of("x") == {"early", "late"})

    asyncio.run(play())


def test_new_link_waits_until_the_queue_of_every_older_link_is_deleted(
    up: Node, down: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion that is late would delete the queue of the new link."""
    monkeypatch.setattr(manager, "CLEAN_UP_S", 600.0)

    def fail(line: Proxy) -> None:
        federate(down, line)
        down.wait_for_links()
        line.stalls_line = line.opened + 1  # the ended link deletes its queue over this one

    def end_and_start_twice(line: Proxy) -> None:
        wait_until(lambda: down.links()[0]["status"] == "error")
        assert ask(down.server, "DELETE", POLICY)[0] == 204
        wait_until(lambda: line.opened == line.stalls_line)
        down.put_policy("^x$", "exchanges", federation_upstream="u")
        wait_until(down.links)
        restart = f"/api/federation-links/vhost/%2F/{down.links()[0]['id']}/down/restart"
        assert ask(down.server, "DELETE", restart)[0] == 204
        for _ in range(20):  # a link that does not wait is running by then
            assert [link["status"] for link in down.links()] == ["starting"]
        assert line.opened == line.stalls_line

    async def play() -> None:
        async with proxy(up.server.port) as line:
            await asyncio.to_thread(fail, line)
            line.reset()
            await asyncio.to_thread(end_and_start_twice, line)
            line.flow()
            await asyncio.to_thread(down.wait_for_links)
            assert "federation: x -> down" in up.queue_names()

    asyncio.run(play())
