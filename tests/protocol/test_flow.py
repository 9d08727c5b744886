"""Flow control of sockets, with a transport that only notes whether it is read from."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from leveret.amqp.sockets import QUOTA_BYTES, AmqpProtocol, Sockets
from leveret.listening.clients import Client
from tests.compat import wire
from tests.protocol.stage import Stage, method, opening, publish

BEAT = wire.frame(wire.HEARTBEAT, 0, b"")


class Line:
    """A transport without a socket."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.sent = b""
        self.fault: Exception | None = None  # of the next write
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        if self.fault is not None:
            raise self.fault
        self.sent += data

    def writelines(self, pieces: list[bytes]) -> None:
        self.sent += b"".join(pieces)

    def get_extra_info(self, name: str) -> Any:
        return None

    def set_write_buffer_limits(self, high: int) -> None:
        """Accept any limit."""

    def get_write_buffer_size(self) -> int:
        return 0


def opened(loop: asyncio.AbstractEventLoop) -> tuple[Line, AmqpProtocol]:
    stage = Stage()
    broker = stage.broker

    def end_turn() -> None:
        broker.end_turn()
        broker.perform()
        sockets.flush()

    sockets = Sockets(
        stage.front,
        loop,
        lambda: broker.begin_turn(stage.now_ms),
        end_turn,
        lambda: None,
        lambda size: None,
        lambda: None,
    )
    return _opened(sockets)


def opened_on(first: AmqpProtocol) -> tuple[Line, AmqpProtocol]:
    """Return another connection of the same node."""
    return _opened(first._sockets)


def _opened(sockets: Sockets) -> tuple[Line, AmqpProtocol]:
    line = Line()
    protocol = AmqpProtocol(sockets, Client("127.0.0.1", 1, is_local=True))
    protocol.connection_made(cast(asyncio.BaseTransport, line))
    receive(protocol, opening() + method(1, "channel.open"))
    return line, protocol


def receive(protocol: AmqpProtocol, data: bytes) -> None:
    buffer = protocol.get_buffer(-1)
    buffer[: len(data)] = data
    protocol.buffer_updated(len(data))


def test_flood_of_small_frames_rests_for_one_iteration_of_the_loop() -> None:
    async def flood() -> None:
        line, protocol = opened(asyncio.get_running_loop())
        receive(protocol, BEAT * 10)
        assert line.calls == []
        for _ in range(3):
            receive(protocol, BEAT * (QUOTA_BYTES // len(BEAT)))
            assert line.calls == ["pause"]
            await asyncio.sleep(0)
            assert line.calls == ["pause", "resume"]
            line.calls.clear()

    asyncio.run(flood())


def test_fault_in_sending_ends_its_connection_and_the_others_get_their_output() -> None:
    async def deliver() -> None:
        broken, first = opened(asyncio.get_running_loop())
        whole, second = opened_on(first)
        queue = method(1, "queue.declare", queue="q")
        receive(first, queue)
        receive(second, queue)
        for protocol in (first, second):
            receive(protocol, method(1, "basic.consume", queue="q"))
        broken.fault = MemoryError()
        whole.sent = b""
        receive(second, publish(1, "q", b"one") + publish(1, "q", b"two"))
        assert broken.is_aborted
        assert not whole.is_aborted
        assert b"two" in whole.sent

    asyncio.run(deliver())
