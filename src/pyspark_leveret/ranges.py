"""Limit and split offset ranges. Pure arithmetic."""

import os
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql.datasource import InputPartition

# A task with fewer records costs more than it saves by using another core.
SPLIT_RECORDS_MIN: Final = 100_000


@dataclass
class Range(InputPartition):
    """Partition: offsets of one stream, the end not included."""

    stream: str
    first: int
    end: int
    number: int = field(default=0, compare=False)  # in its query; ranges begin at different nodes


def share_limit(waiting: dict[str, int], most: int) -> dict[str, int]:
    """Share a limit of `most` records among streams, in proportion to their waiting records.

    In proportion, so that all streams reach their end together. Records left over by rounding go
    to the streams with most waiting records. The sum is `most`, or all waiting records if fewer.
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


def split_ranges(ranges: list[Range], least: int | None, records_max: int) -> list[Range]:
    """Split ranges into at least `least` ranges, if possible, of at most `records_max` records.

    None: one for each core of this machine, if that leaves enough records for each.
    """
    total = sum(one.end - one.first for one in ranges)
    if total == 0:
        return []
    if least is None:
        least = max(min(os.cpu_count() or 1, total // SPLIT_RECORDS_MIN), 1)
    size = min(records_max, -(-total // least))
    found: list[Range] = []
    for one in ranges:
        count = -(-(one.end - one.first) // size)
        for part in range(count):
            first = one.first + (one.end - one.first) * part // count
            end = one.first + (one.end - one.first) * (part + 1) // count
            found.append(Range(one.stream, first, end, len(found)))
    return found
