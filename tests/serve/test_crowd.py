"""Many AMQP connections that are not opened: other addresses get in, and local administrators."""

import contextlib
import socket
from collections.abc import Iterator

import pika
import pytest

from leveret.auth.limits import LOCAL_RESERVE
from leveret.testing.broker import RunningBroker, broker
from tests.http.management import Api

ATTACKER = "127.0.0.2"
WITHIN_S = 60
AMQP = b"AMQP\x00\x00\x09\x01"


@contextlib.contextmanager
def crowd_of(server: RunningBroker, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                socket.create_connection(
                    (server.host, server.port), WITHIN_S, source_address=(ATTACKER, 0)
                )
            )
            for _ in range(count)
        ]


def is_greeted(client: socket.socket) -> bool:
    try:
        client.sendall(AMQP)
        return client.recv(1) == b"\x01"
    except ConnectionError:
        return False


def connect(server: RunningBroker, user: str = "guest") -> pika.BlockingConnection:
    login = pika.PlainCredentials(user, user)
    return pika.BlockingConnection(
        pika.ConnectionParameters(server.host, server.port, credentials=login)
    )


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_connections_before_login_are_limited_for_each_address(loop: str) -> None:
    with broker(unopened_per_address_max=5, event_loop=loop) as server:
        with crowd_of(server, 12) as crowd:
            assert [is_greeted(each) for each in crowd] == [True] * 5 + [False] * 7
            connect(server).close()
            crowd[0].close()
            while not is_one_more_greeted(server):  # until the broker has seen the close
                pass


def is_one_more_greeted(server: RunningBroker) -> bool:
    with crowd_of(server, 1) as crowd:
        return is_greeted(crowd[0])


def test_open_connections_do_not_count_as_unopened() -> None:
    with broker(unopened_per_address_max=1) as server:
        opened = [connect(server) for _ in range(5)]
        for each in opened:
            each.close()
        connect(server).close()


def test_local_administrator_gets_in_when_the_node_has_all_its_connections() -> None:
    with broker(http=True, connections_max=1) as server:
        api = Api(server)
        assert api.put("users/shop", {"password": "shop", "tags": ""}) == 201
        given = {"configure": ".*", "write": ".*", "read": ".*"}
        assert api.put("permissions/%2F/shop", given) == 201
        opened = [connect(server, "shop")]
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connect(server, "shop")
        opened += [connect(server) for _ in range(LOCAL_RESERVE)]
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connect(server)
        for each in opened:
            each.close()
