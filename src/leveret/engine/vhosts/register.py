"""The register: entries by kind and key that the node keeps over restarts.

Users, permissions, policies, parameters and limits are entries: each is a text (JSON) under a kind
and a key. The owner of a kind reads its entries after the start, keeps them in its own form, and
writes every change through here. The register does not know their meaning. A change is a definition
in the log, and a checkpoint has all entries.

A key of several parts is a JSON array of them, so that no character is special.
"""

from collections.abc import Callable

from leveret.engine.turns.events import note_entry
from leveret.engine.turns.turn import Turn
from leveret.engine.vhosts.definition_records import encode_entry, encode_entry_deletion


class Register:
    """Entries by kind and key."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._kinds: dict[str, dict[str, str]] = {}

    def kinds(self) -> list[str]:
        return list(self._kinds)

    def entries(self, kind: str) -> dict[str, str]:
        """Return all entries of a kind by key, in order of first `put`. Do not keep the result."""
        return self._kinds.get(kind, {})

    def load_each(self, kind: str, load: Callable[[str, str], None]) -> None:
        """Call `load` with key and value of each entry after a start.

        A fault in one entry is noted. The entry stays, and the others are loaded.
        """
        for key, value in list(self.entries(kind).items()):
            try:
                load(key, value)
            except Exception as fault:
                self._turn.note_fault(f"loading the {kind} {key}", fault)

    def get(self, kind: str, key: str) -> str | None:
        return self.entries(kind).get(key)

    def put(self, kind: str, key: str, value: str) -> None:
        """Add or replace the entry of this kind and key."""
        entries = self._kinds.setdefault(kind, {})
        old = entries.get(key)
        if old == value:
            return
        entries[key] = value
        note_entry(self._turn, kind, key, old, value)
        self._log(encode_entry(kind, key, value))

    def drop(self, kind: str, key: str) -> bool:
        """Remove an entry. Return False if there is none."""
        entries = self._kinds.get(kind)
        if entries is None or key not in entries:
            return False
        note_entry(self._turn, kind, key, entries.pop(key), None)
        self._log(encode_entry_deletion(kind, key))
        return True

    def _log(self, definition: bytes) -> None:
        journal = self._turn.journal
        if journal is not None:
            journal.write_definition(definition)
