"""Offset ranges: how far a batch goes, and into which partitions it is cut. Pure arithmetic."""

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition


@dataclass
class Range(InputPartition):
    """Offsets of one stream, the end not included."""

    stream: str
    first: int
    end: int


def share(waiting: dict[str, int], most: int) -> dict[str, int]:
    """How many of the records that wait each stream may give, `most` in all.

    By what waits, so that all come to their end together; what is left over by rounding goes to
    those that wait longest for it. Never more than `most`, never nothing.
    """
    total = sum(waiting.values())
    if total <= most:
        return dict(waiting)
    shares = {name: count * most // total for name, count in waiting.items()}
    left = most - sum(shares.values())
    for name in sorted(waiting, key=lambda name: shares[name] - waiting[name]):
        more = min(left, waiting[name] - shares[name], 1)
        shares[name] += more
        left -= more
    return shares


def cut(ranges: list[Range], least: int, records_max: int) -> list[Range]:
    """Ranges of at most so many records, and at least so many ranges where there are enough."""
    total = sum(one.end - one.first for one in ranges)
    if total == 0:
        return []
    size = min(records_max, -(-total // least))
    found: list[Range] = []
    for one in ranges:
        count = -(-(one.end - one.first) // size)
        for part in range(count):
            first = one.first + (one.end - one.first) * part // count
            end = one.first + (one.end - one.first) * (part + 1) // count
            found.append(Range(one.stream, first, end))
    return found
