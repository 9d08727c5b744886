"""Permissions of users: patterns for the names of queues and exchanges, kept in the register.

    permission        [vhost, user]            {"configure": "…", "write": "…", "read": "…"}
    topic_permission  [vhost, user, exchange]  {"write": "…", "read": "…"}

A pattern matches anywhere in a name unless it is anchored. An empty pattern matches only the empty
name. A user without an entry must not open the vhost. A topic exchange without an entry allows
every routing key. In topic patterns, `{vhost}`, `{username}` and `{client_id}` are replaced by
their values.

Decisions are cached per user until the user's permissions change, because clients use the same few
names again and again.
"""

import json
from collections.abc import Callable, Iterable
from typing import Final

from leveret.auth.user import CONFIGURE, READ, WRITE
from leveret.engine.vhosts.register import Register
from leveret.patterns import Pattern, escape

PERMISSION: Final = "permission"
TOPIC_PERMISSION: Final = "topic_permission"
DECISIONS_MAX: Final = 4096  # cached for one user; then the cache is emptied

_NOTHING: Final = "^$"
_EVERYTHING: Final = frozenset((".*", "^.*", ".*$", "^.*$"))

Patterns = dict[str, str]  # pattern by permission: configure, write, read


class PermissionEntry:
    """The patterns of one user for one vhost, or for one topic exchange."""

    __slots__ = ("_compiled", "patterns")

    def __init__(self, patterns: Patterns) -> None:
        self.patterns = patterns
        self._compiled: dict[str, Pattern] = {}

    def allows(self, permission: str, name: str) -> bool:
        pattern = self._compiled.get(permission)
        if pattern is None:
            pattern = self._compiled[permission] = _compile(self.patterns[permission])
        return pattern.matches(name)


