"""Ranges of a block that is kept in pieces, and of the records that wait for the log."""

from random import Random

from leveret.journal.journal import Journal
from leveret.journal.pieces import read_pieces


def test_range_of_pieces_is_the_range_of_all_bytes() -> None:
    random = Random(7)
    for _ in range(2_000):
        pieces = [random.randbytes(random.randrange(5)) for _ in range(random.randrange(6))]
        start, size = random.randrange(20), random.randrange(20)
        assert read_pieces(pieces, start, size) == b"".join(pieces)[start:][:size]


def test_whole_piece_is_not_copied() -> None:
    large = bytes(1_000_000)
    assert read_pieces([b"head", large, b"tail"], 4, len(large)) is large


def test_journal_reads_the_body_of_a_large_message_without_copying_it() -> None:
    """A queue may read a message back before its block is written, several times in one turn."""
    journal = Journal()
    journal.begin_block(3, 1_000)
    large = bytes(1_000_000)
    journal.write_message(1, 0, 0, 0, 0, 0, b"\0\0", b"", large)
    before = journal.size() - len(large)
    journal.write_block_number(9)
    assert journal.read(1_000 + before, len(large)) is large
    whole = journal.read(1_000, 1 << 40)
    assert len(whole) == journal.size()
    assert journal.read(1_000 + 5, 40) == whole[5:45]
    assert journal.read(1_000 + len(whole) - 3, 40) == whole[-3:]
    assert whole == b"".join(journal.take_block())
