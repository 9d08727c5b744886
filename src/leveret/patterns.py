"""Regular expressions that users write, in permissions and policies.

RE2 matches them in time linear in the length of the text, so that an expression that would explode
in a backtracking engine does no harm. Expressions that need backtracking (look-around,
back-references) or more than `MEMORY_BYTES_MAX` are refused when they are set, with a reason.

Text is matched as UTF-8 bytes; bytes that are not UTF-8 match no character.
"""

from typing import Final

import re2

from leveret.errors import PreconditionFailedError

LENGTH_MAX: Final = 4096  # characters of one expression
MEMORY_BYTES_MAX: Final = 2 * 1024 * 1024  # of one compiled expression


class Pattern:
    """An expression. It matches anywhere in the text unless it is anchored."""

    __slots__ = ("_regexp", "size", "text")

    def __init__(self, text: str) -> None:
        """Raises PreconditionFailedError if RE2 does not accept the expression."""
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

        self.size: int = self._regexp.programsize  # instructions; they bound the time of a match

    def matches(self, text: str) -> bool:
        return self._regexp.search(_bytes(text)) is not None


def escape(text: str) -> str:
    """Return an expression that matches this text literally."""
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
