"""Read the query of a call of the jobs API as strictly as its body.

A parameter that the call does not know, or that is given twice, is refused: a misspelt limit would
otherwise be no limit.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from leveret.errors import JobsInvalidError
from leveret.job_service import limits
from leveret.shortened import shortened

PARAMETERS_MAX: Final = 32  # in a query; a request may have 60,000, which take 0.1 s
_NAME_CHARS_MAX: Final = 100  # of an unknown parameter, as it is quoted

Parameters = Mapping[str, str]


def read_parameters(query: bytes, known: tuple[str, ...]) -> Parameters:
    """Return the parameters in a query. Raise if one is unknown, given twice or not in UTF-8."""
    found: dict[str, str] = {}
    if not query:
        return found
    if query.count(b"&") >= PARAMETERS_MAX:
        raise JobsInvalidError(f"the query has more than {PARAMETERS_MAX} parameters")
    try:
        pairs = parse_qsl(query.decode(), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise JobsInvalidError("the query is not in UTF-8") from None
    for name, value in pairs:
        if name not in known:
            raise JobsInvalidError(_unknown(shortened(name, _NAME_CHARS_MAX), known), name)
        if name in found:
            raise JobsInvalidError(f"{name} is given twice", name)
        found[name] = value
    return found


def _unknown(name: str, known: tuple[str, ...]) -> str:
    named = ", ".join(known) if known else "none"
    return f"'{name}' is not a known parameter; this call takes: {named}"


def topic_of(given: Parameters) -> tuple[str, str]:
    """Return namespace and topic."""
    namespace, topic = required("namespace", given), required("topic", given)
    limits.require_topic(namespace, topic)
    return namespace, topic


def required(field: str, given: Parameters) -> str:
    if field not in given:
        raise JobsInvalidError(f"{field} is missing", field)
    return given[field]


def number_of(given: Parameters, field: str, default: int) -> int:
    text = given.get(field)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise JobsInvalidError(f"{field} must be a whole number, not {text}", field)
    return int(text)


def flag_of(given: Parameters, field: str, *, default: bool) -> bool:
    text = given.get(field)
    if text is None:
        return default
    if text not in ("true", "false"):
        raise JobsInvalidError(f"{field} must be true or false, not {text}", field)
    return text == "true"


def duration_ms_of(given: Parameters, field: str) -> int | None:
    """Return a number of seconds as milliseconds."""
    text = given.get(field)
    if text is None:
        return None
    try:
        # Python also reads "1_0", " 1" and digits of other scripts.
        seconds = float(text if text.isascii() and "_" not in text and text.strip() == text else "")
    except ValueError:
        raise JobsInvalidError(f"{field} must be a number of seconds, not {text}", field) from None
    return as_ms(seconds, field)


def as_ms(seconds: float | None, field: str) -> int | None:
    """Return seconds as milliseconds. Raise for infinity and for a value that is no number."""
    if seconds is None:
        return None
    try:
        return round(seconds * 1000)
    except (ValueError, OverflowError):
        raise JobsInvalidError(
            f"{field} must be a number of seconds, not {seconds}", field
        ) from None
