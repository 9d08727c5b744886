"""Parse and check the options of `format("leveret")`.

A misspelt option is refused. Other unknown options are ignored, as they may be Spark's own.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote, urlsplit

from pyspark_leveret.errors import OptionError

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
RETRY_S: Final = 60.0
PARTITION_RECORDS: Final = 500_000
OFFSET_MIN: Final = -2  # in JSON, as in Kafka: -2 is the earliest, -1 the latest
PORT_MAX: Final = 65_535
COUNT_MAX: Final = (1 << 63) - 1
PEEK: Final = "peek"
LEASE: Final = "lease"
_EXAMPLE: Final = "such as http://user:password@host:15672"
# Between two addresses. A comma alone may be part of a password.
_NEXT_URL: Final = re.compile(r"\s*,\s*(?=https?://)")

NAMES: Final = (
    "url",
    "vhost",
    "stream",
    "queue",
    "columns",
    "exchange",
    "routing_key",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "pushFilters",
    "dataDir",
    "lake",
    "mode",
    "reader",
    "cursor",
    "retrySeconds",
    "amqpPort",
    "deduplicate",
    "deduplicationColumn",
    "writeId",
    "mandatory",
    "maxRecordsPerSecond",
)

# "earliest", "latest", one offset for all streams, or offsets by stream.
Offsets = str | int | dict[str, int]


@dataclass(frozen=True)
class Url:
    """The HTTP address and login of the broker."""

    host: str
    port: int
    is_tls: bool
    user: str
    password: str = field(repr=False)

    @property
    def shown(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.host}:{self.port}"


@dataclass(frozen=True)
class Options:
    """The options of a query. Can be pickled."""

    urls: tuple[Url, ...]  # of the broker, or of nodes of its cluster
    vhost: str = "/"
    stream: str | None = None
    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    starting: Offsets | None = None  # None: as in Kafka, earliest for batches, latest for streaming
    starting_time: str | None = None
    ending: Offsets | None = None  # None: latest
    ending_time: str | None = None
    trigger_records: int | None = None
    trigger_bytes: int | None = None
    partitions_min: int | None = None  # None: as `split_ranges` chooses
    partition_records: int = PARTITION_RECORDS
    fails_on_loss: bool = True
    pushes_filters: bool = False
    data_dir: str | None = None
    lake: str | None = None
    mode: str | None = None
    reader: str | None = None
    cursor: str | None = None  # name under which a streaming query stores its position
    retry_s: float = RETRY_S
    amqp_port: int | None = None
    deduplicates: bool = True
    deduplication_column: str | None = None
    write_id: str | None = None
    is_mandatory: bool = True
    records_per_second: int | None = None  # of each writing task

    @property
    def url(self) -> Url:
        """Return the address that is asked first."""
        return self.urls[0]

    def at_address(self, number: int) -> "Options":
        """Return these options with another address first. Numbers go round."""
        at = number % len(self.urls)
        return replace(self, urls=self.urls[at:] + self.urls[:at]) if at else self


def parse_options(given: Mapping[str, str]) -> Options:
    """Parse options; raise OptionError with a message that says how to correct them."""
    values = {name.lower(): value for name, value in given.items()}
    _refuse_misspelt(values)
    options = _Values(values)
    found = Options(
        urls=_urls(options.text("url")),
        vhost=options.text("vhost") or "/",
        stream=options.text("stream"),
        queue=options.text("queue"),
        exchange=values.get("exchange"),
        routing_key=values.get("routing_key"),
        starting=_offsets("startingOffsets", options.text("startingOffsets")),
        starting_time=options.text("startingTimestamp"),
        ending=_offsets("endingOffsets", options.text("endingOffsets")),
        ending_time=options.text("endingTimestamp"),
        trigger_records=options.count("maxRecordsPerTrigger"),
        trigger_bytes=options.count("maxBytesPerTrigger"),
        partitions_min=options.count("minPartitions"),
        partition_records=options.count("maxRecordsPerPartition") or PARTITION_RECORDS,
        fails_on_loss=options.flag("failOnDataLoss", True),
        pushes_filters=options.flag("pushFilters", False),
        data_dir=options.text("dataDir"),
        lake=options.text("lake"),
        mode=options.text("mode"),
        reader=options.text("reader"),
        cursor=options.text("cursor"),
        retry_s=options.seconds("retrySeconds", RETRY_S),
        amqp_port=options.count("amqpPort", PORT_MAX),
        deduplicates=options.flag("deduplicate", True),
        deduplication_column=options.text("deduplicationColumn"),
        write_id=options.text("writeId"),
        is_mandatory=options.flag("mandatory", True),
        records_per_second=options.count("maxRecordsPerSecond"),
    )
    _check(found)
    return found


def _check(options: Options) -> None:
    places = [options.stream, options.queue, options.exchange]
    if sum(place is not None for place in places) > 1:
        raise OptionError("give one of the options 'stream', 'queue' and 'exchange'")
    if options.starting is not None and options.starting_time is not None:
        raise OptionError("give 'startingOffsets' or 'startingTimestamp', not both")
    if options.ending is not None and options.ending_time is not None:
        raise OptionError("give 'endingOffsets' or 'endingTimestamp', not both")
    if options.mode not in (None, PEEK, LEASE):
        raise OptionError(f"'mode' is '{PEEK}' or '{LEASE}', not '{options.mode}'")
    if options.lake is not None:
        _check_lake(options)


def _check_lake(options: Options) -> None:
    if options.stream is None:
        raise OptionError("'lake' needs the option 'stream': the stream that was archived there")
    limits = (options.starting, options.starting_time, options.ending, options.ending_time)
    if any(limit is not None for limit in limits):
        raise OptionError(
            "with 'lake' the whole stream is read, without starting and ending offsets: use"
            " where() on offset or timestamp"
        )


def _refuse_misspelt(values: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in NAMES}
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.85)
            if near:
                raise OptionError(f"no option '{name}': did you mean '{known[near[0]]}'?")


class _Values:
    """Options by name, without regard to case."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower()) or None

    def count(self, name: str, most: int = COUNT_MAX) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 20) or not 1 <= int(text) <= most:
            reach = "from 1 on" if most == COUNT_MAX else f"from 1 to {most}"
            raise OptionError(f"'{name}' is a number {reach}, not '{text}'")
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        text = (self.text(name) or str(default)).lower()
        if text not in ("true", "false"):
            raise OptionError(f"'{name}' is true or false, not '{text}'")
        return text == "true"

    def seconds(self, name: str, default: float) -> float:
        text = self.text(name)
        try:
            found = default if text is None else float(text)
        except ValueError:
            found = -1.0
        if not 0 <= found < 1e9:
            raise OptionError(f"'{name}' is a number of seconds, not '{text}'")
        return found


