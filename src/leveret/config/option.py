"""An option: name, unit, range and help text, and how a raw value becomes a typed one.

The name of an option is its field in `Settings`. The key in the file, the environment variable and
the flag follow from it. `Option.read` accepts TOML values (numbers, booleans) and text from the
environment and the command line. It raises ValueError with the end of a sentence; the caller puts
the place of the value before it.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TYPE_NAMES: Final = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "path": "a path",
}
_SIZES: Final = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
}
_WORDS: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
NUMBER_MAX: Final = 2**63 - 1
DIGITS_MAX: Final = 18  # limit for a number in which every digit counts
_LENGTH: Final = re.compile(r"\.\{(\d+),(\d+)\}")  # in the pattern of a secret
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)")


class Secret(str):
    """Text that must not reach a log: its repr is masked."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option, as declared in settings.py."""

    kind: str  # bool, int, float, str or path
    help: str  # one or two sentences for a user
    unit: str = ""  # "ms", "s", "bytes", or empty for a plain number
    low: float | None = None  # smallest allowed value
    high: float | None = None  # largest allowed value
    choices: tuple[str, ...] = ()  # the only allowed texts; empty for any text
    pattern: str = ""  # a text must match it completely
    secret: bool = False  # masked wherever it is shown
    repeats: bool = False  # may be given several times; the value is all texts, separated by spaces
    metavar: str = ""  # placeholder for the value in the help text

    def read(self, raw: object) -> object:
        """Return `raw` as a typed value; raise ValueError if it is invalid."""
        if self.kind == "bool":
            return _read_bool(raw)
        if self.kind == "int":
            return int(self._in_range(_read_number(raw, whole=True)))
        if self.kind == "float":
            return self._in_range(_read_number(raw, whole=False))
        return self._read_text(raw)

    def _in_range(self, value: float) -> float:
        if (self.low is not None and value < self.low) or (
            self.high is not None and value > self.high
        ):
            raise ValueError(f"{value:.15g} is not {self.range_text()}")
        return value

    def range_text(self) -> str:
        if self.high is None:
            return f"at least {self.low:.15g}"
        return f"between {self.low:.15g} and {self.high:.15g}"

    def _read_text(self, raw: object) -> object:
        if self.repeats and isinstance(raw, list) and all(isinstance(one, str) for one in raw):
            raw = " ".join(raw)
        if not isinstance(raw, str):
            raise ValueError(f"{raw!r} is not {_TYPE_NAMES[self.kind]}")
        if self.choices and raw not in self.choices:
            raise ValueError(f"'{raw}' is not one of {', '.join(self.choices)}")
        if self.pattern and not re.fullmatch(self.pattern, raw):
            length = _LENGTH.search(self.pattern)
            if self.secret and length is not None:
                raise ValueError(f"it must have {length[1]} to {length[2]} characters")
            shown = "it" if self.secret else f"'{raw}'"
            raise ValueError(f"{shown} does not have the form {self.metavar}")
        if self.kind == "path":
            return Path(raw)
        return Secret(raw) if self.secret else raw


def _read_bool(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    value = _WORDS.get(raw.strip().lower()) if isinstance(raw, str) else None
    if value is None:
        raise ValueError(f"{raw!r} is not true or false")
    return value


def _read_number(raw: object, *, whole: bool) -> float:
    """Convert a number, or text such as `60`, `0.6` or `512 MiB`."""
    wanted = "a whole number" if whole else "a number"
    if isinstance(raw, str):
        match = _SIZE.fullmatch(raw.strip().lower().replace("_", ""))
        if match is None or match[2] not in _SIZES:
            raise ValueError(f"'{raw}' is not {wanted}")
        if match[2] == "" and "." not in match[1] and len(match[1]) <= DIGITS_MAX:
            return int(match[1])
        raw = float(match[1]) * _SIZES[match[2]]
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise ValueError(f"{raw!r} is not {wanted}")
    if not abs(raw) <= NUMBER_MAX:  # false for NaN, too
        raise ValueError(f"it is not {wanted} below 2^63")
    if whole and raw != int(raw):
        raise ValueError(f"{raw:.15g} is not a whole number")
    return raw
