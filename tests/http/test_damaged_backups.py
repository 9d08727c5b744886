"""Archives of queues that somebody has changed: each is refused, and leaves no queue behind."""

from collections.abc import Iterator

import pytest

from leveret.engine.message import Address
from leveret.journal.journal import Journal
from leveret.storage.archive import ArchiveWriter
from leveret.storage.queue_backup import _file
from leveret.testing.broker import RunningBroker, broker
from leveret.wire.properties import Properties, encode_header
from leveret.wire.tables import encode_table, table_of
from tests.http.asking import ask, reason

HEADER = encode_header(Properties(), body_size=1)
QUEUE: dict[str, object] = {"op": "queue", "vhost": "/", "name": "q", "id": 1, "auto_delete": False}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


def archive(header: bytes = HEADER, queue: dict[str, object] = QUEUE) -> bytes:
    """Return the backup of a queue with one message, with right checksums."""
    writer = ArchiveWriter()
    journal = Journal()
    journal.write_definition(encode_table(table_of({**queue, "arguments": {}})))
    journal.write_message(1, 0, 0, 0, 0, 0, Address("", "q").record(), header, b"m")
    first = writer.first({"kind": "queue", "queue": "q", "durable": True})
    return b"".join([first, *_file(writer, journal, 1), writer.last({"messages": 1})])


def restore(server: RunningBroker, data: bytes) -> tuple[int, object]:
    return ask(server, "POST", "/api/restore/%2F/q", data)


def test_an_unchanged_archive_is_restored(server: RunningBroker) -> None:
    assert restore(server, archive()) == (200, {"queue": "q", "messages": 1})
    assert ask(server, "DELETE", "/api/queues/%2F/q")[0] == 204


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (archive(header=HEADER + b"x"), "content header: bytes follow the last property"),
        (
            archive(header=encode_header(Properties(), body_size=2)),
            "a message of the backup has another size than its header says",
        ),
        (archive(queue={"name": "q"}), "a definition of the backup has no 'op'"),
    ],
    ids=["header", "size", "definition"],
)
def test_a_changed_archive_is_refused(server: RunningBroker, data: bytes, text: str) -> None:
    assert reason(restore(server, data)) == (400, text)
    assert ask(server, "GET", "/api/queues/%2F/q")[0] == 404
