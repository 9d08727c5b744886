"""A model of the durable state, and a load that keeps broker and model in step.

After every block of the log, the model knows what a start must find: the waiting messages of each
queue in order, which of them were delivered, how often they were returned, the scheduled messages,
and the queues and bindings. Whatever happens to the disk, the state after a start must be that of
the last block that was found, and that block must not be older than the last confirm.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, cast

from leveret.engine.streams.stream import Stream
from leveret.testing.disk import FakeDisk
from tests.compat.client import Method
from tests.compat.wire import Typed
from tests.protocol.stage import method, name_of
from tests.simulation.storage_stage import PERSISTENT, Client, StorageStage

RETRY_MS: Final = 1000
SOON_MS: Final = 3_600_000  # everything that is scheduled is due by then

FIXED: Final[dict[str, dict[str, object]]] = {
    "plain": {},
    "prio": {"x-max-priority": 5},
    "quorum": {"x-queue-type": "quorum"},
    "retry": {
        "x-delayed-retry-type": "all",
        "x-delayed-retry-min": RETRY_MS,
        "x-delayed-retry-max": RETRY_MS * 100,
        "x-delivery-limit": 100,
    },
    "dead": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"},
    "grave": {},
    "delayed": {"x-delayed": True},
}
PASSING: Final = ("one", "two", "three")
ORDERED: Final = ("plain", "prio", "dead", "grave", "delayed", *PASSING)


class Entry:
    """A message of the model."""

    def __init__(self, body: bytes, place: int, priority: int, persistent: bool) -> None:
        self.body = body
        self.place = place  # order of arrival in its queue
        self.priority = priority
        self.persistent = persistent
        self.delivered = False
        self.flying = False
        self.returns = 0
        self.failures = 0
        self.due_ms = 0  # 0 = ready
        self.deaths = 0

    def copied(self) -> Entry:
        copy = Entry.__new__(Entry)
        copy.__dict__.update(self.__dict__)
        return copy


class Queued:
    """A queue of the model."""

    def __init__(self) -> None:
        self.entries: dict[bytes, Entry] = {}
        self.mark = -1  # the last delivered place

    def copied(self) -> Queued:
        copy = Queued()
        copy.entries = {body: entry.copied() for body, entry in self.entries.items()}
        copy.mark = self.mark
        return copy

    def order(self) -> list[Entry]:
        """Return the ready messages, then the scheduled ones by due time."""
        return sorted(self.entries.values(), key=lambda e: (e.due_ms, -e.priority, e.place))

    def head(self) -> Entry | None:
        ready = [e for e in self.order() if not e.flying and e.due_ms == 0]
        return ready[0] if ready else None


class Streamed:
    """A stream of the model."""

    def __init__(self, life: int) -> None:
        self.life = life  # a stream that was deleted and declared again has another number
        self.bodies: list[bytes] = []  # by offset, including bodies that retention has removed
        self.cursors: dict[str, int] = {}

    def copied(self) -> Streamed:
        copy = Streamed(self.life)
        copy.bodies = self.bodies.copy()
        copy.cursors = self.cursors.copy()
        return copy


class State:
    """Everything durable."""

    def __init__(self) -> None:
        self.queues: dict[str, Queued] = {}
        self.held: list[Entry] = []  # messages in the delayed exchange
        self.bound: set[str] = set()  # transient queues bound to "fan"
        self.streams: dict[str, Streamed] = {}

    def copied(self) -> State:
        """Return a copy. `copy.deepcopy` takes a quarter of the CPU time of a crash test."""
        copy = State()
        copy.queues = {name: queue.copied() for name, queue in self.queues.items()}
        copy.held = [entry.copied() for entry in self.held]
        copy.bound = self.bound.copy()
        copy.streams = {name: stream.copied() for name, stream in self.streams.items()}
        return copy

    def after_start(self) -> State:
        """Return the state after the node ends and starts again."""
        left = self.copied()
        left.held = [e for e in left.held if e.persistent]
        for queue in left.queues.values():
            queue.entries = {e.body: e for e in queue.entries.values() if e.persistent}
            for entry in queue.entries.values():
                entry.flying = False
        return left


class Load:
    """Random commands to a broker and to the model."""

    def __init__(self, rng: Random, sizes: tuple[int, ...] = (0, 1, 20, 200)) -> None:
        self.rng = rng
        self.sizes = sizes  # additional body sizes
        self.state = State()
        self.states: dict[int, State] = {0: State()}  # by the last block of the state
        # Moment of the disk, block that was confirmed or whose definition was answered then.
        self.floors: list[tuple[int, int]] = []
        self._place = 0
        self._serial = 0
        self._seen_block = 0
        self._blocks: dict[int, int] = {}  # block by publish
        self._confirms_seen = 0
        self._asked: list[tuple[str, int]] = []  # expected answers to definitions, and their blocks
        self._flying: list[tuple[str, bytes, int]] = []

    def begin(self, stage: StorageStage) -> None:
        """Continue with a broker that was started from the given state."""
        self.stage = stage
        self.client = Client(stage)
        self._open_definer()
        self._asked = []
        self.floors = []
        self._blocks = {}
        self._confirms_seen = 0
        self._flying = []
        self._seen_block = stage.store.log.taken_block
        self.states = {self._seen_block: self.state.copied()}
        self._let_pass(0)  # messages that became due meanwhile

    def define(self) -> None:
        """Declare everything the load needs. Existing objects stay."""
        for name, arguments in FIXED.items():
            self.state.queues.setdefault(name, Queued())
            self._call("queue.declare", queue=name, durable=True, arguments=arguments)
        self._call("exchange.declare", exchange="fan", type="fanout", durable=True)
        later = {"x-delayed-type": "direct"}
        self._call(
            "exchange.declare",
            exchange="later",
            type="x-delayed-message",
            durable=True,
            arguments=later,
        )
        self._call("queue.bind", queue="plain", exchange="later", routing_key="plain")
        for name in ("plain", "prio"):
            self._call("queue.bind", queue=name, exchange="fan")

    def _open_definer(self) -> None:
        """Open a connection for definitions: their answers wait for the log."""
        self._definer = self.stage.opened()
        self._definer.open_channel(2)

    def define_queue(self, name: str) -> None:
        self.state.queues[name] = Queued()
        self._call("queue.declare", queue=name, durable=True, arguments=FIXED[name])

    def define_few(self) -> None:
        """A minimal load that writes every kind of record."""
        for name in ("plain", "prio", "quorum"):
            self.define_queue(name)
        self._call("exchange.declare", exchange="fan", type="fanout", durable=True)
        for name in ("plain", "prio"):
            self._call("queue.bind", queue=name, exchange="fan")

    def run_few(self, steps: int) -> None:
        """A load whose queues stay short."""
        actions = [self.publish, self.publish_to_all, *[self.get, self.settle] * 3]
        for _ in range(steps):
            self.rng.choice(actions)()
            if self.rng.random() < 0.5:
                self.write_acks()

    def actions(self) -> list[tuple[Callable[[], None], int]]:
        """Return the possible steps and their weights."""
        return [
            (self.publish, 8),
            (self.publish_transient, 2),
            (self.publish_to_all, 2),
            (self.publish_later, 2),
            (self.publish_delayed, 2),
            (self.get, 8),
            (self.settle, 8),
            (self.declare, 1),
            (self.delete, 1),
            (self.bind, 1),
            (self.purge, 1),
            (self.advance, 2),
            (self.write_acks, 2),
            (self.hear, 6),
        ]

    def run(self, steps: int) -> None:
        names = [action for action, weight in self.actions() for _ in range(weight)]
        for _ in range(steps):
            self.rng.choice(names)()

    def run_sparse(self, steps: int) -> None:
        """A load that consumes most messages soon and leaves some for ever."""
        actions = [
            *[self.publish] * 6,
            self.publish_transient,
            self.publish_to_all,
            self.publish_later,
            *[self.thin] * 3,
            self.settle,
            self.purge,
            *[self.advance] * 2,
            self.write_acks,
            *[self.hear] * 3,
        ]
        for _ in range(steps):
            self.rng.choice(actions)()

    def _call(self, name: str, **fields: object) -> None:
        log = self.stage.store.log
        self._definer.feed(method(2, name, **fields))
        block = int(log.taken_block) + (1 if self.stage.store.journal.waiting_bytes() else 0)
        self._asked.append((f"{name}-ok", block if self._definer.connection.holds else 0))
        self._note()

    def _note(self) -> None:
        """Remember the state of every new block, and which block was confirmed when."""
        taken = self.stage.store.log.taken_block
        while self._seen_block < taken:
            self._seen_block += 1
            self.states[self._seen_block] = self.state.copied()
        for event in self._definer.take():
            if name_of(event) == "connection.close":  # the log cannot be written
                self._asked.clear()
                self._open_definer()
                break
            answer, block = self._asked.pop(0)
            assert name_of(event) == answer, event
            self.floors.append((self.stage.disk.moment, block))
        self.client.read()
        confirmed = self.client.confirmed
        while self._confirms_seen < len(confirmed):
            self._confirms_seen += 1
            if confirmed[self._confirms_seen]:
                block = self._blocks[self._confirms_seen]
                self.floors.append((self.stage.disk.moment, block))

    def _new(self, name: str, priority: int = 0, *, persistent: bool = True) -> Entry:
        self._place += 1
        body = b"%d." % self._serial + b"x" * self.rng.choice(self.sizes)
        entry = Entry(body, self._place, priority, persistent)
        if name:
            self.state.queues[name].entries[body] = entry
        return entry

    def _publish(self, key: str, body: bytes, exchange: str = "", **properties: object) -> None:
        block = self.stage.store.log.taken_block + 1
        number = self.client.publish(key, body, {**PERSISTENT, **properties}, exchange)
        is_kept = properties.get("delivery_mode", 2) == 2
        self._blocks[number] = block if is_kept else 0
        self._note()

    def publish(self) -> None:
        name = self.rng.choice(sorted(self.state.queues))
        self._serial += 1
        if name == "prio":
            priority = self.rng.randrange(6)
            self._publish(name, self._new(name, priority).body, priority=priority)
        else:
            self._publish(name, self._new(name).body)

    def publish_transient(self) -> None:
        name = self.rng.choice([n for n in sorted(self.state.queues) if n not in ("quorum",)])
        self._serial += 1
        self._publish(name, self._new(name, persistent=False).body, delivery_mode=1)

    def publish_to_all(self) -> None:
        self._serial += 1
        body = self._new("plain").body
        self._copy_to_all(body)
        self._publish("", body, "fan")

    def _copy_to_all(self, body: bytes) -> None:
        for name in ("prio", *self.state.bound):
            self._place += 1
            self.state.queues[name].entries[body] = Entry(body, self._place, 0, True)

    def publish_later(self) -> None:
        self._serial += 1
        entry = self._new("")
        delay_ms = self.rng.randrange(1, 5000)
        entry.due_ms = self.stage.now_ms + delay_ms
        self.state.held.append(entry)
        self._publish("plain", entry.body, "later", headers={"x-delay": delay_ms})

    def publish_delayed(self) -> None:
        self._serial += 1
        entry = self._new("delayed")
        delay_ms = self.rng.randrange(1, 5000)
        entry.due_ms = self.stage.now_ms + delay_ms
        self._publish("delayed", entry.body, headers={"x-delay": delay_ms})

    def get(self) -> None:
        name = self.rng.choice(sorted(self.state.queues))
        message = self.client.get(name)
        queue = self.state.queues[name]
        if message is None:
            assert queue.head() is None
            return
        entry = queue.entries[message.body]
        assert not entry.flying
        if name in ORDERED:
            assert entry is queue.head()
        entry.flying = True
        entry.delivered = True
        if entry.persistent:
            queue.mark = max(queue.mark, entry.place)
        self._flying.append((name, entry.body, cast(int, message.fields["delivery_tag"])))
        self._note()

    def settle(self) -> None:
        """Ack, requeue or reject a message in flight."""
        if not self._flying:
            return
        name, body, tag = self._flying.pop(self.rng.randrange(len(self._flying)))
        if name not in self.state.queues or body not in self.state.queues[name].entries:
            return
        entry = self.state.queues[name].entries[body]
        fate = self.rng.choice(("ack", "ack", "nack", "reject", "refuse"))
        if fate == "ack" or entry.failures > 10:
            del self.state.queues[name].entries[body]
            self.client.peer.send(3, "basic.ack", delivery_tag=tag)
        elif fate == "refuse":
            self._refuse(name, entry)
            self.client.peer.send(3, "basic.reject", delivery_tag=tag, requeue=False)
        else:
            self._requeue(name, entry, failed=fate == "reject")
            method = f"basic.{fate}"
            self.client.peer.send(3, method, delivery_tag=tag, requeue=True)
        self._note()

    def thin(self) -> None:
        """Take messages and ack all of them but one."""
        before = len(self._flying)
        for _ in range(self.rng.randrange(1, 12)):
            self.get()
        taken = self._flying[before:]
        self._flying[before:] = taken[:1]
        for name, body, tag in taken[1:]:
            del self.state.queues[name].entries[body]
            self.client.peer.send(3, "basic.ack", delivery_tag=tag)
            self._note()

    def _refuse(self, name: str, entry: Entry) -> None:
        del self.state.queues[name].entries[entry.body]
        if name == "dead":
            self._place += 1
            dead = Entry(entry.body, self._place, 0, entry.persistent)
            dead.deaths = entry.deaths + 1
            self.state.queues["grave"].entries[entry.body] = dead

    def _requeue(self, name: str, entry: Entry, *, failed: bool) -> None:
        entry.flying = False
        entry.returns += 1
        entry.failures += failed
        if name == "retry":
            wait_ms = RETRY_MS * max(1, entry.failures)
            entry.due_ms = self.stage.now_ms + wait_ms

    def declare(self) -> None:
        name = self.rng.choice(PASSING)
        if name not in self.state.queues:
            self.state.queues[name] = Queued()
            self._call("queue.declare", queue=name, durable=True)

    def delete(self) -> None:
        name = self.rng.choice(PASSING)
        if name in self.state.queues:
            del self.state.queues[name]
            self.state.bound.discard(name)
            self._flying = [held for held in self._flying if held[0] != name]
            self._call("queue.delete", queue=name)

    def bind(self) -> None:
        name = self.rng.choice(PASSING)
        if name not in self.state.queues:
            return
        if name in self.state.bound:
            self.state.bound.discard(name)
            self._call("queue.unbind", queue=name, exchange="fan")
        else:
            self.state.bound.add(name)
            self._call("queue.bind", queue=name, exchange="fan")

    def purge(self) -> None:
        name = self.rng.choice(PASSING)
        if name in self.state.queues:
            queue = self.state.queues[name]
            queue.entries = {e.body: e for e in queue.entries.values() if e.flying}
            self._call("queue.purge", queue=name)

    def advance(self) -> None:
        self._let_pass(self.rng.randrange(1, 2000))

    def _let_pass(self, ms: int) -> None:
        now_ms = self.stage.now_ms + ms
        for entry in sorted(self.state.held, key=lambda e: (e.due_ms, e.place)):
            if entry.due_ms <= now_ms:
                self.state.held.remove(entry)
                self._place += 1
                entry.place = self._place
                entry.due_ms = 0
                self.state.queues["plain"].entries[entry.body] = entry
        if "delayed" in self.state.queues:
            for entry in self.state.queues["delayed"].order():
                if 0 < entry.due_ms <= now_ms:
                    self._place += 1
                    entry.place = self._place
                    entry.due_ms = 0
        if "retry" in self.state.queues:
            for entry in self.state.queues["retry"].entries.values():
                if entry.due_ms <= now_ms:
                    entry.due_ms = 0
        self.stage.advance(ms)
        self._note()

    def write_acks(self) -> None:
        self.stage.run_timers()
        self._note()

    def hear(self) -> None:
        """Process the report of the log, if reports are held back."""
        self.stage.take_report()
        self._note()


Found = dict[str, list[tuple[bytes, bool, int, int, int]]]


def found_in(stage: StorageStage) -> Found:
    """Empty every durable queue: body, redelivered, returns, failures, deaths of each message."""
    client = Client(stage)
    queues = sorted(stage.broker.vhost("/").queues.items())
    found: Found = {}
    for name, queue in queues:
        if isinstance(queue, Stream):
            found[name] = [(body, False, offset, 0, 0) for offset, body in read_all(stage, name)]
    stage.advance(SOON_MS)
    for name, queue in queues:
        if queue.durable and not isinstance(queue, Stream):
            found[name] = [_seen(message) for message in client.drain(name)]
    return found


def read_all(stage: StorageStage, name: str) -> list[tuple[int, bytes]]:
    """Return the offsets and bodies of a stream."""
    client = Client(stage)
    client.call(3, "basic.qos", prefetch_count=65_535)
    first = {"x-stream-offset": "first"}
    (answer,) = client.call(3, "basic.consume", queue=name, consumer_tag="all", arguments=first)
    assert answer.name == "basic.consume-ok"
    found = [(offset_of(message), message.body) for message in client.deliveries]
    client.peer.lose()
    return found


def offset_of(message: Method) -> int:
    """Return the offset in a delivery of a stream."""
    assert message.content is not None
    return cast(int, message.content.headers["x-stream-offset"].value)


def _seen(message: Method) -> tuple[bytes, bool, int, int, int]:
    assert message.content is not None
    headers = cast(dict[str, object], message.content.properties.get("headers", {}))
    deaths = cast(list[object], _plain(headers.get("x-death", [])))
    tables = [cast(dict[str, object], _plain(death)) for death in deaths]
    count = sum(cast(int, _plain(table["count"])) for table in tables)
    returns = cast(int, _plain(headers.get("x-acquired-count", 0)))
    failures = cast(int, _plain(headers.get("x-delivery-count", 0)))
    return message.body, bool(message.fields["redelivered"]), returns, failures, count


def _plain(value: object) -> object:
    return value.value if isinstance(value, Typed) else value


def check(state: State, found: Found, stage: StorageStage) -> None:
    """Check that the recovered messages are those of the state, in order."""
    left = state.after_start()
    assert sorted(found) == sorted([*left.queues, *left.streams])
    for name, stream in left.streams.items():
        _check_stream(name, stream, found[name], stage)
    for name, queue in left.queues.items():
        held = left.held if name == "plain" else []
        want = [*queue.order(), *sorted(held, key=lambda e: (e.due_ms, e.place))]
        bodies = [body for body, *_ in found[name]]
        if name in ORDERED:
            assert bodies == [e.body for e in want], name
        else:
            assert sorted(bodies) == sorted(e.body for e in want), name
        entries = {e.body: e for e in want}
        for body, redelivered, returns, failures, deaths in found[name]:
            _check_entry(name, entries[body], redelivered)
            assert deaths == entries[body].deaths
            if name in ("quorum", "retry"):
                assert (returns, failures) == (entries[body].returns, entries[body].failures)
    _check_bindings(left, stage)


def _check_stream(
    name: str, stream: Streamed, found: list[tuple[bytes, bool, int, int, int]], stage: StorageStage
) -> None:
    """Check every offset. Retention may have removed the oldest messages, but never all."""
    offsets = [offset for _, _, offset, _, _ in found]
    first = offsets[0] if offsets else 0
    assert offsets == list(range(first, len(stream.bodies))), name
    assert [body for body, *_ in found] == stream.bodies[first:], name
    if "limited" not in name:
        assert first == 0, name
    queue = stage.broker.vhost("/").queues[name]
    assert isinstance(queue, Stream)
    assert queue.cursors.cursors == stream.cursors, name


def _check_entry(name: str, entry: Entry, redelivered: bool) -> None:
    """A delivered message must be marked as redelivered. After a crash any message may be."""
    if entry.delivered:
        assert redelivered, (name, entry.body)


def _check_bindings(state: State, stage: StorageStage) -> None:
    exchanges = stage.broker.vhost("/").exchanges
    if "fan" not in exchanges:
        assert not state.bound
        return
    bound = {binding.target.name for binding in exchanges["fan"].bindings.values()}
    assert bound & set(PASSING) == state.bound


def start(
    disk: FakeDisk, load: Load, *, file_bytes: int, holds: bool = False, window: int = 0
) -> StorageStage:
    now_ms = load.stage.now_ms
    return StorageStage(disk, file_bytes=file_bytes, now_ms=now_ms, holds=holds, window=window)
