"""Regular expressions that users write: of permissions and policies.

They are matched by RE2, whose time is linear in the length of the text: an expression that would
explode in a backtracking engine does no harm. What needs backtracking (look-around,
back-references) is refused when the expression is given, with a reason, and so is what would need
more than `MEMORY_BYTES_MAX`.

Text is matched as UTF-8 bytes; bytes that are not UTF-8 match no character.
"""

from typing import Final

import re2

from leveret.errors import PreconditionFailedError

LENGTH_MAX: Final = 4096  # characters of an expression
MEMORY_BYTES_MAX: Final = 2 * 1024 * 1024  # of one compiled expression


class Pattern:
    """An expression; it matches where any part of the text fits, unless it is anchored."""

    __slots__ = ("_regexp", "text")

    def __init__(self, text: str) -> None:
        """Raises PreconditionFailedError where it is no expression that RE2 takes."""
        self.text = text
        if len(text) > LENGTH_MAX:
            raise PreconditionFailedError(
                f"the regular expression has more than {LENGTH_MAX} characters"
            )
        try:
            self._regexp = re2.compile(_bytes(text), _options())
        except re2.error as fault:
            raise PreconditionFailedError(
                f"'{text}' is not a regular expression of RE2's kind, which has neither look-around"
                f" nor back-references: {_reason(fault)}"
            ) from None

    def matches(self, text: str) -> bool:
        return self._regexp.search(_bytes(text)) is not None


def escape(text: str) -> str:
    """An expression that matches this text and nothing else."""
    return str(re2.escape(text))


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    options.never_capture = True
    return options


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _reason(fault: Exception) -> str:
    cause = fault.args[0] if fault.args else ""
    return cause.decode("utf-8", "replace") if isinstance(cause, bytes) else str(cause)
