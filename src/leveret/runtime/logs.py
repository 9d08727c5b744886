"""The log of a node: one line per event on stderr, as key=value or as JSON.

    2026-01-31T12:00:00.123Z level=info logger=leveret.amqp msg="connection opened" user=guest

A caller gives a fixed text and its facts: `log.info("opened", extra={"facts": {"user": name}})`.
Every line goes through `masked`, which hides passwords, tokens and login headers, and is cut to
`LINE_CHARS_MAX` characters. At most `REPEATS_PER_S` lines with the same text are written per
second; a later line says how many were left out. Log rotation is left to the platform. A thread
writes the lines (`log_writer`), so that a stderr that no process reads stops nothing.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import IO, Any, Final

from leveret.runtime.log_writer import LogWriter

LINE_CHARS_MAX: Final = 16_384
REPEATS_PER_S: Final = 50
TEXTS_MAX: Final = 1000  # different texts of one second that are counted

_writers: Final[list[LogWriter]] = []  # of this process

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
    """Return the text with passwords and tokens replaced by stars."""
    for pattern, shown in _HIDDEN:
        text = pattern.sub(shown, text)
    return text


class _Formatter(logging.Formatter):
    """Base of both formatters: masks and cuts the line."""

    def format(self, record: logging.LogRecord) -> str:
        line = masked(self.line(_fields(record)))
        return line if len(line) <= LINE_CHARS_MAX else line[: LINE_CHARS_MAX - 1] + "…"

    def line(self, fields: dict[str, object]) -> str:
        raise NotImplementedError


class TextFormatter(_Formatter):
    """Writes a line as key=value."""

    def line(self, fields: dict[str, object]) -> str:
        time = fields.pop("time")
        return f"{time} " + " ".join(f"{key}={_quoted(value)}" for key, value in fields.items())


class JsonFormatter(_Formatter):
    """Writes a line as one JSON object."""

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
    """Counts the lines of each text in the current second."""

    def __init__(self) -> None:
        self._second = 0
        self._counts: dict[tuple[str, int, str], int] = {}

    def admits(self, record: logging.LogRecord) -> bool:
        """Return True if this line may be written."""
        key = (record.name, record.levelno, str(record.msg))
        if key not in self._counts and len(self._counts) >= TEXTS_MAX:
            return False
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key] <= REPEATS_PER_S

    def left_out(self, second: int) -> list[logging.LogRecord]:
        """Return records of the lines that were left out before this second."""
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


class LogHandler(logging.StreamHandler[IO[str] | LogWriter]):
    """Writes lines, and limits repeated ones."""

    def __init__(self, stream: IO[str] | LogWriter) -> None:
        super().__init__(stream)
        self._limiter = RepeatLimiter()

    def emit(self, record: logging.LogRecord) -> None:
        for late in self._limiter.left_out(int(record.created)):
            super().emit(late)
        if self._limiter.admits(record):
            super().emit(record)


def configure(level: str, form: str) -> None:
    """Configure logging to stderr."""
    formatter = JsonFormatter() if form == JSON else TextFormatter()
    handler: Any = LogHandler(_stderr(formatter))
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def dropped_lines() -> int:
    """Return the number of lines that could not be written, since the start."""
    return sum(writer.dropped for writer in _writers)


def _stderr(formatter: logging.Formatter) -> IO[str] | LogWriter:
    """Return a writer for stderr; stderr itself if it has no descriptor, as in some tests."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return sys.stderr
    writer = LogWriter(descriptor, lambda count: formatter.format(_dropped(count)) + "\n")
    _writers.append(writer)
    return writer


def _dropped(count: int) -> logging.LogRecord:
    text = "log lines were dropped: stderr was not read"
    record = logging.LogRecord(__name__, logging.WARNING, "", 0, text, (), None)
    record.facts = {"count": count}
    return record
