"""What the scopes of a token allow, as RabbitMQ reads them.

    configure|read|write:VHOST/NAME[/ROUTING_KEY]    each part a pattern, `*` stands for anything
    tag:NAME                                         a tag of the user

Parts are percent-decoded, so that `%2F` is the vhost `/` and `%2A` a star. `{vhost}` stands for the
vhost in question and `{claim}` for a claim of the token; what they put in is taken literally, never
as a pattern. A scope without a routing key allows no publish to a topic exchange.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_plus

SCOPES_MAX: Final = 2048
VHOSTS_KEPT: Final = 64  # for which the patterns of a user are kept

_PERMISSIONS: Final = frozenset(("configure", "write", "read"))
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TAG: Final = "tag:"


class WildcardPattern:
    """A text with stars."""

    def __init__(self, text: str) -> None:
        self._parts = [unquote_plus(part) for part in text.split("*")]

    def matches(self, text: str) -> bool:
        """Whether the whole text fits. Takes time in proportion to the text, whatever the stars."""
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
    """One scope: a permission on what its patterns match."""

    permission: str
    vhost: WildcardPattern
    name: WildcardPattern
    routing_key: WildcardPattern | None


class Scopes:
    """All scopes of one token."""

    def __init__(self, scopes: Iterable[str], claims: Mapping[str, object]) -> None:
        taken = list(dict.fromkeys(scopes))[:SCOPES_MAX]
        self.tags = tuple(s.removeprefix(_TAG) for s in taken if s.startswith(_TAG))
        self._texts = [_filled_in(scope, claims) for scope in taken]
        self._grants: dict[str, list[ScopePermission]] = {}  # by vhost, because of `{vhost}`

    def may_open(self, vhost: str) -> bool:
        """Whether any scope is about the vhost."""
        return bool(self._of(vhost))

    def may(self, permission: str, vhost: str, name: str) -> bool:
        return any(
            grant.permission == permission and grant.name.matches(name) for grant in self._of(vhost)
        )

    def may_topic(self, permission: str, vhost: str, name: str, routing_key: str) -> bool:
        return any(
            grant.permission == permission
            and grant.routing_key is not None
            and grant.name.matches(name)
            and grant.routing_key.matches(routing_key)
            for grant in self._of(vhost)
        )

    def _of(self, vhost: str) -> list[ScopePermission]:
        """The grants in a vhost."""
        found = self._grants.get(vhost)
        if found is None:
            if len(self._grants) >= VHOSTS_KEPT:
                self._grants.clear()
            grants = (_grant(text.replace("{vhost}", _literal(vhost))) for text in self._texts)
            found = [grant for grant in grants if grant is not None and grant.vhost.matches(vhost)]
            self._grants[vhost] = found
        return found


def without_prefix(scopes: Iterable[str], prefix: str) -> list[str]:
    """The scopes that are about this broker, without what says so."""
    return [scope.removeprefix(prefix) for scope in scopes if scope.startswith(prefix)]


def _grant(scope: str) -> ScopePermission | None:
    """None for what is no permission: a tag, a scope of another form."""
    permission, _, rest = scope.partition(":")
    parts = rest.split("/")
    if permission not in _PERMISSIONS or len(parts) not in (2, 3) or _BAD_ESCAPE.search(rest):
        return None
    routing_key = WildcardPattern(parts[2]) if len(parts) == 3 else None
    return ScopePermission(
        permission, WildcardPattern(parts[0]), WildcardPattern(parts[1]), routing_key
    )


def _filled_in(scope: str, claims: Mapping[str, object]) -> str:
    """The scope with the claims it names; `{vhost}` and what is no claim stay."""

    def value(match: re.Match[str]) -> str:
        claim = claims.get(match[1])
        if match[1] == "vhost" or not isinstance(claim, str):
            return match[0]
        return _literal(claim)

    return _VARIABLE.sub(value, scope)


def _literal(text: str) -> str:
    return quote(text, safe="", errors="surrogateescape")
