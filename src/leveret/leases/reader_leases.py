"""All leases of a node: take epochs, ack them, and hold them again after a restart.

A lease is a session that holds messages without a timeout. The register has an entry that names its
messages. The entry is on disk before the reader gets an epoch, and a start takes the same messages
out of their queue again before any delivery. An ack settles the messages before it removes the
entry. So a kill in between leaves an epoch that is acked again, and never brings messages back.

Work is done in turns of bounded size. A lease serves one call at a time; another call meanwhile is
refused with LeaseBusyError and may be repeated.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from leveret.engine.broker import Broker
from leveret.engine.commands.local_session import LocalSession
from leveret.engine.commands.picking import Lookup, remove
from leveret.engine.commands.settling import ack_taken, give_back
from leveret.engine.insight.walk import arrived_ms
from leveret.engine.message import Message
from leveret.engine.queues.getting import lend, take_next
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.session import Outlet, Session
from leveret.errors import NotFoundError, PreconditionFailedError
from leveret.leases.lease import KIND, Epoch, ReaderLease, epoch_of

log = logging.getLogger(__name__)

LEASES_MAX: Final = 1000
EPOCHS_MAX: Final = 16  # unacked epochs of one lease
EPOCH_MESSAGES_MAX: Final = 1_000_000
EPOCH_BYTES_MAX: Final = 256 * 1024 * 1024  # of bodies, which stay in memory until the ack
EPOCH_RUNS_MAX: Final = 100_000  # of consecutive messages with the same time; the entry lists them
READER_CHARACTERS_MAX: Final = 200
TURN_MESSAGES: Final = 1000
TURN_BYTES: Final = 1024 * 1024
_ALL_BYTES: Final = 1 << 50

Key = tuple[str, str, str]  # vhost, queue, reader


class LeaseBusyError(PreconditionFailedError):
    """Another call uses the lease now."""


class ReaderLeases:
    """All leases of a node."""

    def __init__(
        self,
        broker: Broker,
        *,
        turn: Callable[[], AbstractContextManager[None]],
        synced: Callable[[], Awaitable[None]],
    ) -> None:
        self._broker = broker
        self._turn = turn
        self._synced = synced
        self._leases: dict[Key, ReaderLease] = {}

    def sessions(self) -> list[Session]:
        return [lease.session for lease in self._leases.values()]

    def of(self, queue: Queue) -> list[ReaderLease]:
        """Return the leases of a queue."""
        return [lease for lease in self._leases.values() if lease.queue is queue]

    def get(self, queue: Queue, reader: str) -> ReaderLease:
        lease = self._leases.get((queue.vhost, queue.name, reader))
        if lease is None or lease.queue is not queue:
            raise NotFoundError(f"no lease '{reader}' of queue '{queue.name}'")
        return lease

    async def take(
        self, queue: Queue, reader: str, number: int, count: int, bytes_max: int, user: str
    ) -> Epoch:
        """Return the epoch with this number, or fill a new one; empty if the queue is."""
        self._drop_orphans()
        lease = self._leases.get((queue.vhost, queue.name, reader))
        if lease is None:
            lease = self._open(queue, reader, user)
        known = lease.epochs.get(number)
        if known is not None:
            return known
        if number <= lease.last():
            raise PreconditionFailedError(
                f"epoch {number} of lease '{reader}' is over: the last one was {lease.last()}"
            )
        if len(lease.epochs) >= EPOCHS_MAX:
            raise PreconditionFailedError(
                f"lease '{reader}' has {EPOCHS_MAX} epochs that are not acked"
            )
        with _reserved(lease):
            epoch = await self._fill(lease, Epoch(number), count, bytes_max)
            if epoch.rows:
                with self._turn():
                    lease.epochs[number] = epoch
                    self._keep(lease)
        await self._synced()
        return epoch

    async def ack(self, queue: Queue, reader: str, upto: int) -> int:
        """Ack all epochs up to this one. Return the number of messages."""
        lease = self.get(queue, reader)
        done = [number for number in lease.epochs if number <= upto]
        count = 0
        with _reserved(lease):
            for number in done:
                count += await self._ack(lease, lease.epochs[number])
                del lease.epochs[number]
            with self._turn():
                lease.acked = max(lease.acked, upto)
                self._keep(lease)
        await self._synced()
        return count

    async def end(self, queue: Queue, reader: str) -> int:
        """End the lease and requeue its messages. Return their number."""
        lease = self.get(queue, reader)
        with _reserved(lease), self._turn():
            held = lease.session.unacked.take_all()
            self._drop(lease)
            give_back(self._broker.slots, held, failed=False)
        await self._synced()
        return len(held)

    def _open(self, queue: Queue, reader: str, user: str) -> ReaderLease:
        if isinstance(queue, Stream):
            raise PreconditionFailedError(f"'{queue.name}' is a stream: read it as one")
        if not queue.durable or queue.owner is not None:
            text = f"queue '{queue.name}' does not survive a restart: it can be peeked at only"
            raise PreconditionFailedError(text)
        if not reader or len(reader) > READER_CHARACTERS_MAX:
            raise PreconditionFailedError(
                f"a reader's name has 1 to {READER_CHARACTERS_MAX} characters"
            )
        if len(self._leases) >= LEASES_MAX:
            raise PreconditionFailedError(f"there are {LEASES_MAX} leases already")
        return self._add_lease(queue, reader, user)

    def _add_lease(self, queue: Queue, reader: str, user: str) -> ReaderLease:
        outlet = Outlet()
        outlet.name = f"lease '{reader}'"
        outlet.user_name = user
        session = LocalSession(outlet, self._broker.turn, _no_deliveries, _no_confirm, _no_end)
        session.has_no_timeout = True
        lease = ReaderLease(queue, reader, session)
        self._leases[queue.vhost, queue.name, reader] = lease
        return lease

    async def _fill(self, lease: ReaderLease, epoch: Epoch, count: int, bytes_max: int) -> Epoch:
        """Take messages until the epoch is full or the queue is empty; on failure, requeue them."""
        left, left_bytes = count, bytes_max
        try:
            while left > 0 and left_bytes > 0:
                with self._turn():
                    most = min(left, TURN_MESSAGES)
                    taken, size = self._take_some(lease, epoch, most, left_bytes)
                left -= taken
                left_bytes -= size
                if taken == 0:
                    break
                await asyncio.sleep(0)
        except BaseException:
            with self._turn():
                taken_back = [lease.session.unacked.take(m.tag) for _, m in epoch.rows]
                give_back(
                    self._broker.slots, [m for m in taken_back if m is not None], failed=False
                )
            raise
        return epoch

    def _take_some(
        self, lease: ReaderLease, epoch: Epoch, most: int, bytes_max: int
    ) -> tuple[int, int]:
        queue = lease.queue
        count = size = 0
        while count < most and size < min(bytes_max, TURN_BYTES):
            if queue.paused or queue.deleted or epoch.runs >= EPOCH_RUNS_MAX:
                break
            message = take_next(lease.session, queue, no_ack=False)
            if message is None:
                break
            came_ms = int(arrived_ms(queue, message.seq)) or int(queue.turn.now_ms)
            epoch.note(message, came_ms)
            count += 1
            size += len(message.body)
        return count, size

    async def _ack(self, lease: ReaderLease, epoch: Epoch) -> int:
        unacked = lease.session.unacked
        tags = [message.tag for _, message in epoch.rows]
        for at in range(0, len(tags), TURN_MESSAGES):
            with self._turn():
                taken = [unacked.take(tag) for tag in tags[at : at + TURN_MESSAGES]]
                ack_taken(self._broker.slots, [m for m in taken if m is not None])
            await asyncio.sleep(0)
        return len(tags)

    def _keep(self, lease: ReaderLease) -> None:
        if not lease.queue.deleted:
            self._broker.register.put(KIND, lease.key(), lease.entry())

    def _drop(self, lease: ReaderLease) -> None:
        lease.session.closed = True
        self._leases.pop((lease.queue.vhost, lease.queue.name, lease.reader), None)
        self._broker.register.drop(KIND, lease.key())

    def _drop_orphans(self) -> None:
        """Drop the leases of deleted queues, with their messages."""
        gone = [lease for lease in self._leases.values() if lease.queue.deleted]
        if gone:
            with self._turn():
                for lease in gone:
                    held = lease.session.unacked.take_all()
                    self._drop(lease)
                    give_back(self._broker.slots, held, failed=False)

    def load(self) -> None:
        """Hold the leased messages again after a start: in a turn, before any delivery."""
        self._broker.register.load_each(KIND, self._load)

    def _load(self, key: str, value: str) -> None:
        vhost, name, reader = json.loads(key)
        found = self._broker.vhosts.get(vhost)
        queue = found.queues.get(name) if found is not None else None
        entry = json.loads(value)
        if queue is None or queue.ledger.id != entry["queue"]:
            # Its queue was deleted, and perhaps made again.
            self._broker.register.drop(KIND, key)
            return
        lease = self._add_lease(queue, reader, entry["user"])
        lease.acked = entry["acked"]
        for number, runs in entry["epochs"]:
            lease.epochs[number] = self._hold(lease, epoch_of(number, runs))

    def _hold(self, lease: ReaderLease, epoch: Epoch) -> Epoch:
        """Take the messages of a loaded epoch out of their queue."""
        queue = lease.queue
        picked = Lookup(queue, list(epoch.seqs), _ALL_BYTES).picked
        remove(queue, picked)
        times = dict(zip(epoch.seqs, epoch.times_ms, strict=True))
        for one in picked:
            _lend(lease, one.message)
            epoch.hold(one.message, times[one.message.seq])
        epoch.missing = len(epoch.seqs) - len(picked)
        if epoch.missing:
            text = "epoch %d of lease '%s' has lost %d messages in the restart"
            log.warning(text, epoch.number, lease.reader, epoch.missing)
        return epoch


def _lend(lease: ReaderLease, message: Message) -> None:
    session = lease.session
    session.last_tag += 1
    message.tag = session.last_tag
    lend(session, lease.queue, message)


@contextmanager
def _reserved(lease: ReaderLease) -> Iterator[None]:
    """Reserve a lease for one call. Raises LeaseBusyError if another call uses it."""
    if lease.is_busy:
        raise LeaseBusyError(f"lease '{lease.reader}' is in use at this moment")
    lease.is_busy = True
    try:
        yield
    finally:
        lease.is_busy = False


def _no_deliveries(messages: list[Message]) -> None:
    raise AssertionError("a lease has no consumer")


def _no_confirm(seq: int, is_taken: bool) -> None:
    raise AssertionError("a lease publishes nothing")


def _no_end() -> None:
    raise AssertionError("a lease has no consumer")
