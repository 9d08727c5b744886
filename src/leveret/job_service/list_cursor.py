"""The text by which a client continues a list of jobs. Only the store that wrote it can read it.

It holds numbers: the key of the last job of a page, in the order of the list.
"""

from collections.abc import Iterable
from typing import Final

from leveret.errors import JobsInvalidError

_NUMBER_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 20


def encode_cursor(numbers: Iterable[int]) -> str:
    return "_".join(map(str, numbers))


def decode_cursor(text: str, count: int) -> list[int]:
    """Return the numbers of a cursor; JobsInvalidError if the text is not a cursor with `count`."""
    parts = text.split("_")
    if len(parts) == count and all(map(_is_number, parts)):
        numbers = [int(part) for part in parts]
        if all(abs(number) <= _NUMBER_MAX for number in numbers):
            return numbers
    raise bad_cursor()


def _is_number(part: str) -> bool:
    digits = part.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX


def bad_cursor() -> JobsInvalidError:
    return JobsInvalidError("after must come from the page before, of the same list", "after")
