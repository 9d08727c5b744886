"""Values as users write them on a command line. Each raises ConfigError with a whole sentence."""

import re
from typing import Final

from leveret.errors import ConfigError
from leveret.perf.load import Pairs, Schedule

KEYS_MAX: Final = 1_000_000
_RANGE: Final = re.compile(r"\{(\d+)\.\.(\d+)\}")
_SIZES: Final = {"": 1, "k": 1024, "m": 1024 * 1024}
_SIZE: Final = re.compile(r"(\d+)\s*([km]?)i?b?", re.IGNORECASE)


def size(text: str) -> int:
    """Bytes: 16, 4k, 1MiB."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"'{text}' is no size such as 16, 4k or 1MiB")
    return int(found[1]) * _SIZES[found[2].lower()]


def sizes(text: str) -> tuple[int, ...]:
    """One size, or several with commas between them."""
    return tuple(size(part) for part in text.split(","))


def schedule(words: list[str], what: str) -> Schedule:
    """VALUE:SECONDS, each. Sizes may have a unit."""
    return tuple(_phase(word, what) for word in words)


def _phase(word: str, what: str) -> tuple[int, float]:
    value, colon, seconds = word.partition(":")
    try:
        if not colon:
            raise ValueError
        return (size(value) if what == "size" else int(value)), float(seconds)
    except ValueError:
        raise ConfigError(f"'{word}' is not {what.upper()}:SECONDS") from None


def pairs(words: list[str], what: str) -> Pairs:
    """KEY=VALUE, each: whole numbers and true and false are what they look like."""
    return tuple(_pair(word, what) for word in words)


def _pair(word: str, what: str) -> tuple[str, object]:
    key, equals, value = word.partition("=")
    if not key or not equals:
        raise ConfigError(f"{what} '{word}' is not KEY=VALUE")
    if value in ("true", "false"):
        return key, value == "true"
    return key, int(value) if re.fullmatch(r"-?\d+", value) else value


def keys(words: list[str]) -> tuple[str, ...]:
    """Routing keys; `order.{1..100}` is a hundred of them."""
    found: list[str] = []
    for word in words:
        found.extend(_expanded(word))
        if len(found) > KEYS_MAX:
            raise ConfigError(f"there are more than {KEYS_MAX:,} keys")
    return tuple(found)


def _expanded(word: str) -> list[str]:
    found = _RANGE.search(word)
    if found is None:
        return [word]
    first, last = int(found[1]), int(found[2])
    if not first <= last <= first + KEYS_MAX:
        raise ConfigError(f"'{word}' is no range of at most {KEYS_MAX:,} keys")
    before, after = word[: found.start()], word[found.end() :]
    return [f"{before}{number}{after}" for number in range(first, last + 1)]
