"""Read the expiration property of a message: a text that must be a number of milliseconds.

RabbitMQ uses Erlang's conversion of strings to integers, and its error texts show it: a sign is
allowed, white space is not, and the text after the number is quoted.
"""

from typing import Final

from leveret.engine.arguments.rules import TIME_MS_MAX, erlang_string
from leveret.errors import PreconditionFailedError

_LINE_COLUMNS: Final = 78  # where Erlang breaks a tuple into lines
_DIGITS: Final = "0123456789"


def read_expiration(text: str) -> int:
    """Return the milliseconds, 0 to `TIME_MS_MAX`.

    Raise PreconditionFailedError, in RabbitMQ's words, for every other text.
    """
    end = _number_end(text)
    if end == 0:
        raise PreconditionFailedError(f"invalid expiration '{text}': no_integer")
    if end < len(text):
        raise _refused(text, "leftover_string", erlang_string(text[end:]))
    number = int(text)
    if number < 0:
        raise _refused(text, "value_negative", str(number))
    if number > TIME_MS_MAX:
        raise _refused(text, "value_too_large", str(number))
    return number


def _number_end(text: str) -> int:
    """Return where the number at the start of a text ends; 0 if there is none."""
    start = 1 if text[:1] in ("+", "-") else 0
    end = start
    while end < len(text) and text[end] in _DIGITS:
        end += 1
    return end if end > start else 0


def _refused(text: str, name: str, value: str) -> PreconditionFailedError:
    head = f"invalid expiration '{text}': "
    if len(head) + len(name) + len(value) + 3 <= _LINE_COLUMNS:
        return PreconditionFailedError(f"{head}{{{name},{value}}}")
    indent = " " * (len(head) + 1)
    return PreconditionFailedError(f"{head}{{{name},\n{indent}{value}}}")
