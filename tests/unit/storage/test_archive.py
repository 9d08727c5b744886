"""The archive of a backup, read as a stream."""

import tarfile

import pytest

from leveret.errors import CorruptionError, NewerFormatError
from leveret.storage.archive import FIRST, LAST, ArchiveReader, ArchiveWriter, _whole

FILES = {"0000000000000001.log": b"a" * 1000, "0000000000000002.log": b"", "x.index": b"b" * 512}


def made(files: dict[str, bytes] = FILES, **facts: object) -> bytes:
    writer = ArchiveWriter()
    pieces = [writer.first({"kind": "node", **facts})]
    for name, data in files.items():
        pieces += [writer.begin(name, len(data)), writer.data(data), writer.end(name)]
    return b"".join([*pieces, writer.last({"messages": 3})])


def read(data: bytes, step: int) -> tuple[ArchiveReader, dict[str, bytes]]:
    reader = ArchiveReader()
    found: dict[str, bytes] = {}
    for at in range(0, len(data), step):
        for part in reader.feed(data[at : at + step]):
            assert part.is_first == (part.name not in found)
            found[part.name] = found.get(part.name, b"") + part.data
    return reader, found


@pytest.mark.parametrize("step", [1, 7, 511, 512, 513, 100_000])
def test_what_was_written_is_read_in_pieces_of_any_size(step: int) -> None:
    reader, found = read(made(), step)
    reader.finish()
    assert found == FILES
    assert reader.facts["kind"] == "node"
    assert reader.notes["messages"] == 3


def test_archive_that_was_cut_is_not_complete() -> None:
    data = made()
    whole = data.rindex(b'"messages"') + len(b'"messages": 3}')
    for cut in range(0, whole, 13):
        reader, _ = read(data[:cut], 4096)
        with pytest.raises(CorruptionError, match="cut short"):
            reader.finish()


def test_turned_bit_in_a_member_is_found() -> None:
    data = bytearray(made())
    data[data.index(b"a" * 1000) + 500] ^= 1
    with pytest.raises(CorruptionError, match="damaged"):
        read(bytes(data), 4096)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", ".hidden", "a/b"])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(CorruptionError):
        read(made({name: b"x"}), 4096)


def test_other_files_are_refused() -> None:
    with pytest.raises(CorruptionError, match="not a backup"):
        read(b"PK\x03\x04" * 200, 4096)


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, b'{"format": "one"}'),
        (0, b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        (-1, b"[" * 100_000 + b"]" * 100_000),
    ],
    ids=["format", "nested facts", "nested notes"],
)
def test_damaged_notes_are_refused(at: int, text: bytes) -> None:
    members = [(FIRST, b'{"format": 1}'), (LAST, b"{}")]
    members[at] = (members[at][0], text)
    with pytest.raises(CorruptionError, match="cannot be read"):
        read(b"".join(_whole(*member) for member in members), 1 << 20)


def test_a_member_of_negative_size_is_refused() -> None:
    info = tarfile.TarInfo(FIRST)
    info.size = -1
    head = info.tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(CorruptionError, match="no member"):
        read(head + bytes(512), 4096)


def test_later_format_is_refused_in_one_sentence() -> None:
    with pytest.raises(NewerFormatError, match="format 9"):
        read(made(format=9), 4096)
