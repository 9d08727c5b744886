"""The register: what a node keeps by name besides exchanges, queues and messages.

Users, permissions, policies, parameters and limits are entries: each is a text (JSON) under a kind
and a key. Whoever owns a kind reads its entries after the start, keeps them in a form of its own,
and writes every change through here; the register knows nothing of their meaning. A change is a
definition in the log like any other, and a checkpoint has all entries.

A key of several parts is a JSON array of them, so that no character is special.
"""

from leveret.engine.turns.events import entry_changed
from leveret.engine.turns.session import Turn
from leveret.engine.vhosts.definition_records import entry_gone, entry_made


class Register:
    """Entries by kind and key."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._kinds: dict[str, dict[str, str]] = {}

    def kinds(self) -> list[str]:
        return list(self._kinds)

    def entries(self, kind: str) -> dict[str, str]:
        """All entries of a kind, by key, in the order in which they were first put. Not to keep."""
        return self._kinds.get(kind, {})

    def get(self, kind: str, key: str) -> str | None:
        return self.entries(kind).get(key)

    def put(self, kind: str, key: str, value: str) -> None:
        """Keep an entry, in the place of the one of this kind and key if there is one."""
        entries = self._kinds.setdefault(kind, {})
        old = entries.get(key)
        if old == value:
            return
        entries[key] = value
        entry_changed(self._turn, kind, key, old, value)
        self._log(entry_made(kind, key, value))

    def drop(self, kind: str, key: str) -> bool:
        """Forget an entry; False where there is none."""
        entries = self._kinds.get(kind)
        if entries is None or key not in entries:
            return False
        entry_changed(self._turn, kind, key, entries.pop(key), None)
        self._log(entry_gone(kind, key))
        return True

    def _log(self, definition: bytes) -> None:
        journal = self._turn.journal
        if journal is not None:
            journal.write_definition(definition)
