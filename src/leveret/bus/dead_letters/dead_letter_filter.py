"""Select messages of a dead-letter queue: every given condition must hold.

The module is pure: a filter looks at one message and the time. Values are compared as JSON, and as
text if the types differ, because they come from a command line: `--header tenant=5` matches the
number 5 and the text "5".
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leveret.bus.dead_letters.dead_letter import DeadLetter


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Conditions; an empty filter matches every message."""

    headers: Mapping[str, Any] = field(default_factory=dict)  # name: value; None matches any value
    json_fields: Mapping[str, Any] = field(default_factory=dict)  # path in a JSON body: value
    ids: frozenset[str] = frozenset()  # message ids, one of which it must have
    error: str | None = None  # text in the final error
    status: int | None = None  # the final status code
    text: str | None = None  # text in the body
    older_than_s: float | None = None  # since its last death

    @property
    def is_empty(self) -> bool:
        """True if the filter has no condition."""
        return self == DeadLetterFilter()

    def matches(self, letter: DeadLetter, now_s: float) -> bool:
        """Return True if every condition holds."""
        return (
            (not self.ids or letter.message_id in self.ids)
            and (self.status is None or letter.status == self.status)
            and (self.error is None or self.error in (letter.error or ""))
            and (self.text is None or self.text.encode() in letter.body)
            and self._is_old_enough(letter, now_s)
            and all(_has(letter.headers, name, value) for name, value in self.headers.items())
            and (not self.json_fields or self._has_fields(letter.body))
        )

    def _is_old_enough(self, letter: DeadLetter, now_s: float) -> bool:
        if self.older_than_s is None:
            return True
        # A message without any time is never old enough, so that it is not dropped by its age.
        return letter.died_s is not None and now_s - letter.died_s >= self.older_than_s

    def _has_fields(self, body: bytes) -> bool:
        try:
            document = json.loads(body)
        except ValueError:
            return False
        return all(
            any(_same(found, value) for found in _at(document, path))
            for path, value in self.json_fields.items()
        )


def _has(headers: Mapping[str, Any], name: str, value: Any) -> bool:
    return name in headers and (value is None or _same(headers[name], value))


def _same(found: Any, wanted: Any) -> bool:
    return bool(found == wanted) or _text(found) == _text(wanted)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _at(document: Any, path: str) -> list[Any]:
    """Return a list of the value at a path such as `$.order.lines.0.sku`, or an empty list."""
    found = document
    for part in path.removeprefix("$").removeprefix(".").split("."):
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return []
    return [found]
