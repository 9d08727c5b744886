"""The simulated loop and network behave like asyncio with TCP, and repeat a run exactly."""

import asyncio
import hashlib

from tests.simulated.loop import new_loop
from tests.simulated.network import Network
from tests.simulated.schedule import Schedule

PORT = 5


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class _Collector(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.arrivals: list[tuple[float, int]] = []
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.arrivals.append((asyncio.get_running_loop().time(), len(data)))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


class _World:
    def __init__(self, seed: int) -> None:
        self.schedule = Schedule(seed)
        self.network = Network(self.schedule)
        self.server = new_loop(self.schedule, "a", self.network)
        self.client = new_loop(self.schedule, "b", self.network)
        self.server.run(self.server.create_server(_Echo, "a", PORT))

    def connect(self) -> tuple[asyncio.Transport, _Collector]:
        transport, protocol = self.client.run(self.client.create_connection(_Collector, "a", PORT))
        assert isinstance(protocol, _Collector)
        return transport, protocol


def _digest(seed: int) -> str:
    world = _World(seed)
    transport, got = world.connect()
    for size in (1, 1000, 200_000):
        transport.write(bytes(size))
    world.schedule.run_until(lambda: len(got.received) == 201_001, 10)
    return hashlib.sha256(repr(got.arrivals).encode()).hexdigest()


def test_same_seed_repeats_every_arrival(seed: int) -> None:
    assert _digest(seed) == _digest(seed)
    assert _digest(seed) != _digest(seed + 1)


def test_bytes_wait_while_the_way_is_cut(seed: int) -> None:
    world = _World(seed)
    transport, got = world.connect()
    world.network.cut("a", "b")
    transport.write(b"hello")
    world.schedule.run_for(5)
    assert got.received == b""
    world.network.heal()
    world.schedule.run_until(lambda: got.received == b"hello", 5)


def test_killed_process_is_noticed_and_silent_machine_is_not(seed: int) -> None:
    world = _World(seed)
    _, got = world.connect()
    world.network.kill(world.server)
    world.schedule.run_until(lambda: got.is_lost, 5)

    world = _World(seed)
    _, got = world.connect()
    world.network.kill(world.server, is_silent=True)
    world.schedule.run_for(60)
    assert not got.is_lost


def test_killed_node_runs_nothing_more(seed: int) -> None:
    world = _World(seed)
    steps: list[float] = []

    async def work() -> None:
        while True:
            steps.append(asyncio.get_running_loop().time())
            await asyncio.sleep(1)

    world.server.start(work())
    world.schedule.run_for(3.5)
    assert len(steps) == 4
    world.network.kill(world.server)
    world.schedule.run_for(10)
    assert len(steps) == 4


def test_timeout_of_asyncio_uses_simulated_time(seed: int) -> None:
    world = _World(seed)

    async def wait() -> float:
        try:
            async with asyncio.timeout(1000):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            return asyncio.get_running_loop().time()
        return 0.0

    assert world.client.run(wait(), within_s=2000) >= 1000


def test_writer_that_fills_the_way_is_paused(seed: int) -> None:
    world = _World(seed)
    transport, got = world.connect()
    world.network.cut("b", "a")
    states: list[bool] = []
    got.pause_writing = lambda: states.append(True)  # type: ignore[method-assign]
    got.resume_writing = lambda: states.append(False)  # type: ignore[method-assign]
    transport.write(bytes(100_000))
    assert states == [True]
    world.network.heal()
    world.schedule.run_until(lambda: len(got.received) == 100_000, 10)
    assert states == [True, False]
