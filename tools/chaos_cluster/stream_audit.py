"""Judges what queries read from a stream while a cluster has faults.

Every query reads the whole stream. It must have all messages that were confirmed before it began,
each at one offset; no message that nobody sent; and all offsets from 0 on. An offset has the same
message in all queries, and no later query has fewer of them. The messages of one connection are in
the order in which they were sent.
"""

from collections.abc import Collection, Sequence
from typing import Final

from tools.chaos.accounts import Key

HEAD_BYTES: Final = 64  # of a body: its label fits
LABEL_NUMBERS: Final = 5

Row = tuple[int, bytes, int]  # offset, the first bytes of the body, CRC-32 of the body


class StreamAudit:
    """The messages of a stream, as all queries have found them."""

    def __init__(self) -> None:
        self.queries = 0
        self.faults: list[str] = []
        self._rows: list[Row] = []  # of the largest query, by offset

    @property
    def rows(self) -> int:
        """Return how many messages the stream has."""
        return len(self._rows)

    def check(self, rows: Sequence[Row], confirmed: Collection[Key], sent: dict[Key, int]) -> None:
        """Judge a query. `sent` are all messages with the CRC-32 of their bodies.

        `confirmed` are the messages that were confirmed before the query began.
        """
        self.queries += 1
        found = sorted(rows)
        self._check_offsets(found)
        self._check_messages(found, confirmed, sent)
        if len(found) >= len(self._rows):
            self._rows = found

    def _check_offsets(self, found: list[Row]) -> None:
        for place, row in enumerate(found):
            if row[0] != place:
                self._note(f"offset {place} is missing, or is there twice")
                return
        if len(found) < len(self._rows):
            self._note(f"{len(self._rows) - len(found)} offsets are gone that a query had")
        for old, new in zip(self._rows, found, strict=False):
            if old != new:
                self._note(f"offset {old[0]} had {old[1:]!r}, and now has {new[1:]!r}")

    def _check_messages(
        self, found: list[Row], confirmed: Collection[Key], sent: dict[Key, int]
    ) -> None:
        seen: dict[Key, int] = {}
        last: dict[tuple[int, int], int] = {}  # the last number, by sender and lane
        for offset, head, crc in found:
            numbers = _numbers(head)
            if numbers is None or sent.get(numbers[:2]) != crc:
                self._note(f"offset {offset} has a body that nobody sent: {head!r}")
                continue
            key = numbers[:2]
            if key in seen:
                self._note(f"{key} is at the offsets {seen[key]} and {offset}")
            seen[key] = offset
            lane = key[0], numbers[2]
            if key[1] <= last.get(lane, 0):
                self._note(f"{key} is after number {last[lane]}")
            last[lane] = key[1]
        missing = [key for key in confirmed if key not in seen]
        if missing:
            self._note(f"{len(missing)} confirmed messages are missing: {sorted(missing)[:5]}")

    def _note(self, fault: str) -> None:
        self.faults.append(f"stream: query {self.queries}: {fault}")


def _numbers(head: bytes) -> tuple[int, int, int] | None:
    """Return sender, number and lane of a body; None if it has no label."""
    words = head.partition(b" ")[0].split(b".")
    if len(words) != LABEL_NUMBERS or not all(word.isdigit() for word in words):
        return None
    return int(words[0]), int(words[1]), int(words[2])
