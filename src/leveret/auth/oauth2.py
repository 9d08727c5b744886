"""Logins with OAuth2 tokens. The token is sent as the password; the user name beside it is ignored.

`TokenAuthenticator` checks passwords that have the form of a token and leaves every other login to
the user directory, so that both kinds of logins work side by side. The token alone says who the
user is and what the user may do: the user need not exist in the directory. A user of the directory
with the same name is another user: the identity of a token's user begins with `oauth2:`. The login
ends when the token expires, unless the client renews it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from leveret.auth.authenticator import Authenticator
from leveret.auth.scopes import Scopes, without_prefix
from leveret.auth.tokens import Claims, TokenVerifier, looks_like_token
from leveret.auth.user import (
    NAME_LENGTH_MAX,
    TOKEN_USER_PREFIX,
    Credentials,
    LoginCallback,
    Refusal,
    User,
)
from leveret.auth.user_directory import HTTP, UserDirectory
from leveret.errors import TokenRefusedError

NAMELESS: Final = "unknown"  # RabbitMQ: the user of a token that names no user


@dataclass(frozen=True)
class ClaimMapping:
    """Which claims hold the user name and the scopes."""

    resource_server_id: str
    scope_prefix: str
    username_claims: tuple[str, ...] = ("sub", "client_id")
    scope_claims: tuple[str, ...] = ()  # besides `scope`; dots lead into nested objects
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def user_name(self, claims: Claims) -> str:
        for claim in self.username_claims:
            found = claims.get(claim)
            if isinstance(found, str) and found:
                return found
        return NAMELESS

    def scopes(self, claims: Claims) -> Scopes:
        """Return the scopes of a token that concern this broker."""
        found = list(self._listed(claims.get("scope")))
        for path in self.scope_claims:
            found += self._listed(_at(claims, path))
        found += [scope for alias in found for scope in self.aliases.get(alias, ())]
        return Scopes(without_prefix(found, self.scope_prefix), claims)

    def _listed(self, value: object) -> Iterable[str]:
        """Read scopes from a text with spaces, a list, or an object with a list per server."""
        if isinstance(value, dict):
            inner = value.get(self.resource_server_id)
            inner = inner if isinstance(inner, str | list) else None
            return [f"{self.resource_server_id}.{scope}" for scope in self._listed(inner)]
        if isinstance(value, str):
            return value.split()
        return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _at(claims: Claims, path: str) -> object:
    value: object = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


class TokenUser(User):
    """The user of a token, until the token expires."""

    def __init__(
        self,
        name: str,
        scopes: Scopes,
        expires_ms: int,
        directory: UserDirectory | None = None,
    ) -> None:
        super().__init__(name, scopes.tags)
        self.scopes = scopes
        self.expires_ms = expires_ms
        self._directory = directory

    @property
    def identity(self) -> str:
        return TOKEN_USER_PREFIX + self.name

    def may_claim(self, name: str) -> bool:
        """Return True as `User` does, but not for the name of a user of the directory."""
        if name == self.name and self._directory is not None and self._directory.users.get(name):
            return "impersonator" in self.tags
        return super().may_claim(name)

    def may_open(self, vhost: str) -> bool:
        return self.scopes.may_open(vhost)

    def may(self, permission: str, vhost: str, what: str, name: str) -> bool:
        return self.scopes.may(permission, vhost, name)

    def may_topic(self, permission: str, vhost: str, exchange: str, routing_key: str) -> bool:
        return self.scopes.may_topic(permission, vhost, exchange, routing_key)

    def may_every_topic(self, permission: str, vhost: str, exchange: str) -> bool:
        return self.scopes.may_every_topic(permission, vhost, exchange)


class TokenAuthenticator(Authenticator):
    """Checks tokens, and leaves all other logins to the directory."""

    def __init__(
        self,
        tokens: TokenVerifier,
        form: ClaimMapping,
        directory: UserDirectory,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(directory.audit, directory.quotas)
        self._tokens = tokens
        self._form = form
        self._directory = directory
        self._now_ms = now_ms

    def login(self, credentials: Credentials, then: LoginCallback) -> None:
        if credentials.password is None or not looks_like_token(credentials.password):
            self._directory.login(credentials, then)
            return
        try:
            user = self._user(credentials.password)
        except TokenRefusedError as fault:
            self._note_refusal(credentials, credentials.name, str(fault))
            then(Refusal(str(fault)))
        else:
            self._note_refusal(credentials, user.identity)
            then(user)

    def renew(self, user: User, secret: str) -> User | None:
        if not isinstance(user, TokenUser):
            return user
        try:
            renewed = self._user(secret)
        except TokenRefusedError as fault:
            self.audit.note(user.identity, "", "renew", "token", str(fault))
            return None
        return renewed if renewed.name == user.name else None

    def _user(self, token: str) -> TokenUser:
        claims = self._tokens.verify(token, self._now_ms())
        form = self._form
        expires_ms = self._tokens.expires_ms(claims)
        name = form.user_name(claims)
        if len(name) > NAME_LENGTH_MAX:
            raise TokenRefusedError("the token names a user with too long a name")
        return TokenUser(name, form.scopes(claims), expires_ms, self._directory)

    def _note_refusal(self, credentials: Credentials, name: str, fault: str = "") -> None:
        host, protocol = credentials.host, credentials.protocol
        self._directory.login_counts.count(host, name, protocol, succeeded=not fault)
        if fault or protocol != HTTP:  # over HTTP each request logs in: too many for the audit log
            self.audit.note(name, host, "login", protocol, fault or "ok")
