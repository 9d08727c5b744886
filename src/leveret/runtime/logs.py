"""The node's log: one line for each event on stderr, as key=value or as JSON.

    2026-01-31T12:00:00.123Z level=info logger=leveret.amqp msg="connection opened" user=guest

A call gives a fixed text and its facts: `log.info("opened", extra={"facts": {"user": name}})`.
Whatever is written goes through `masked`, so that no password, token or login header gets out, and
has at most `LINE_CHARS_MAX` characters. Of lines that repeat one text, `REPEATS_PER_S` are written
in a second; how many were left out is told after it. Rotation is the business of the platform.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import IO, Any, Final

LINE_CHARS_MAX: Final = 16_384
REPEATS_PER_S: Final = 50
TEXTS_MAX: Final = 1000  # different texts of one second that are told apart

TEXT: Final = "text"
JSON: Final = "json"

_PLAIN: Final = re.compile(r"[^\s\"=\\\x00-\x1f\x7f]+")
_HIDDEN: Final = (
    # amqp://user:password@host
    (re.compile(r"(://[^/\s:@\"']{0,255}):[^/\s@\"']{1,1024}@"), r"\1:***@"),
    # Authorization: Basic …; Bearer …
    (re.compile(r"(?i)\b(basic|bearer)[ +][a-z0-9+/=._~-]{4,}"), r"\1 ***"),
    # password=…, "token": "…"
    (
        re.compile(
            r"(?i)\b(authorization|cookie|pass|passwd|password|secret|token)"
            r"(\\?[\"']?\s{0,4}[:=]\s{0,4})(\\?[\"'])?[^\s\"',;}\]]{1,4096}(?(3)\\?[\"'])"
        ),
        r"\1\2***",
    ),
)


def masked(text: str) -> str:
    """The text without what must not be read."""
    for pattern, shown in _HIDDEN:
        text = pattern.sub(shown, text)
    return text


class _Formatter(logging.Formatter):
    """What both forms share."""

    def format(self, record: logging.LogRecord) -> str:
        line = masked(self.line(_fields(record)))
        return line if len(line) <= LINE_CHARS_MAX else line[: LINE_CHARS_MAX - 1] + "…"

    def line(self, fields: dict[str, object]) -> str:
        raise NotImplementedError


class TextFormatter(_Formatter):
    """key=value."""

    def line(self, fields: dict[str, object]) -> str:
        time = fields.pop("time")
        return f"{time} " + " ".join(f"{key}={_quoted(value)}" for key, value in fields.items())


class JsonFormatter(_Formatter):
    """One JSON object."""

    def line(self, fields: dict[str, object]) -> str:
        return json.dumps(fields, default=str, ensure_ascii=False)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    moment = datetime.fromtimestamp(record.created, UTC)
    fields: dict[str, object] = {
        "time": f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z",
        "level": record.levelname.lower(),
        "logger": record.name,
        "msg": record.getMessage(),
    }
    fields.update(getattr(record, "facts", {}))
    if record.exc_info and record.exc_info[0] is not None:
        fields["traceback"] = logging.Formatter().formatException(record.exc_info)
    return fields


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


class RepeatLimiter:
    """Counts the lines of each text in the present second."""

    def __init__(self) -> None:
        self._second = 0
        self._counts: dict[tuple[str, int, str], int] = {}

    def admits(self, record: logging.LogRecord) -> bool:
        """Whether this line may be written."""
        key = (record.name, record.levelno, str(record.msg))
        if key not in self._counts and len(self._counts) >= TEXTS_MAX:
            return False
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key] <= REPEATS_PER_S

    def left_out(self, second: int) -> list[logging.LogRecord]:
        """A line arrives in this second: what to tell of the one before."""
        if second == self._second:
            return []
        counts, self._counts, self._second = self._counts, {}, second
        return [
            _repeated(name, level, text, count - REPEATS_PER_S)
            for (name, level, text), count in counts.items()
            if count > REPEATS_PER_S
        ]


def _repeated(name: str, level: int, text: str, count: int) -> logging.LogRecord:
    record = logging.LogRecord(name, level, "", 0, "repeated lines were left out", (), None)
    record.facts = {"of": text, "count": count}
    return record


class LogHandler(logging.StreamHandler[IO[str]]):
    """Writes lines, but not a flood of them."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(stream)
        self._flood = RepeatLimiter()

    def emit(self, record: logging.LogRecord) -> None:
        for late in self._flood.left_out(int(record.created)):
            super().emit(late)
        if self._flood.admits(record):
            super().emit(record)


def configure(level: str, form: str, stream: IO[str] | None = None) -> None:
    """Log to stderr from now on."""
    handler: Any = LogHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if form == JSON else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
