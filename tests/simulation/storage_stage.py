"""A broker with its store on a fake disk: no sockets, no clock, no event loop.

`StorageStage` is the `Stage` of the protocol tests with a store. The log writes in its thread as in
a node, but its reports wait in a `ManualLoop` until the stage takes them. `sync` runs until
everything is on disk. A test that holds reports back (`holds`) sees the state before them. One
block is being written at a time, and the stage waits for its report, so every run is the same,
including the order of disk operations.
"""

from __future__ import annotations

import asyncio
import queue as queues
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final, cast

from leveret.amqp.commit_gate import CommitGate
from leveret.amqp.connection_base import ConnectionLimits
from leveret.definitions import Definitions
from leveret.engine.message import Message
from leveret.journal.records import NOWHERE, OFFSET_BITS
from leveret.storage.replication import Replication
from leveret.storage.store import SYNC, Store
from leveret.testing.disk import FakeDisk
from tests.compat.client import Method
from tests.protocol.stage import START_MS, Peer, Stage, method, publish

REPORT_WITHIN_S: Final = 60.0
PERSISTENT: Final[dict[str, object]] = {"delivery_mode": 2}


class Timer:
    """A callback that waits for its time."""

    def __init__(self, delay_s: float, callback: Callable[..., object], arguments: tuple[Any, ...]):
        self.delay_s = delay_s
        self._callback = callback
        self._arguments = arguments
        self.is_done = False

    def cancel(self) -> None:
        self.is_done = True

    def run(self) -> None:
        if not self.is_done:
            self.is_done = True
            self._callback(*self._arguments)


class ManualLoop:
    """The part of an event loop that the log needs, run by hand."""

    def __init__(self) -> None:
        self.reports: queues.SimpleQueue[Timer] = queues.SimpleQueue()
        self.timers: list[Timer] = []
        self._time_s = 0.0

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        callback(*arguments)

    def call_soon_threadsafe(self, callback: Callable[..., object], *arguments: Any) -> None:
        self.reports.put(Timer(0, callback, arguments))

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        timer = Timer(delay_s, callback, arguments)
        self.timers.append(timer)
        return timer

    def waiting(self) -> list[Timer]:
        """Return timers that have not run."""
        self.timers = [timer for timer in self.timers if not timer.is_done]
        return self.timers

    def time(self) -> float:
        """Return a later time with each call, so that rate-limited work is done at once."""
        self._time_s += 1.0
        return self._time_s


class StorageStage(Stage):
    """One broker on one disk."""

    def __init__(
        self,
        disk: FakeDisk,
        *,
        file_bytes: int = 1 << 20,
        now_ms: int = START_MS,
        limits: ConnectionLimits | None = None,
        holds: bool = False,
        durability: str = SYNC,
        free_min_bytes: int = 0,
        reserve_bytes: int = 0,
        window: int = 0,
        replication: Replication | None = None,
    ) -> None:
        super().__init__(limits)
        self._window = window  # messages of a queue in memory, if not the default
        self.now_ms = now_ms
        self.broker.begin_turn(now_ms)
        self.disk = disk
        self.loop = ManualLoop()
        self.alarms: list[bool] = []
        self.holds = holds  # reports of the log wait for `sync`
        self._report: Timer | None = None  # the last report of the log's thread
        self.definitions = Definitions(self.broker, "hare", "4.3.0")
        self.store = Store(disk, self.broker, durability)
        self.found = self.store.open(
            cast(asyncio.AbstractEventLoop, self.loop),
            end_turn=self._on_synced,
            on_alarm=self._on_alarm,
            file_bytes=file_bytes,
            free_min_bytes=free_min_bytes,
            reserve_bytes=reserve_bytes,
            replication=replication,
        )
        store = self.store
        self.gate = CommitGate(self.front, store.block_to_await, store.wait_for_commit)
        store.on_answered = self.gate.on_answered
        self.store.compactor.stable_ms = 0  # sparse files are compacted at once
        self._set_windows()

    def _set_windows(self) -> None:
        for queue in self.broker.slots.queues:
            if queue is not None and self._window:
                queue.ready.window = self._window
                queue.scheduled.window = self._window

    def _on_synced(self) -> None:
        self.broker.begin_turn(self.now_ms)
        self.end_turn()

    def _on_alarm(self, is_on: bool) -> None:
        self.alarms.append(is_on)

    def end_turn(self) -> None:
        """End a turn like the runtime: the engine, the log, then output to the peers."""
        broker = self.broker
        turn = broker.turn
        while True:
            broker.end_turn()
            broker.perform()
            if turn.dirty or turn.ended:
                continue
            self.gate.flush()
            self.store.flush()
            self._await_report()
            self._flush()
            self._set_windows()
            if turn.leaving and not turn.is_log_full():
                broker.begin_turn(self.now_ms)
            elif not turn.dirty and not self.front.dirty:
                break
        if not self.holds:
            self.sync()

    def run_one_turn(self) -> None:
        """Wake everything that is due in one turn alone, and wait until its block is written."""
        self.broker.on_pulse(self.now_ms)
        self.broker.end_turn()
        self.broker.perform()
        self.store.journal.must_sync = True  # otherwise the block waits for a timer
        self.store.flush()
        self._await_report()

    def is_writing(self) -> bool:
        """Return True if a block is being written, or its report was not taken yet."""
        return self.store.log.is_writing()

    def _await_report(self) -> None:
        """Wait for the thread; its report is not processed yet."""
        if self._report is None and self.is_writing():
            self._report = self.loop.reports.get(timeout=REPORT_WITHIN_S)

    def take_report(self) -> bool:
        """Process a report of the log's thread; return False if there is none."""
        self._await_report()
        report = self._report
        if report is None:
            return False
        self._report = None
        report.run()
        return True

    def sync(self) -> None:
        """Run until no block is being written. Acks that no client waits for stay in memory."""
        while self.take_report():
            pass

    def sync_all(self) -> None:
        """Run until everything is on disk, including acks."""
        self.sync()
        self.run_timers()
        self.sync()

    def run_timers(self) -> None:
        """Run the timers that write acks and retry after a full disk."""
        for timer in list(self.loop.waiting()):
            timer.run()
            self._await_report()
        if not self.holds:
            self.sync()

    def stop(self) -> FakeDisk:
        """Stop the node cleanly, and return its disk."""
        self.store.close()
        return self.disk.copy()

    def abandon(self) -> None:
        """Lose power: nothing more reaches the disk."""
        self.disk.unplug()
        self.store.close()

    def killed(self, moment: int | None = None) -> FakeDisk:
        """Kill the node: everything that was written is kept."""
        self.abandon()
        return self.disk.killed(moment)

    def crashed(self, rng: Random, moment: int | None = None) -> FakeDisk:
        """Lose power: writes that were not synced may be lost."""
        self.abandon()
        return self.disk.crash(rng, moment)


