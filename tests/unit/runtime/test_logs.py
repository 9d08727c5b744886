"""The log: one line per event, without secrets, with a limit on repeated lines."""

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from leveret.runtime.logs import (
    LINE_CHARS_MAX,
    REPEATS_PER_S,
    JsonFormatter,
    LogHandler,
    TextFormatter,
    masked,
)


@contextmanager
def logging_to(form: str = "text") -> Iterator[tuple[logging.Logger, io.StringIO]]:
    stream = io.StringIO()
    handler = LogHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    log = logging.Logger("leveret.test")
    log.addHandler(handler)
    yield log, stream


def record(text: str, created: float, **facts: object) -> logging.LogRecord:
    made = logging.LogRecord("leveret.test", logging.WARNING, "", 0, text, (), None)
    made.created = created
    made.facts = facts
    return made


def test_a_line_is_time_level_and_facts() -> None:
    line = TextFormatter().format(record("it is so", 1.5, user="ann", why='a "b" c', n=3))
    assert line == (
        "1970-01-01T00:00:01.500Z level=warning logger=leveret.test "
        'msg="it is so" user=ann why="a \\"b\\" c" n=3'
    )


def test_json_has_the_same_fields() -> None:
    line = JsonFormatter().format(record("it is so", 1.5, user="ann", n=3))
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:01.500Z",
        "level": "warning",
        "logger": "leveret.test",
        "msg": "it is so",
        "user": "ann",
        "n": 3,
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_event_is_one_line_whatever_it_holds(form: str) -> None:
    with logging_to(form) as (log, stream):
        log.warning("two\nlines\r\x1b[31m", extra={"facts": {"name": "a\nb"}})
        try:
            raise ValueError("broken\nbadly")
        except ValueError:
            log.exception("it broke")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert "\x1b" not in stream.getvalue()
    assert "ValueError" in lines[1]


SECRETS = [
    "amqp://ann:{}@host:5672/vhost",
    "cannot reach amqps://ann:{}@host and https://x:{}@y",
    "Authorization: Basic {}",
    "{{'authorization': 'Bearer {}'}}",
    'headers: {{"Authorization": "{}"}}',
    "password={}",
    '{{"password": "{}", "name": "ann"}}',
    "token: {}",
]


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("text", SECRETS)
def test_no_secret_is_written(text: str, form: str) -> None:
    secret = "c2VjcmV0LXBhc3N3b3Jk"
    with logging_to(form) as (log, stream):
        log.warning(text.format(secret, secret))
        log.warning("a fact", extra={"facts": {"what": text.format(secret, secret)}})
        log.warning("a fact", extra={"facts": {"password": secret, "token": secret}})
    written = stream.getvalue()
    assert secret not in written
    assert "***" in written


def test_what_is_no_secret_stays() -> None:
    text = "queue 'q' in vhost '/' at http://127.0.0.1:15672/api said 5:6 of a:b@c"
    assert masked(text) == text


def test_a_line_has_a_longest_length() -> None:
    line = TextFormatter().format(record("x" * 100_000, 1.0))
    assert len(line) == LINE_CHARS_MAX


def test_repeated_lines_are_left_out_and_counted() -> None:
    with logging_to() as (log, stream):
        (handler,) = log.handlers
        for number in range(REPEATS_PER_S + 7):
            handler.handle(record("it is full", 10.1, n=number))
        handler.handle(record("another", 10.2))
        handler.handle(record("it is full", 11.0))
    lines = stream.getvalue().splitlines()
    assert len(lines) == REPEATS_PER_S + 3
    assert lines[-2].endswith('msg="repeated lines were left out" of="it is full" count=7')
    assert 'msg="it is full"' in lines[-1]
