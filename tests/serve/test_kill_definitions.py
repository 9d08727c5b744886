"""`kill -9` directly after the answer to a definition: the next start knows the definition."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.compat.client import Channel, Method, is_method
from tools.server import Server


@contextmanager
def channel_until_kill(server: Server) -> Iterator[Channel]:
    """Start the broker, give a channel to the block, and kill the broker after it."""
    server.start()
    connection = server.connect()
    try:
        yield connection.channel()
    finally:
        server.kill()
        connection.socket.close()


def test_answered_definitions_survive_a_kill(tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("w+") as log:
        server = Server(tmp_path / "data", log)
        with channel_until_kill(server) as channel:
            channel.call("exchange.declare", exchange="e", type="fanout", durable=True)
            channel.call("queue.declare", queue="kept", durable=True)
            channel.call("queue.bind", queue="kept", exchange="e")
        with channel_until_kill(server) as channel:
            channel.publish("e", "", b"m", {"delivery_mode": 2})
            message = channel.get("kept", no_ack=True)
            assert isinstance(message, Method)
            assert message.body == b"m"
            channel.call("queue.declare", queue="last", durable=True)
            channel.call("queue.delete", queue="kept")
        with channel_until_kill(server) as channel:
            found = channel.call("queue.declare", queue="last", passive=True)
            assert is_method(found, "queue.declare-ok")
            deleted = channel.call("queue.declare", queue="kept", passive=True)
            assert is_method(deleted, "channel.close")