class Client:
    """A client with one channel that waits for confirms, and another that consumes."""

    def __init__(self, stage: StorageStage) -> None:
        self.stage = stage
        self.peer: Peer = stage.opened()
        self.peer.open_channel(1, 2, 3)
        self.published = 0
        self.confirmed: dict[int, bool] = {}  # by publish: True for ack, False for nack
        self._through = 0
        self.deliveries: list[Method] = []
        self.others: list[Method] = []
        self.call(1, "confirm.select")

    def call(self, channel: int, name: str, **fields: object) -> list[Method]:
        """Send a method, and return the answers."""
        self.peer.feed(method(channel, name, **fields))
        while self.peer.connection.holds and self.stage.take_report():
            pass  # the answer waits for the log
        self.read()
        answers = self.others
        self.others = []
        return answers

    def publish(
        self,
        key: str,
        body: bytes,
        properties: dict[str, object] | None = None,
        exchange: str = "",
    ) -> int:
        """Publish in a turn of its own, and return the number of its confirm."""
        self.published += 1
        properties = PERSISTENT if properties is None else properties
        self.peer.feed(publish(1, key, body, properties, exchange=exchange))
        self.read()
        return self.published

    def read(self) -> None:
        """Process input: confirms by number, deliveries in order, other methods apart."""
        for event in self.peer.take():
            if not isinstance(event, Method):
                continue
            if event.name in ("basic.ack", "basic.nack"):
                self._on_confirm(event)
            elif event.name == "basic.deliver":
                self.deliveries.append(event)
            elif event.name != "basic.cancel":  # its stream was deleted
                self.others.append(event)

    def _on_confirm(self, event: Method) -> None:
        tag = cast(int, event.fields["delivery_tag"])
        is_ack = event.name == "basic.ack"
        first = self._through + 1 if event.fields["multiple"] else tag
        for number in range(first, tag + 1):
            assert number not in self.confirmed, f"publish {number} was confirmed twice"
            self.confirmed[number] = is_ack
        while self._through + 1 in self.confirmed:
            self._through += 1

    def declare(self, name: str, **arguments: object) -> None:
        (answer,) = self.call(2, "queue.declare", queue=name, durable=True, arguments=arguments)
        assert answer.name == "queue.declare-ok", answer

    def get(self, name: str, *, no_ack: bool = False) -> Method | None:
        """Take one message on channel 3; None if the queue is empty."""
        (answer,) = self.call(3, "basic.get", queue=name, no_ack=no_ack)
        return answer if answer.name == "basic.get-ok" else None

    def drain(self, name: str) -> list[Method]:
        """Take all messages."""
        found: list[Method] = []
        while (message := self.get(name, no_ack=True)) is not None:
            found.append(message)
        return found


def ended(disk: FakeDisk, rng: Random, moment: int, ending: str) -> FakeDisk:
    """Return the disk of a node that was `killed`, had `power lost`, or `either` of them.

    With `either`, power may be lost after a kill, and take what the killed node had not synced.
    """
    is_kill = rng.random() < 0.5 if ending == "either" else ending == "killed"
    return disk.killed(moment) if is_kill else disk.crash(rng, moment)


def bodies_in(stage: StorageStage, name: str) -> list[bytes]:
    """Take all messages of a queue, and return their bodies in order."""
    return [message.body for message in Client(stage).drain(name)]


def positions_by_file(stage: StorageStage) -> Counter[int]:
    """Return the number of messages in each log file, counted in the queues."""
    journal = stage.store.journal
    positions: list[int] = []
    files: list[int] = []
    flying = _in_flight(stage)
    for queue in stage.broker.slots.queues:
        if queue is None:
            continue
        held = [*queue.ready.messages(), *queue.scheduled.messages()]
        positions.extend(int(m.position) for m in held + flying.get(int(queue.slot), []))
        for run in queue.ready.paged_runs():
            files.extend([int(run.file)] * int(run.left()))
        for file, count in queue.scheduled.in_log.counts().items():
            files.extend([file] * count)
    for position in positions:
        while position in journal.moved:
            position = journal.moved[position]
        if position != NOWHERE:
            files.append(position >> OFFSET_BITS)
    return Counter(files)


def _in_flight(stage: StorageStage) -> dict[int, list[Message]]:
    found: dict[int, list[Message]] = {}
    for connection in stage.peers:
        for channel in connection.channels.values():
            for message in channel.unacked.messages():
                found.setdefault(int(message.queue), []).append(message)
    return found
