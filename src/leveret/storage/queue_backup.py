"""Backup of one queue, and reading its messages back.

A backup of a queue is a small data directory inside the archive of `leveret.storage.archive`. It
has log files from number 1 on, of one block each. They hold the definition of the queue, its
bindings, and all its messages in delivery order: in flight, ready and scheduled. A node can start
from such a directory, and a running node can import it message by message.

`QueueSnapshot` is taken on the event loop in one turn. It holds only messages that the queue has in
memory anyway. `pieces` may run in a thread, once everything is on disk.
"""

from collections.abc import Iterator
from typing import Final

from leveret.engine.backlog.page_reader import QueuePageReader
from leveret.engine.backlog.paged import PagedRun
from leveret.engine.insight.peek import read_on
from leveret.engine.message import PERSISTENT, REDELIVERED, Message
from leveret.engine.queues.queue import Queue
from leveret.engine.vhosts.definition_records import (
    encode_binding,
    encode_last_id,
    encode_queue,
    encode_vhost,
)
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import CorruptionError
from leveret.journal.journal import Journal
from leveret.journal.records import COPY, DEFINE, MESSAGE, RECORD_HEAD_BYTES
from leveret.storage.archive import ArchiveWriter
from leveret.storage.blocks import (
    BLOCK_HEAD_BYTES,
    HEAD_BYTES,
    block_end,
    check_head,
    encode_block_head,
    encode_head,
)
from leveret.storage.disk import Disk, DiskFile
from leveret.storage.file_names import log_name, numbers
from leveret.storage.log_reader import LogReader
from leveret.storage.message_records import CopyFields, distance_to_message, make_message
from leveret.wire.properties import parse_traits
from leveret.wire.tables import Table, decode_table

QUEUE: Final = "queue"
# Size of a log file in the archive; more only for a single large message.
FILE_BYTES: Final = 1024 * 1024


class QueueSnapshot:
    """The content of a queue at one moment."""

    def __init__(self, vhost: Vhost, queue: Queue, in_flight: list[Message]) -> None:
        self.facts: dict[str, object] = {
            "kind": QUEUE,
            "vhost": queue.vhost,
            "queue": queue.name,
            "durable": queue.durable,
            "type": queue.settings.kind,
        }
        self._definitions = _definitions(vhost, queue)
        self._id = int(queue.ledger.id)
        self._counts = queue.counts
        self._slot = queue.slot
        self._returned = dict(queue.ledger.returned)
        pages = queue.ready.pages
        self._redelivered_through = -1 if pages is None else int(pages.redelivered_through)
        self._lines = _lines(vhost, queue, in_flight)
        self._scheduled = queue.scheduled.entries()
        self._files: dict[int, DiskFile] = {}

    def open_files(self, disk: Disk) -> None:
        """Open the needed log files, once everything is on disk. Open files stay readable."""
        for _, runs in self._lines:
            for run in runs:
                if run.file not in self._files:
                    try:
                        self._files[run.file] = disk.open(log_name(run.file))
                    except FileNotFoundError:
                        continue  # reading will report a damaged or missing file

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}

    def _read(self, number: int, offset: int, size: int) -> bytes:
        if number not in self._files:
            raise CorruptionError(f"{log_name(number)} is missing")
        return self._files[number].read(size, offset)

    def pieces(self) -> Iterator[bytes]:
        """Yield the archive, piece by piece."""
        writer = ArchiveWriter()
        yield writer.first(self.facts)
        journal = Journal()
        number = 1
        count = 0
        for definition in self._definitions:
            journal.write_definition(definition)
        for message, due_ms in self._messages():
            self._write(journal, message, due_ms, count)
            count += 1
            if journal.size() >= FILE_BYTES:
                yield from _file(writer, journal, number)
                number += 1
        if journal.size() != 0:
            yield from _file(writer, journal, number)
        yield writer.last({"messages": count, "unreadable": self.unreadable})

    def _messages(self) -> Iterator[tuple[Message, int]]:
        """Yield every message and its due time; 0 = due now."""
        self.unreadable = 0
        pages = LogReader(self._read)  # verifies every block
        of_queue = QueuePageReader(pages, self._slot, self._returned, self._counts)
        of_queue.redelivered_through = self._redelivered_through
        for held, runs in self._lines:
            for message in held:
                yield message, 0
            for run in runs:
                while run.left() > 0:
                    before = run.left()
                    messages = read_on(of_queue, run)
                    self.unreadable += before - run.left() - len(messages)
                    for message in messages:
                        yield message, 0
        for due_ms, message in self._scheduled:
            yield message, due_ms

    def _write(self, journal: Journal, message: Message, due_ms: int, seq: int) -> None:
        was_delivered = message.tag != 0 or message.flags & REDELIVERED
        journal.write_message(
            self._id,
            seq,
            message.expires_ms,
            due_ms,
            message.priority,
            message.flags & PERSISTENT | (REDELIVERED if was_delivered else 0),
            message.address.record(),
            message.header,
            message.body,
        )
        if message.returns:
            journal.write_returned(self._id, seq, message.returns, message.failures, due_ms)


