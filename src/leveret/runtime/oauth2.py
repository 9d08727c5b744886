"""Tokens as logins, from the settings: which keys verify them, and how the keys stay fresh.

PyJWT and cryptography cost a tenth of a second to import, so this module is imported where tokens
are configured and nowhere else.

Keys come from the secret, from files, and from a URL. They are loaded at the start; then every
`REFRESH_S`, and when a token names a key that is not known, but not more often than every
`PAUSE_S`. All of that happens in a thread. A source that fails keeps the keys it gave before.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from leveret.auth.keys import (
    KNOWN_ALGORITHMS,
    Key,
    fetch_key_set,
    pem_keys,
    read_key_set,
    secret_key,
)
from leveret.auth.oauth2 import ClaimMapping, TokenAuthenticator
from leveret.auth.tokens import TokenRules, TokenVerifier
from leveret.auth.user_directory import UserDirectory
from leveret.config.settings import Settings
from leveret.errors import ConfigError

log = logging.getLogger(__name__)

REFRESH_S: Final = 300.0
PAUSE_S: Final = 10.0


class TokenLogins:
    """The authenticator over tokens, and the care of its keys."""

    def __init__(
        self, settings: Settings, directory: UserDirectory, now_ms: Callable[[], int]
    ) -> None:
        """Raises ConfigError for settings and files that cannot be used."""
        self._settings = settings
        self._kept = kept_keys(settings)
        self._fetched: list[Key] = []
        self._wanted = asyncio.Event()
        self.tokens = TokenVerifier(token_rules(settings), self._kept)
        self.tokens.on_unknown_key = self._wanted.set
        self.authenticator = TokenAuthenticator(
            self.tokens, token_form(settings), directory, now_ms
        )

    async def start(self) -> None:
        """Fetch keys before anybody can ask; where that fails the node starts without them."""
        if self._settings.oauth2_jwks_url:
            await self.refresh()

    async def run(self) -> None:
        """Keep the keys fresh until this is cancelled."""
        is_complete = True
        while True:
            with contextlib.suppress(TimeoutError):
                wait_s = REFRESH_S if is_complete else PAUSE_S
                await asyncio.wait_for(self._wanted.wait(), wait_s)
            is_complete = await self.refresh()
            await asyncio.sleep(PAUSE_S)
            self._wanted.clear()

    def reload(self) -> None:
        """Load all keys again, soon."""
        self._wanted.set()

    async def refresh(self) -> bool:
        """Load all keys again; False where some could not be loaded."""
        is_complete = await asyncio.to_thread(self._load)
        self.tokens.keys = [*self._kept, *self._fetched]
        return is_complete

    def _load(self) -> bool:
        is_complete = True
        try:
            self._kept = kept_keys(self._settings)
        except ConfigError as fault:
            is_complete = False
            log.error("the keys of tokens stay as they were: %s", fault)
        try:
            if self._settings.oauth2_jwks_url:
                self._fetched = fetch_key_set(self._settings.oauth2_jwks_url)
        except ConfigError as fault:
            is_complete = False
            log.error("the keys of tokens stay as they were: %s", fault)
        return is_complete


def kept_keys(settings: Settings) -> list[Key]:
    """The keys that are on this machine. Raises ConfigError."""
    keys = pem_keys(settings.oauth2_keys)
    if settings.oauth2_secret:
        keys.append(secret_key(str(settings.oauth2_secret)))
    if settings.oauth2_jwks_file is not None:
        keys += read_key_set(settings.oauth2_jwks_file)
    return keys


def token_rules(settings: Settings) -> TokenRules:
    algorithms = frozenset(settings.oauth2_algorithms.split(","))
    unknown = sorted(algorithms - KNOWN_ALGORITHMS)
    if unknown:
        raise ConfigError(f"oauth2_algorithms: there is no {unknown[0]}")
    return TokenRules(
        algorithms,
        settings.oauth2_audience or settings.oauth2_resource_server_id,
        settings.oauth2_issuer,
        settings.oauth2_leeway_s * 1000,
    )


def token_form(settings: Settings) -> ClaimMapping:
    server_id = settings.oauth2_resource_server_id
    prefix = settings.oauth2_scope_prefix
    return ClaimMapping(
        server_id,
        prefix if prefix is not None else f"{server_id}.",
        _words(settings.oauth2_username_claims),
        _words(settings.oauth2_scope_claims),
        _aliases(settings.oauth2_scope_aliases),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _aliases(text: str) -> dict[str, tuple[str, ...]]:
    """`ALIAS=SCOPE SCOPE;ALIAS=SCOPE`. Raises ConfigError."""
    aliases: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        alias, sign, scopes = part.partition("=")
        if not sign or not alias.strip() or not scopes.split():
            raise ConfigError(f"oauth2_scope_aliases: '{part}' is not ALIAS=SCOPE…")
        aliases[alias.strip()] = tuple(scopes.split())
    return aliases
