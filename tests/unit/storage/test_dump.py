"""Files of a data directory as readable entries, valid or damaged."""

from random import Random

import pytest

from leveret.journal.records import BLOCK, MESSAGE
from leveret.storage.blocks import BLOCK_HEAD_BYTES, HEAD_BYTES, encode_block_head, encode_head
from leveret.storage.dump import UNKNOWN, Entry, dump
from leveret.testing.disk import FakeDisk
from tests.simulation.storage_model import Load
from tests.simulation.storage_stage import Client, StorageStage

ROUNDS = 400


@pytest.fixture(scope="module")
def disk() -> FakeDisk:
    """A directory with files of all kinds."""
    load = Load(Random(5))
    load.begin(StorageStage(FakeDisk(), file_bytes=4000))
    load.define()
    load.run(400)
    return load.stage.stop()


def dumped(disk: FakeDisk, name: str) -> list[Entry]:
    return list(dump(disk.content(name), name))


def test_log_is_shown_block_by_block_and_record_by_record(disk: FakeDisk) -> None:
    logs = [name for name in disk.names() if name.endswith(".log")]
    entries = [entry for name in logs for entry in dumped(disk, name)]
    kinds = {entry.kind for entry in entries}
    wanted = {"head", "block", "message", "gone", "mark", "returned", "define", "end", "eof"}
    assert kinds >= wanted
    assert not any("fault" in entry.fields for entry in entries)
    for name in logs:
        assert dumped(disk, name)[-1].fields == {"damaged_bytes": 0}


def test_checkpoint_and_index_are_shown(disk: FakeDisk) -> None:
    (checkpoint,) = [name for name in disk.names() if name.endswith(".checkpoint")]
    definitions = [entry for entry in dumped(disk, checkpoint) if entry.kind == "define"]
    assert {"queue", "exchange", "vhost", "id", "bind"} == {e.fields["op"] for e in definitions}
    index = next(name for name in disk.names() if name.endswith(".index"))
    log = index.replace(".index", ".log")
    places = [entry.fields["at"] for entry in dumped(disk, index) if entry.kind == "entry"]
    messages = [e.offset for e in dumped(disk, log) if e.kind in ("message", "copy")]
    assert places
    assert set(places) <= set(messages)


@pytest.fixture(scope="module")
def streaming() -> FakeDisk:
    """A directory with a stream and with keys, after a restart."""
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("s", **{"x-queue-type": "stream", "x-deduplication": {"size": 9}})
    for number in range(5):
        headers: dict[str, object] = {"headers": {"x-deduplication-id": str(number)}}
        client.publish("s", b"%d" % number, headers)
    stage = StorageStage(stage.stop())
    client = Client(stage)
    client.publish("s", b"more")
    return stage.stop()


def test_streams_and_keys_are_shown(streaming: FakeDisk) -> None:
    names = [n for n in streaming.names() if n.endswith((".log", ".checkpoint", ".segment"))]
    found = {name: dumped(streaming, name) for name in names}
    entries = [entry for shown in found.values() for entry in shown]
    assert not any("fault" in entry.fields for entry in entries)
    assert {"chunk", "stream", "keys", "files"} <= {entry.kind for entry in entries}
    (segment,) = [shown for name, shown in found.items() if name.endswith(".segment")]
    assert [e.kind for e in segment] == ["head", *["chunk"] * 6, "eof"]
    assert [e.fields["first_offset"] for e in segment[1:-1]] == list(range(6))


def test_segment_that_was_set_aside_and_the_mark_are_shown(streaming: FakeDisk) -> None:
    (name,) = [name for name in streaming.names() if name.endswith(".segment")]
    data = streaming.content(name)
    whole = list(dump(data, name))
    assert list(dump(data, f"{name}.unexplained-0")) == whole
    at = whole[3].offset
    assert list(dump(data[at:], f"{name}.unexplained-{at}+")) == whole[3:]
    mark = dumped(streaming, "synced")
    assert [entry.kind for entry in mark] == ["head", "block", "blocks", "eof"]


