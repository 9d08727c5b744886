"""Shorten texts that quote what a client sent: in answers, in the audit and in the log."""

from typing import Final

# The longest path that names four objects fits, even if each of their bytes is percent-encoded.
QUOTED_CHARS_MAX: Final = 4096
_LEFT_OUT: Final = " … "


def shortened(text: str, chars_max: int = QUOTED_CHARS_MAX) -> str:
    """Return a text without its middle if it is too long: both ends of an error explain it."""
    if len(text) <= chars_max:
        return text
    kept = chars_max - len(_LEFT_OUT)
    end = kept // 2
    return text[: kept - end] + _LEFT_OUT + text[len(text) - end :]
