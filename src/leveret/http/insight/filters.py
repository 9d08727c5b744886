"""Filters as requests send them, in JSON. docs/insight.md describes each condition.

`FilterBody` is the part of a body that selects messages. `filter_of` converts it to the engine's
`Filter`, once for each request. A condition that makes no sense raises PreconditionFailedError,
which is answered by 400 with its text.
"""

from typing import Final

import msgspec

from leveret.engine.insight.filters import CONDITIONS_MAX, Filter
from leveret.errors import PreconditionFailedError
from leveret.http.insight.json_paths import JsonCondition

AGE_MS_MAX: Final = 1 << 53


class FilterBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Conditions on messages. All given conditions must hold."""

    states: list[str] | None = None  # ready, scheduled, unacked, stuck; None: all
    properties: dict[str, object] = {}  # values by name: message_id, correlation_id, type …
    headers: dict[str, object] = {}  # values by name; dots lead into tables and lists
    json: dict[str, object] = {}  # values by path: $.order.id, $.items[0].sku
    text: str | None = None  # anywhere in the body
    routing_key: str | None = None
    older_than_ms: int | None = None
    newer_than_ms: int | None = None


def filter_of(wanted: FilterBody) -> Filter:
    """Return the filter that a body describes."""
    made = Filter()
    if wanted.states is not None:
        made.require_states(wanted.states)
    for name, value in wanted.properties.items():
        made.require_property(name, value)
    for name, value in wanted.headers.items():
        made.require_header(name, value)
    if wanted.text is not None:
        made.require_text(wanted.text)
    if wanted.routing_key is not None:
        made.require_routing_key(wanted.routing_key)
    if wanted.older_than_ms is not None:
        made.require_older(_age("older_than_ms", wanted.older_than_ms))
    if wanted.newer_than_ms is not None:
        made.require_newer(_age("newer_than_ms", wanted.newer_than_ms))
    if wanted.json:
        conditions = _JsonConditions(wanted.json)
        made.require_json(conditions.is_match, conditions.needle)
    return made


class _JsonConditions:
    """All conditions on the JSON body of a message."""

    def __init__(self, wanted: dict[str, object]) -> None:
        if len(wanted) > CONDITIONS_MAX:
            raise PreconditionFailedError(f"a filter has at most {CONDITIONS_MAX} conditions")
        self._conditions = [JsonCondition(path, value) for path, value in wanted.items()]
        self.needle = max((condition.needle for condition in self._conditions), key=len)

    def is_match(self, body: bytes) -> bool:
        return all(condition.is_match(body) for condition in self._conditions)


def _age(name: str, age_ms: int) -> int:
    if not 0 <= age_ms <= AGE_MS_MAX:
        raise PreconditionFailedError(
            f"'{name}' is a number of milliseconds from 0 to {AGE_MS_MAX}"
        )
    return age_ms
