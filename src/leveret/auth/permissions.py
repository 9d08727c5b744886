"""Permissions: which users may do what, by patterns over names, kept in the register.

    permission        [vhost, user]            {"configure": "…", "write": "…", "read": "…"}
    topic_permission  [vhost, user, exchange]  {"write": "…", "read": "…"}

A pattern matches anywhere in a name unless it is anchored; an empty one matches nothing but an
empty name. A user without an entry may not enter the vhost. A topic exchange without an entry
allows every key; in its patterns `{vhost}`, `{username}` and `{client_id}` stand for those.

Decisions are kept for each user until anything of that user's changes, because the same few names
are asked for again and again.
"""

import json
from collections.abc import Callable, Iterable
from typing import Final

from leveret.auth.user import CONFIGURE, READ, WRITE
from leveret.engine.vhosts.register import Register
from leveret.patterns import Pattern, escape

PERMISSION: Final = "permission"
TOPIC_PERMISSION: Final = "topic_permission"
DECISIONS_MAX: Final = 4096  # kept for one user; then they are found anew

_NOTHING: Final = "^$"

Patterns = dict[str, str]  # by kind of permission, as they were given


class PermissionEntry:
    """What one user may do in one vhost, or with one topic exchange."""

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
    """The grants of all users."""

    def __init__(self, register: Register, on_change: Callable[[str], None]) -> None:
        self._register = register
        self._on_change = on_change
        self._grants: dict[str, dict[str, PermissionEntry]] = {}  # by user and vhost
        self._topics: dict[
            str, dict[tuple[str, str], PermissionEntry]
        ] = {}  # by user, vhost and exchange
        self._decisions: dict[str, dict[tuple[str, str, str], bool]] = {}  # by user

    def load(self) -> None:
        """Read what the register has; once, before anybody asks."""
        for key, text in self._register.entries(PERMISSION).items():
            vhost, user = json.loads(key)
            self._grants.setdefault(user, {})[vhost] = PermissionEntry(json.loads(text))
        for key, text in self._register.entries(TOPIC_PERMISSION).items():
            vhost, user, exchange = json.loads(key)
            topics = self._topics.setdefault(user, {})
            topics[vhost, exchange] = PermissionEntry(json.loads(text))

    # Asking

    def may_open(self, user: str, vhost: str) -> bool:
        return vhost in self._grants.get(user, {})

    def may(self, user: str, permission: str, vhost: str, name: str) -> bool:
        decisions = self._decisions.setdefault(user, {})
        key = (permission, vhost, name)
        decision = decisions.get(key)
        if decision is None:
            grant = self._grants.get(user, {}).get(vhost)
            decision = grant is not None and grant.allows(permission, name)
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
        grant = self._topics.get(user, {}).get((vhost, exchange))
        if grant is None:
            return True
        if "{" not in grant.patterns[permission]:
            return grant.allows(permission, routing_key)
        text = _expanded(grant.patterns[permission], vhost, user, client_id)
        return _compile(text).matches(routing_key)

    # Listing

    def get(self, vhost: str, user: str) -> Patterns | None:
        grant = self._grants.get(user, {}).get(vhost)
        return grant.patterns if grant is not None else None

    def export(self) -> list[dict[str, str]]:
        """Every permission, as RabbitMQ's definitions have them."""
        return [
            {"user": user, "vhost": vhost, **grant.patterns}
            for user, grants in sorted(self._grants.items())
            for vhost, grant in sorted(grants.items())
        ]

    def export_topics(self) -> list[dict[str, str]]:
        """Every topic permission, as RabbitMQ's definitions have them."""
        return [
            {"user": user, "vhost": vhost, "exchange": exchange, **grant.patterns}
            for user, grants in sorted(self._topics.items())
            for (vhost, exchange), grant in sorted(grants.items())
        ]

    # Changing

    def put(self, vhost: str, user: str, configure: str, write: str, read: str) -> bool:
        """Grant; True if new. Raises PreconditionFailed for what is no pattern."""
        patterns = {CONFIGURE: configure, WRITE: write, READ: read}
        require_patterns(patterns.values())
        grants = self._grants.setdefault(user, {})
        is_new = vhost not in grants
        grants[vhost] = PermissionEntry(patterns)
        self._register.put(PERMISSION, json.dumps([vhost, user]), json.dumps(patterns))
        self._changed(user)
        return is_new

    def drop(self, vhost: str, user: str) -> bool:
        """Take back what was granted in a vhost; False where nothing was."""
        if self._grants.get(user, {}).pop(vhost, None) is None:
            return False
        self._register.drop(PERMISSION, json.dumps([vhost, user]))
        self._changed(user)
        return True

    def put_topic(self, vhost: str, user: str, exchange: str, write: str, read: str) -> bool:
        """Restrict the keys of a topic exchange; True if new. Raises as `put` does."""
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
        """Lift the restriction of one topic exchange, or of all; False where there was none."""
        topics = self._topics.get(user, {})
        found = [key for key in topics if key[0] == vhost and exchange in (None, key[1])]
        for key in found:
            del topics[key]
            self._register.drop(TOPIC_PERMISSION, json.dumps([vhost, user, key[1]]))
        if found:
            self._changed(user)
        return bool(found)

    def drop_user(self, user: str) -> None:
        for vhost in list(self._grants.get(user, {})):
            self.drop(vhost, user)
        for vhost, exchange in list(self._topics.get(user, {})):
            self.drop_topic(vhost, user, exchange)
        self._grants.pop(user, None)
        self._topics.pop(user, None)
        self._decisions.pop(user, None)

    def drop_vhost(self, vhost: str) -> None:
        """A vhost is gone, and with it everything that was granted there."""
        for user in list(self._grants):
            self.drop(vhost, user)
        for user in list(self._topics):
            self.drop_topic(vhost, user)

    def _changed(self, user: str) -> None:
        self._decisions.pop(user, None)
        self._on_change(user)


def _compile(text: str) -> Pattern:
    return Pattern(text or _NOTHING)


def require_patterns(patterns: Iterable[str]) -> None:
    """Raise PreconditionFailed where one of these is no pattern."""
    for text in patterns:
        Pattern(text)


def _expanded(pattern: str, vhost: str, user: str, client_id: str) -> str:
    """RabbitMQ: a variable that has no value stays as it is written."""
    pattern = pattern.replace("{vhost}", escape(vhost)).replace("{username}", escape(user))
    return pattern.replace("{client_id}", escape(client_id)) if client_id else pattern