class Permissions:
    """The permissions of all users."""

    def __init__(self, register: Register, on_change: Callable[[str], None]) -> None:
        self._register = register
        self._on_change = on_change
        self._entries: dict[str, dict[str, PermissionEntry]] = {}  # by user and vhost
        self._topics: dict[
            str, dict[tuple[str, str], PermissionEntry]
        ] = {}  # by user, vhost and exchange
        self._decisions: dict[str, dict[tuple[str, str, str], bool]] = {}  # by user

    def load(self) -> None:
        """Read the register; call this once, before the first check."""
        self._register.load_each(PERMISSION, self._load)
        self._register.load_each(TOPIC_PERMISSION, self._load_topic)

    def _load(self, key: str, text: str) -> None:
        vhost, user = json.loads(key)
        entry = _decode(text, (CONFIGURE, WRITE, READ))
        self._entries.setdefault(user, {})[vhost] = entry

    def _load_topic(self, key: str, text: str) -> None:
        """Add a topic permission. If it cannot be read, it allows nothing, because it restricts."""
        vhost, user, exchange = json.loads(key)
        topics = self._topics.setdefault(user, {})
        topics[vhost, exchange] = PermissionEntry({WRITE: "", READ: ""})
        topics[vhost, exchange] = _decode(text, (WRITE, READ))

    def may_open(self, user: str, vhost: str) -> bool:
        return vhost in self._entries.get(user, {})

    def may(self, user: str, permission: str, vhost: str, name: str) -> bool:
        decisions = self._decisions.setdefault(user, {})
        key = (permission, vhost, name)
        decision = decisions.get(key)
        if decision is None:
            entry = self._entries.get(user, {}).get(vhost)
            decision = entry is not None and entry.allows(permission, name)
            if len(decisions) >= DECISIONS_MAX:
                decisions.clear()
            decisions[key] = decision
        return decision

    def may_topic(
        self,
        user: str,
        permission: str,
        vhost: str,
        exchange: str,
        routing_key: str,
        client_id: str = "",
    ) -> bool:
        entry = self._topics.get(user, {}).get((vhost, exchange))
        if entry is None:
            return True
        if "{" not in entry.patterns[permission]:
            return entry.allows(permission, routing_key)
        text = _expanded(entry.patterns[permission], vhost, user, client_id)
        return _compile(text).matches(routing_key)

    def may_every_topic(self, user: str, permission: str, vhost: str, exchange: str) -> bool:
        """Return True if every routing key is allowed, as far as the pattern shows it."""
        entry = self._topics.get(user, {}).get((vhost, exchange))
        return entry is None or entry.patterns[permission] in _EVERYTHING

    def get(self, vhost: str, user: str) -> Patterns | None:
        entry = self._entries.get(user, {}).get(vhost)
        return entry.patterns if entry is not None else None

    def export(self) -> list[dict[str, str]]:
        """Return all permissions in the form of RabbitMQ's definitions."""
        return [
            {"user": user, "vhost": vhost, **entry.patterns}
            for user, entries in sorted(self._entries.items())
            for vhost, entry in sorted(entries.items())
        ]

    def export_topics(self) -> list[dict[str, str]]:
        """Return all topic permissions in the form of RabbitMQ's definitions."""
        return [
            {"user": user, "vhost": vhost, "exchange": exchange, **entry.patterns}
            for user, entries in sorted(self._topics.items())
            for (vhost, exchange), entry in sorted(entries.items())
        ]

    def put(self, vhost: str, user: str, configure: str, write: str, read: str) -> bool:
        """Set a permission; True if it is new. Raises PreconditionFailedError for a bad pattern."""
        patterns = {CONFIGURE: configure, WRITE: write, READ: read}
        require_patterns(patterns.values())
        entries = self._entries.setdefault(user, {})
        is_new = vhost not in entries
        entries[vhost] = PermissionEntry(patterns)
        self._register.put(PERMISSION, json.dumps([vhost, user]), json.dumps(patterns))
        self._changed(user)
        return is_new

    def drop(self, vhost: str, user: str) -> bool:
        """Delete the permission in a vhost. Return False if there was none."""
        if self._entries.get(user, {}).pop(vhost, None) is None:
            return False
        self._register.drop(PERMISSION, json.dumps([vhost, user]))
        self._changed(user)
        return True

    def put_topic(self, vhost: str, user: str, exchange: str, write: str, read: str) -> bool:
        """Restrict the keys of a topic exchange; True if it is new. Raises as `put` does."""
        patterns = {WRITE: write, READ: read}
        require_patterns(patterns.values())
        topics = self._topics.setdefault(user, {})
        is_new = (vhost, exchange) not in topics
        topics[vhost, exchange] = PermissionEntry(patterns)
        key = json.dumps([vhost, user, exchange])
        self._register.put(TOPIC_PERMISSION, key, json.dumps(patterns))
        self._changed(user)
        return is_new

    def drop_topic(self, vhost: str, user: str, exchange: str | None = None) -> bool:
        """Lift the restriction of one topic exchange or of all. Return False if there was none."""
        topics = self._topics.get(user, {})
        found = [key for key in topics if key[0] == vhost and exchange in (None, key[1])]
        for key in found:
            del topics[key]
            self._register.drop(TOPIC_PERMISSION, json.dumps([vhost, user, key[1]]))
        if found:
            self._changed(user)
        return bool(found)

    def drop_user(self, user: str) -> None:
        for vhost in list(self._entries.get(user, {})):
            self.drop(vhost, user)
        for vhost, exchange in list(self._topics.get(user, {})):
            self.drop_topic(vhost, user, exchange)
        self._entries.pop(user, None)
        self._topics.pop(user, None)
        self._decisions.pop(user, None)

    def drop_vhost(self, vhost: str) -> None:
        """Delete all permissions in a vhost."""
        for user in list(self._entries):
            self.drop(vhost, user)
        for user in list(self._topics):
            self.drop_topic(vhost, user)

    def _changed(self, user: str) -> None:
        self._decisions.pop(user, None)
        self._on_change(user)


def _decode(text: str, permissions: Iterable[str]) -> PermissionEntry:
    """Decode an entry of the register. Raise KeyError or ValueError if it is not valid."""
    patterns: Patterns = json.loads(text)
    require_patterns([patterns[permission] for permission in permissions])
    return PermissionEntry(patterns)


def _compile(text: str) -> Pattern:
    return Pattern(text or _NOTHING)


def require_patterns(patterns: Iterable[str]) -> None:
    """Raise PreconditionFailedError if one of these is not a valid pattern."""
    for text in patterns:
        Pattern(text)


def _expanded(pattern: str, vhost: str, user: str, client_id: str) -> str:
    """Replace the variables. RabbitMQ: a variable without a value stays as it is."""
    pattern = pattern.replace("{vhost}", escape(vhost)).replace("{username}", escape(user))
    return pattern.replace("{client_id}", escape(client_id)) if client_id else pattern