def _urls(text: str | None) -> tuple[Url, ...]:
    """Parse one address, or several. One without a login gets the login of the first."""
    if text is None:
        raise OptionError(f"the option 'url' is missing: the broker's address, {_EXAMPLE}")
    first, *others = _NEXT_URL.split(text)
    found = [_url(first, "guest", "guest")]
    return (*found, *(_url(other, found[0].user, found[0].password) for other in others))


def _url(text: str, user: str, password: str) -> Url:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise OptionError(f"'url' is not an address {_EXAMPLE}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError(f"'url' is not an address {_EXAMPLE}")
    if parts.username:
        user, password = unquote(parts.username), "guest"
    if parts.password:
        password = unquote(parts.password)
    return Url(
        host=parts.hostname,
        port=port or (15671 if parts.scheme == "https" else 15672),
        is_tls=parts.scheme == "https",
        user=user,
        password=password,
    )


def _offsets(name: str, text: str | None) -> Offsets | None:
    if text is None or text in (EARLIEST, LATEST):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict) and all(
        type(value) is int and value >= OFFSET_MIN for value in found.values()
    ):
        return found
    raise OptionError(
        f"'{name}' is 'earliest', 'latest', an offset, or offsets by stream as JSON"
        f" ({{\"orders-0\": 5}}; -2 is the earliest, -1 the latest), not '{text}'"
    )
