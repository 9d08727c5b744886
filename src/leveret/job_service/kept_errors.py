"""The errors of workers, as the history of a job keeps them.

A worker may send any text. A control character takes six bytes in an answer in JSON, PostgreSQL
cannot store a zero, and an escape sequence would reach the terminal of an operator.
"""

from typing import Final

from leveret.job_model import ERROR_BYTES_MAX

_KEPT: Final = "\t\n\r"
_REPLACED: Final = {
    number: "\N{REPLACEMENT CHARACTER}"
    for number in (*range(0x20), *range(0x7F, 0xA0))
    if chr(number) not in _KEPT
}


def kept_error(text: str) -> str:
    """Return an error with its control characters replaced, cut to its limit."""
    # The limit in characters first, so that a text of megabytes is not translated.
    return cut_text(text[:ERROR_BYTES_MAX].translate(_REPLACED), ERROR_BYTES_MAX)


def cut_text(text: str, bytes_max: int) -> str:
    """Return the beginning of a text with at most so many bytes."""
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")