def _definitions(vhost: Vhost, queue: Queue) -> list[bytes]:
    made = [encode_last_id(int(queue.ledger.id)), encode_vhost(vhost.name), encode_queue(queue)]
    for exchange in vhost.sources.get(queue, {}).values():
        if exchange.name:
            bindings = [b for b in exchange.bindings.values() if b.target is queue]
            made.extend(encode_binding(vhost.name, binding) for binding in bindings)
    return made


def _lines(
    vhost: Vhost, queue: Queue, in_flight: list[Message]
) -> list[tuple[list[Message], list[PagedRun]]]:
    """Return messages in memory and positions in the log, in delivery order.

    Messages in flight are put back where they came from.
    """
    ready = queue.ready
    by_priority: dict[int, list[Message]] = {}
    for message in [*in_flight, *vhost.stuck.of(queue)]:
        if message.queue != queue.slot:
            continue
        by_priority.setdefault(message.priority if ready.prioritised else 0, []).append(message)
    lines: list[tuple[int, list[Message], list[PagedRun]]] = []
    if ready.returns_first and not ready.back.is_used_up():
        parts = ready.back.with_returns()
        runs = [run.copy() for part in parts for run in part.paged.runs]
        lines.append((1 << 62, [m for part in parts for m in part.messages()], runs))
    of_priority = {priority: ready.lines_at(priority) for priority in ready.lines}
    if not ready.prioritised:
        of_priority = {0: ready.line.with_returns()}
    for priority in by_priority.keys() | of_priority.keys():
        held = by_priority.get(priority, [])
        runs = []
        for line in of_priority.get(priority, []):
            held = [*held, *line.messages()]
            runs.extend(run.copy() for run in line.paged.runs)
        held.sort(key=lambda message: int(message.rank))
        lines.append((priority, held, runs))
    lines.sort(key=lambda line: -line[0])
    return [(held, runs) for _, held, runs in lines]


def _file(writer: ArchiveWriter, journal: Journal, number: int) -> Iterator[bytes]:
    """Yield one log file of one block, as a member of the archive."""
    pieces = journal.take_block()
    journal.take_index()  # the next start makes its own index
    data = b"".join([encode_head(number), encode_block_head(pieces, number), *pieces])
    name = log_name(number)
    yield writer.begin(name, len(data))
    yield writer.data(data)
    yield writer.end(name)


class BackedUpMessage:
    """A message from a backup, and its due time."""

    def __init__(self, message: Message, due_ms: int) -> None:
        self.message = message
        self.due_ms = due_ms


def read_log(data: bytes, name: str) -> tuple[list[Table], list[BackedUpMessage]]:
    """Return the definitions and messages of one log file of a backup."""
    found = numbers([name], ".log")
    if not found:
        raise CorruptionError(f"the backup of a queue has no file {name}")
    check_head(data, found[0], name)
    end = block_end(data, HEAD_BYTES, found[0])
    if end != len(data):
        raise CorruptionError(f"{name} of the backup is damaged")
    tables: list[Table] = []
    messages: list[BackedUpMessage] = []
    at = HEAD_BYTES + BLOCK_HEAD_BYTES
    while at < end:
        start = at + RECORD_HEAD_BYTES
        stop = start + int.from_bytes(data[at + 1 : start], "big")
        if data[at] == DEFINE:
            tables.append(decode_table(data, start + 4, stop))
        elif data[at] in (MESSAGE, COPY):
            messages.append(_backed_up_message(data, at, stop))
        at = stop
    return tables, messages


def _backed_up_message(data: bytes, at: int, stop: int) -> BackedUpMessage:
    payload = data[at + RECORD_HEAD_BYTES : stop]
    copy = CopyFields(payload)
    if data[at] == COPY:
        origin = at - distance_to_message(payload)
        start = origin + RECORD_HEAD_BYTES
        payload = data[start : start + int.from_bytes(data[origin + 1 : start], "big")]
    message = make_message(copy, payload)
    if parse_traits(message.header).body_size != len(message.body):
        raise CorruptionError("a message of the backup has another size than its header says")
    return BackedUpMessage(message, int(copy.due_ms))
