"""A table of the terms and the first index of each: it gives the term of every block.

A cluster writes millions of blocks in a few terms, so the table replaces an entry for each block.
It has a row for every index from the base of the log on. An empty log has the row of term 0.

Invariant: terms and first indexes grow from row to row.
"""

from mypy_extensions import i64


class TermTable:
    """Terms and the index from which on each is valid."""

    def __init__(self, rows: list[tuple[int, int]]) -> None:
        self.terms: list[int] = [term for term, _ in rows] or [0]
        self.firsts: list[int] = [first for _, first in rows] or [0]
        for at in range(1, len(self.terms)):
            assert self.terms[at - 1] < self.terms[at]
            assert self.firsts[at - 1] < self.firsts[at]

    def rows(self) -> list[tuple[int, int]]:
        return list(zip(self.terms, self.firsts, strict=True))

    def last(self) -> i64:
        return self.terms[-1]

    def of(self, index: i64) -> i64:
        """Return the term of an index; it must not be before the first row."""
        at = len(self.terms) - 1
        while self.firsts[at] > index:
            at -= 1
            assert at >= 0, "a term before the base of the log"
        return self.terms[at]

    def add(self, index: i64, term: i64) -> None:
        """Note the term of the block after the last."""
        last = self.last()
        assert term >= last, "a term that falls"
        if term > last:
            self.terms.append(int(term))
            self.firsts.append(int(index))

    def cut(self, first: i64) -> None:
        """Forget the terms from an index on."""
        while len(self.terms) > 1 and self.firsts[-1] >= first:
            self.terms.pop()
            self.firsts.pop()

    def forget(self, base: i64) -> None:
        """Forget the rows before the one that has the base."""
        while len(self.terms) > 1 and self.firsts[1] <= base:
            self.terms.pop(0)
            self.firsts.pop(0)

    def find_match_hint(self, index: i64, term: i64) -> i64:
        """Return the last index, at most `index`, with a term of at most `term`; 0 if none has."""
        at = len(self.terms) - 1
        end = index
        while at >= 0:
            if self.terms[at] <= term and self.firsts[at] <= end:
                return end
            end = min(end, self.firsts[at] - 1)
            at -= 1
        return 0
