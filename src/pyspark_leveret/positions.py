"""Find the streams of a query, their bounds, and the start and end of the query in them.

The name of a super stream stands for its partitions: `orders` may be a stream, or the streams
`orders-0`, `orders-1` … A position is a dict of stream name to offset, as in a checkpoint.
"""

import logging
from dataclasses import dataclass
from typing import Final

from pyspark_leveret.client import BAD_REQUEST, NOT_FOUND, Broker, named
from pyspark_leveret.errors import BrokerError, DataLostError, OptionError
from pyspark_leveret.options import EARLIEST, LATEST, Offsets, Options

log = logging.getLogger(__name__)

KAFKA_LATEST: Final = -1
KAFKA_EARLIEST: Final = -2
PARTITIONS_MAX: Final = 10_000


@dataclass(frozen=True)
class Bounds:
    """The offsets of a stream, from `first` up to `end`, the offset of the next message."""

    first: int
    end: int


class Streams:
    """The streams of one query."""

    def __init__(self, options: Options) -> None:
        if options.stream is None:
            raise OptionError("give the option 'stream' or 'queue'")
        self._options = options
        self._name = options.stream
        self._broker = Broker(options)
        self._names: list[str] = []

    def bounds(self) -> dict[str, Bounds]:
        """Return the present bounds of all streams; new partitions are added."""
        if not self._names:
            found = self._find(self._name)
            if found is not None:
                self._names = [self._name]
                return {self._name: found}
        known = {name: self._find(name) for name in self._names}
        for number in range(len(self._names), PARTITIONS_MAX):
            if self._names == [self._name]:
                break
            name = f"{self._name}-{number}"
            partition = self._find(name)
            if partition is None:
                break
            self._names.append(name)
            known[name] = partition
        if not known:
            raise named(BrokerError("", NOT_FOUND), self._options, "stream", self._name)
        return {name: _there(name, found) for name, found in known.items()}

    def _find(self, name: str) -> Bounds | None:
        try:
            info = self._broker.ask("GET", self._broker.path("streams", name))
        except BrokerError as fault:
            if fault.status == NOT_FOUND:
                return None
            raise named(fault, self._options, "stream", name) from fault
        return Bounds(info["first_offset"], info["end_offset"])

    def starting(self, default: str, bounds: dict[str, Bounds]) -> dict[str, int]:
        """Return the offsets at which the query begins."""
        options = self._options
        if options.starting_time is not None:
            return self._at_time("startingTimestamp", options.starting_time, bounds)
        wanted = options.starting if options.starting is not None else default
        return _resolved("startingOffsets", wanted, bounds)

    def ending(self, bounds: dict[str, Bounds]) -> dict[str, int]:
        """Return the offsets at which a batch query ends."""
        options = self._options
        if options.ending_time is not None:
            return self._at_time("endingTimestamp", options.ending_time, bounds)
        wanted = options.ending if options.ending is not None else LATEST
        return _resolved("endingOffsets", wanted, bounds)

    def _at_time(self, option: str, time: str, bounds: dict[str, Bounds]) -> dict[str, int]:
        try:
            return {name: self.offset_at(name, time) for name in bounds}
        except BrokerError as fault:
            if fault.status == BAD_REQUEST:
                raise OptionError(f"'{option}' is a time (ISO 8601), not '{time}'") from fault
            raise

    def offset_at(self, name: str, time: str) -> int:
        """Return the first offset that is not older than a time."""
        path = self._broker.path("streams", name, "offset")
        found: int = self._broker.ask("GET", path, timestamp=time)["offset"]
        return found

    def offset_after(self, name: str, first: int, bytes_max: int) -> int:
        """Return the offset about `bytes_max` bytes after `first`."""
        path = self._broker.path("streams", name, "offset")
        query = {"from": first, "bytes": bytes_max}
        found: int = self._broker.ask("GET", path, None, **query)["offset"]
        return found


def _there(name: str, found: Bounds | None) -> Bounds:
    if found is None:
        raise BrokerError(f"the stream '{name}' has been deleted", NOT_FOUND)
    return found


def _resolved(option: str, wanted: Offsets, bounds: dict[str, Bounds]) -> dict[str, int]:
    if isinstance(wanted, dict):
        unknown = sorted(set(wanted) - set(bounds))
        if unknown:
            raise OptionError(f"'{option}' names '{unknown[0]}': streams are {', '.join(bounds)}")
        return {name: _offset(wanted.get(name, EARLIEST), bounds[name]) for name in bounds}
    return {name: _offset(wanted, bound) for name, bound in bounds.items()}


def _offset(wanted: str | int, bound: Bounds) -> int:
    if wanted in (EARLIEST, KAFKA_EARLIEST):
        return bound.first
    if wanted in (LATEST, KAFKA_LATEST):
        return bound.end
    assert isinstance(wanted, int)
    return wanted


def available_range(
    options: Options, name: str, first: int, end: int, bound: Bounds
) -> tuple[int, int]:
    """Return the part of a range that still exists; report the loss of the rest."""
    if first >= bound.first and end <= bound.end:
        return first, end
    if first < bound.first:
        text = f"offsets {first} to {min(bound.first, end) - 1} of stream '{name}' are gone"
        text += f": retention has deleted them, it begins with {bound.first}"
    else:
        text = f"stream '{name}' ends with offset {bound.end - 1}, and not with {end - 1}"
        text += ": it was created again, or restored from a backup"
    report_data_loss(options, text, bound.first)
    low = max(first, bound.first)
    return low, max(min(end, bound.end), low)


def report_data_loss(options: Options, text: str, first_offset: int = -1) -> None:
    """Raise DataLostError, or log a warning if `failOnDataLoss` is false."""
    if options.fails_on_loss:
        text += ". Set failOnDataLoss to false to go on without them"
        raise DataLostError(text, first_offset)
    log.warning("%s; going on, as failOnDataLoss is false", text)
