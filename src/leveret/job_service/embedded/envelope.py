"""The properties and headers of a message that describe its job.

    x-job-id            the Snowflake, as text
    x-job-priority      the job's priority, where it is not 0
    x-job-created       when it was enqueued, ms since 1970
    x-job-after         when it may be handed out, ms since 1970
    x-job-attempts      failed attempts so far
    x-job-failures      the last of them, as JSON
    x-job-fair-key      its fair key
    x-job-key           its idempotency key

`message_id` is the id too, and `priority` is the priority as AMQP counts it. Other properties of a
message that was published over AMQP stay as they are. A message without an id was published over
AMQP: it gets an id when it is first handed out, and keeps it from its first failure on. A header
with a value that no job can have counts as missing.
"""

from typing import Final

import msgspec

from leveret.engine.insight.walk import arrived_ms
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.job_model import (
    ERROR_BYTES_MAX,
    ERRORS_KEPT,
    PRIORITY_MAX,
    PRIORITY_MIN,
    Failure,
    Job,
    NewJob,
)
from leveret.job_service.kept_errors import cut_text, kept_error
from leveret.job_service.limits import RETRIES_MAX
from leveret.job_service.snowflake import ID_MAX
from leveret.wire.properties import (
    PERSISTENT,
    Properties,
    decode_properties,
    encode_header,
    parse_traits,
)
from leveret.wire.scan import find_entry
from leveret.wire.tables import Table, decode_field, field_of

ID: Final = "x-job-id"
PRIORITY: Final = "x-job-priority"
CREATED: Final = "x-job-created"
AFTER: Final = "x-job-after"
ATTEMPTS: Final = "x-job-attempts"
FAILURES: Final = "x-job-failures"
FAIR_KEY: Final = "x-job-fair-key"
KEY: Final = "x-job-key"

# AMQP consumers get the header in one frame, which usually has at most 131,072 bytes.
HISTORY_BYTES_MAX: Final = 96 * 1024
_KEPT_BYTES: Final = (
    ERROR_BYTES_MAX,
    1_024,
    256,
)  # of each error before the last; tried in this order
_OCTET_MAX: Final = 255
_TIME_MS_MAX: Final = 1 << 47  # the year 6429: datetime can show it
_encode: Final = msgspec.json.Encoder().encode
_failures: Final = msgspec.json.Decoder(list[Failure])


class Envelope:
    """A job without its payload."""

    def __init__(self, id: int, properties: Properties) -> None:
        self.id = id  # 0 where the message has none yet
        self.properties = properties  # all other properties of the message
        self.priority = 0
        self.created_ms = 0
        self.after_ms = 0
        self.attempts = 0
        self.failures: list[Failure] = []
        self.fair_key: str | None = None
        self.key: str | None = None

    def note_failure(self, error: str, now_ms: int) -> None:
        """Record another failed attempt."""
        self.attempts += 1
        kept = kept_error(error)
        self.failures.append(Failure(attempt=self.attempts, time_ms=now_ms, error=kept))
        del self.failures[:-ERRORS_KEPT]

    def header(self, payload_bytes: int) -> bytes:
        """Return the content header of the job's message."""
        properties = self.properties
        headers: Table = properties.headers if properties.headers is not None else {}
        headers[ID] = field_of(str(self.id))
        headers[CREATED] = field_of(self.created_ms)
        headers[AFTER] = field_of(self.after_ms)
        if self.priority:
            headers[PRIORITY] = field_of(self.priority)
        if self.attempts or ATTEMPTS in headers:
            headers[ATTEMPTS] = field_of(self.attempts)
        if self.failures:
            headers[FAILURES] = field_of(_history(self.failures))
        if self.fair_key is not None:
            headers[FAIR_KEY] = field_of(self.fair_key)
        if self.key is not None:
            headers[KEY] = field_of(self.key)
        properties.headers = headers
        properties.delivery_mode = PERSISTENT
        if self.priority <= 0:
            properties.priority = min(-self.priority, _OCTET_MAX)
        return encode_header(properties, payload_bytes)

    def job(self, state: str, payload: bytes, lease_expires_ms: int | None = None) -> Job:
        """Return the job as an operator sees it."""
        return Job(
            id=self.id,
            state=state,
            priority=self.priority,
            attempts=self.attempts,
            deliver_after_ms=self.after_ms,
            created_ms=self.created_ms,
            lease_expires_ms=lease_expires_ms,
            fair_key=self.fair_key,
            idempotency_key=self.key,
            payload=payload,
            failures=self.failures,
        )


