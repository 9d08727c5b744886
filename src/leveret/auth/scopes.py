"""The permissions in the scopes of a token, with RabbitMQ's syntax.

    configure|read|write:VHOST/NAME[/ROUTING_KEY]    each part is a pattern; `*` matches any text
    tag:NAME                                         a tag of the user

Parts are percent-decoded: `%2F` is the vhost `/` and `%2A` a literal star. `{vhost}` is replaced by
the vhost of the request and `{claim}` by a claim of the token; the inserted text is literal, never
a pattern. A scope without a routing key does not allow publishing to a topic exchange.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_plus

SCOPES_MAX: Final = 2048
VHOSTS_KEPT: Final = 64  # vhosts for which the parsed scopes of a user are cached

_PERMISSIONS: Final = frozenset(("configure", "write", "read"))
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TAG: Final = "tag:"


class WildcardPattern:
    """A text in which each star matches any characters."""

    def __init__(self, text: str) -> None:
        self._parts = [unquote_plus(part) for part in text.split("*")]
        self.matches_all = len(self._parts) > 1 and not any(self._parts)

    def matches(self, text: str) -> bool:
        """Return True if the whole text matches. The time is linear in the length of the text."""
        first, *middle = self._parts
        if not middle:
            return text == first
        last = middle.pop()
        if len(text) < len(first) + len(last) or not text.startswith(first):
            return False
        end = len(text) - len(last)
        at = len(first)
        for part in middle:
            found = text.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return text.endswith(last)


@dataclass(frozen=True)
class ScopePermission:
    """One scope: a permission, and the patterns of the names that it covers."""

    permission: str
    vhost: WildcardPattern
    name: WildcardPattern
    routing_key: WildcardPattern | None


class Scopes:
    """All scopes of one token."""

    def __init__(self, scopes: Iterable[str], claims: Mapping[str, object]) -> None:
        taken = list(dict.fromkeys(scopes))[:SCOPES_MAX]
        self.tags = tuple(s.removeprefix(_TAG) for s in taken if s.startswith(_TAG))
        self.texts = [_filled_in(scope, claims) for scope in taken]
        self._permissions: dict[str, list[ScopePermission]] = {}  # by vhost, because of `{vhost}`

    def may_open(self, vhost: str) -> bool:
        """Return True if any scope covers the vhost."""
        return bool(self._of(vhost))

    def may(self, permission: str, vhost: str, name: str) -> bool:
        return any(
            scope.permission == permission and scope.name.matches(name) for scope in self._of(vhost)
        )

    def may_topic(self, permission: str, vhost: str, name: str, routing_key: str) -> bool:
        return any(
            scope.permission == permission
            and scope.routing_key is not None
            and scope.name.matches(name)
            and scope.routing_key.matches(routing_key)
            for scope in self._of(vhost)
        )

    def may_every_topic(self, permission: str, vhost: str, name: str) -> bool:
        return any(
            scope.permission == permission
            and scope.routing_key is not None
            and scope.routing_key.matches_all
            and scope.name.matches(name)
            for scope in self._of(vhost)
        )

    def _of(self, vhost: str) -> list[ScopePermission]:
        """Return the scopes that cover a vhost."""
        found = self._permissions.get(vhost)
        if found is None:
            if len(self._permissions) >= VHOSTS_KEPT:
                self._permissions.clear()
            permissions = (
                _parse_scope(text.replace("{vhost}", _literal(vhost))) for text in self.texts
            )
            found = [
                scope for scope in permissions if scope is not None and scope.vhost.matches(vhost)
            ]
            self._permissions[vhost] = found
        return found


def without_prefix(scopes: Iterable[str], prefix: str) -> list[str]:
    """Return the scopes that have this prefix, without the prefix."""
    return [scope.removeprefix(prefix) for scope in scopes if scope.startswith(prefix)]


def _parse_scope(scope: str) -> ScopePermission | None:
    """Parse a scope; None if it is a tag or has another form."""
    permission, _, rest = scope.partition(":")
    parts = rest.split("/")
    if permission not in _PERMISSIONS or len(parts) not in (2, 3) or _BAD_ESCAPE.search(rest):
        return None
    routing_key = WildcardPattern(parts[2]) if len(parts) == 3 else None
    return ScopePermission(
        permission, WildcardPattern(parts[0]), WildcardPattern(parts[1]), routing_key
    )


def _filled_in(scope: str, claims: Mapping[str, object]) -> str:
    """Insert the values of claims. `{vhost}` and names of missing claims stay."""

    def value(match: re.Match[str]) -> str:
        claim = claims.get(match[1])
        if match[1] == "vhost" or not isinstance(claim, str):
            return match[0]
        return _literal(claim)

    return _VARIABLE.sub(value, scope)


def _literal(text: str) -> str:
    return quote(text, safe="", errors="surrogateescape")
