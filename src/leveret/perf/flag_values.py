"""Parse values of command-line flags. Each function raises ConfigError for a wrong value."""

import re
from typing import Final

from leveret.errors import ConfigError
from leveret.perf.load import Pairs, Schedule

KEYS_MAX: Final = 1_000_000
_RANGE: Final = re.compile(r"\{(\d+)\.\.(\d+)\}")
_SIZES: Final = {"": 1, "k": 1024, "m": 1024 * 1024}
_SIZE: Final = re.compile(r"(\d+)\s*([km]?)i?b?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Parse a size such as 16, 4k or 1MiB. Return bytes."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"'{text}' is not a size such as 16, 4k or 1MiB")
    return int(found[1]) * _SIZES[found[2].lower()]


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parse one size, or several separated by commas."""
    return tuple(parse_size(part) for part in text.split(","))


def parse_schedule(texts: list[str], what: str) -> Schedule:
    """Parse phases VALUE:SECONDS. `what` is "rate" or "size"; sizes may have a unit."""
    return tuple(_phase(text, what) for text in texts)


def _phase(text: str, what: str) -> tuple[int, float]:
    value, colon, seconds = text.partition(":")
    try:
        if not colon:
            raise ValueError
        return (parse_size(value) if what == "size" else int(value)), float(seconds)
    except ValueError:
        raise ConfigError(f"'{text}' is not {what.upper()}:SECONDS") from None


def parse_pairs(texts: list[str], what: str) -> Pairs:
    """Parse pairs KEY=VALUE. Whole numbers, true and false get their type; the rest is text."""
    return tuple(_pair(text, what) for text in texts)


def _pair(text: str, what: str) -> tuple[str, object]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ConfigError(f"{what} '{text}' is not KEY=VALUE")
    if value in ("true", "false"):
        return key, value == "true"
    return key, int(value) if re.fullmatch(r"-?\d+", value) else value


def parse_keys(texts: list[str]) -> tuple[str, ...]:
    """Parse routing keys. `order.{1..100}` is a hundred keys."""
    found: list[str] = []
    for text in texts:
        found.extend(_expand_range(text))
        if len(found) > KEYS_MAX:
            raise ConfigError(f"more than {KEYS_MAX:,} keys")
    return tuple(found)


def _expand_range(text: str) -> list[str]:
    found = _RANGE.search(text)
    if found is None:
        return [text]
    first, last = int(found[1]), int(found[2])
    if not first <= last <= first + KEYS_MAX:
        raise ConfigError(f"'{text}' is not a range of at most {KEYS_MAX:,} keys")
    before, after = text[: found.start()], text[found.end() :]
    return [f"{before}{number}{after}" for number in range(first, last + 1)]
