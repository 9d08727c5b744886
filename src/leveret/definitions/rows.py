"""Read the rows of a document of definitions."""

from collections.abc import Iterator, Sequence
from typing import Final

from leveret.definitions.definitions import Definitions
from leveret.errors import PreconditionFailedError

Row = dict[str, object]

# The fields that identify a row. A binding has none: its whole row does.
_KEYS: Final = {
    "users": ("name",),
    "vhosts": ("name",),
    "permissions": ("vhost", "user"),
    "exchanges": ("vhost", "name"),
    "topic_permissions": ("vhost", "user", "exchange"),
    "global_parameters": ("name",),
    "policies": ("vhost", "name"),
    "parameters": ("vhost", "component", "name"),
    "queues": ("vhost", "name"),
}


class Document:
    """A document of definitions with a checked form: lists of objects under known names."""

    def __init__(self, document: object, categories: Sequence[str], vhost: str | None) -> None:
        if not isinstance(document, dict):
            raise PreconditionFailedError("the definitions are not an object")
        self._vhost = vhost
        self._rows = {name: _rows(name, document.get(name)) for name in categories}
        self._vhosts = {text(row, "name") for row in self.rows("vhosts")}

    def rows(self, category: str) -> list[Row]:
        return self._rows.get(category, [])

    def require_distinct(self) -> Iterator[None]:
        """Check that no two rows give different values to one object. Raises as `text` does."""
        for category, fields in _KEYS.items():
            known: dict[tuple[object, ...], Row] = {}
            for row in map(self._without_vhost, self.rows(category)):
                key = tuple(row[name] for name in fields if name in row)
                if known.setdefault(key, row) != row:
                    shown = ", ".join(map(str, key))
                    raise PreconditionFailedError(
                        f"{category}: {shown} is in the document twice, with different values"
                    )
                yield

    def _without_vhost(self, row: Row) -> Row:
        """Leave out the vhost of a row in a document of one vhost, which ignores it."""
        if self._vhost is None:
            return row
        return {name: value for name, value in row.items() if name != "vhost"}

    def vhost_of(self, row: Row, definitions: Definitions) -> str:
        """Return the vhost of a row. Raises PreconditionFailedError if no import makes it exist."""
        vhost = self._vhost if self._vhost is not None else maybe_text(row, "vhost")
        if vhost is None:
            raise PreconditionFailedError(
                "Virtual host does not exist and is not specified in definitions file."
            )
        if vhost not in self._vhosts and vhost not in definitions.broker.vhosts:
            raise PreconditionFailedError(
                f'Please create virtual host "{vhost}" prior to importing definitions.'
            )
        return vhost


def _rows(name: str, value: object) -> list[Row]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise PreconditionFailedError(f"{name} must be a list of objects")
    return value


def text(row: Row, name: str) -> str:
    """Return a text that a row must have."""
    value = maybe_text(row, name)
    if value is None:
        raise PreconditionFailedError(f"{name} is missing in {row}")
    return value


def maybe_text(row: Row, name: str) -> str | None:
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise PreconditionFailedError(f"{name} must be a text: {value}")
    return value


def flag(row: Row, name: str, default: bool) -> bool:
    value = row.get(name, default)
    if not isinstance(value, bool):
        raise PreconditionFailedError(f"{name} must be true or false: {value}")
    return value