def test_bodies_are_shown_only_when_asked_for() -> None:
    stage = StorageStage(FakeDisk())
    client = Client(stage)
    client.declare("q")
    client.publish("q", b"the body")
    data = stage.stop().content("0000000000000001.log")
    (plain,) = [e for e in dump(data, "1.log") if e.kind == "message"]
    (full,) = [e for e in dump(data, "1.log", bodies=True) if e.kind == "message"]
    assert plain.fields["body_bytes"] == 8
    assert "body" not in plain.fields
    assert full.fields["body"] == b"the body"
    assert plain.line().split()[1:4] == ["message", "queue=1", "seq=0"]


def test_records_of_unknown_kinds_are_shown_as_such() -> None:
    record = b"\xc8" + (3).to_bytes(4, "big") + b"abc"
    data = encode_head(7) + encode_block_head([record], 1) + record
    entries = list(dump(data, "0000000000000007.log"))
    assert [entry.kind for entry in entries] == ["head", "block", "kind 200", "eof"]
    assert entries[2].fields == {"size": 3}


@pytest.mark.parametrize("name", ["notes.txt", "syslog.log", "notes.checkpoint"])
def test_file_of_another_program_is_unknown(name: str) -> None:
    (entry,) = dump(b"hello, world\n" * 100, name)
    assert entry.kind == UNKNOWN


def test_file_whose_head_is_lost_is_shown(disk: FakeDisk) -> None:
    name = next(name for name in disk.names() if name.endswith(".log"))
    entries = list(dump(bytes(HEAD_BYTES) + disk.content(name)[HEAD_BYTES:], name))
    assert entries[0].fields["fault"] == "it is not a log file"
    assert "message" in {entry.kind for entry in entries}


def test_damage_is_shown_where_it_is_and_what_follows_is_read() -> None:
    record = bytes((BLOCK,)) + (8).to_bytes(4, "big") + bytes(8)
    blocks = [encode_block_head([record], number) + record for number in (1, 2, 3)]
    data = bytearray(encode_head(1) + b"".join(blocks))
    at = HEAD_BYTES + len(blocks[0])
    data[at + BLOCK_HEAD_BYTES + 7] ^= 1
    entries = list(dump(bytes(data), "0000000000000001.log"))
    kinds = [entry.kind for entry in entries]
    assert kinds == ["head", "block", "blocks", "damage", "blocks", "block", "blocks", "eof"]
    assert entries[3].offset == at
    assert entries[3].fields == {"size": len(blocks[1]), "fault": "the checksum is wrong"}
    assert entries[4].fields["doubtful"] is True
    assert entries[-1].fields == {"damaged_bytes": len(blocks[1])}


def test_bytes_that_a_repair_took_out_are_shown_where_they_stood() -> None:
    payload = bytes(37 + 12)
    record = bytes((MESSAGE,)) + len(payload).to_bytes(4, "big") + payload
    side = encode_block_head([record], 9)[:-1] + b"\xff" + record
    entries = list(dump(side, "0000000000000001.log.damaged-500"))
    assert [(e.offset, e.kind) for e in entries] == [(500, "damage"), (516, "message")]


def test_nothing_is_raised_whatever_the_file_holds(
    disk: FakeDisk, streaming: FakeDisk, seed: int
) -> None:
    print(f"seed {seed}")
    rng = Random(seed)
    endings = (".log", ".checkpoint", ".index", ".segment")
    files = [(n, d.content(n)) for d in (disk, streaming) for n in d.names() if n.endswith(endings)]
    for _ in range(ROUNDS):
        name, content = rng.choice(files)
        data = bytearray(content)
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(data))
            size = rng.randrange(1, 60)
            data[at : at + size] = rng.choice((b"", rng.randbytes(size), bytes(size)))
            if not data:
                break
        entries = list(dump(bytes(data), name, bodies=True))
        end = entries[-1]
        assert (end.kind, end.offset) in (("eof", len(data)), (UNKNOWN, 0))
        assert all(entry.line() for entry in entries)