def _history(failures: list[Failure]) -> str:
    """Return failures as JSON that fits into a frame; older errors are cut shorter."""
    encoded = b""
    for kept in _KEPT_BYTES:
        for failure in failures[:-1]:
            failure.error = cut_text(failure.error, kept)
        encoded = _encode(failures)
        if len(encoded) <= HISTORY_BYTES_MAX:
            break
    return encoded.decode()


def make_envelope(job: NewJob, id: int, now_ms: int) -> Envelope:
    """Return the envelope of a new job."""
    properties = Properties()
    properties.message_id = str(id)
    properties.timestamp = now_ms // 1000
    envelope = Envelope(id, properties)
    envelope.priority = job.priority
    envelope.created_ms = now_ms
    envelope.after_ms = max(job.deliver_after_ms, now_ms)
    envelope.fair_key = job.fair_key
    envelope.key = job.idempotency_key
    return envelope


def read_envelope(message: Message, queue: Queue) -> Envelope:
    """Return the envelope of any message, however it was published."""
    properties = decode_properties(message.header)
    headers = properties.headers if properties.headers is not None else {}
    envelope = Envelope(_id(_text(headers, ID)), properties)
    came_ms = arrived_ms(queue, message.seq) or queue.turn.now_ms
    envelope.created_ms = _number(headers, CREATED, came_ms, 0, _TIME_MS_MAX)
    envelope.after_ms = _number(headers, AFTER, came_ms, 0, _TIME_MS_MAX)
    said = -max(properties.priority or 0, 0)
    envelope.priority = _number(headers, PRIORITY, said, PRIORITY_MIN, PRIORITY_MAX)
    if queue.settings.has_jobs:
        envelope.priority = -1 - message.priority
    envelope.attempts = _number(headers, ATTEMPTS, 0, 0, RETRIES_MAX) + message.failures
    envelope.fair_key = _text(headers, FAIR_KEY)
    envelope.key = _text(headers, KEY)
    envelope.failures = _read_failures(_text(headers, FAILURES))
    return envelope


def _read_failures(text: str | None) -> list[Failure]:
    if text is None:
        return []
    try:
        found = _failures.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        # A publisher has used the header for something else.
        return []
    return [failure for failure in found if 0 <= failure.time_ms <= _TIME_MS_MAX]


def shown_bytes(message: Message) -> int:
    """Return the bytes of a job in a list: its payload, and the header with its failures."""
    return len(message.body) + len(message.header)


def job_id(message: Message) -> int:
    """Return the id in the headers of a message without decoding the others; 0 for none."""
    traits = parse_traits(message.header)
    at = find_entry(message.header, traits.headers_at, traits.headers_end, ID.encode())
    if at < 0:
        return 0
    return _id(decode_field(message.header, at, traits.headers_end).value)


def _id(value: object) -> int:
    if not (isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20):
        return 0
    return int(value) if int(value) <= ID_MAX else 0


def _text(headers: Table, name: str) -> str | None:
    field = headers.get(name)
    return field.value if field is not None and isinstance(field.value, str) else None


def _number(headers: Table, name: str, otherwise: int, least: int, most: int) -> int:
    field = headers.get(name)
    value = field.value if field is not None else None
    if not isinstance(value, int) or isinstance(value, bool):
        return otherwise
    return value if least <= value <= most else otherwise
