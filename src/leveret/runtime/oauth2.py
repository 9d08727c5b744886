"""Accept tokens as logins: load the keys that the settings name, and keep them fresh.

PyJWT and cryptography take a tenth of a second to import, so the node imports this module only if
tokens are configured.

Keys come from a secret, from files, and from a URL. They are loaded at the start, then every
`REFRESH_S`, and when a token names an unknown key, but at most once in `PAUSE_S`. Loading runs in a
thread. If a source fails, its previous keys stay valid.
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
_NOT_LOADED: Final = "the keys of OAuth2 tokens could not be loaded, the old ones are used: %s"


class TokenLogins:
    """The authenticator for tokens, and the refresher of its keys."""

    def __init__(
        self, settings: Settings, directory: UserDirectory, now_ms: Callable[[], int]
    ) -> None:
        """Raises ConfigError if settings or files cannot be used."""
        self._settings = settings
        self._local = local_keys(settings)
        self._fetched: list[Key] = []
        self._wanted = asyncio.Event()
        self.fault = ""  # why keys could not be loaded; empty if all were
        self.verifier = TokenVerifier(token_rules(settings), self._local)
        self.verifier.on_unknown_key = self._wanted.set
        self.authenticator = TokenAuthenticator(
            self.verifier, claim_mapping(settings), directory, now_ms
        )

    async def start(self) -> None:
        """Fetch keys before the node listens. If that fails, the node starts without them."""
        if self._settings.oauth2_jwks_url:
            await self.refresh()

    async def run(self) -> None:
        """Refresh the keys until cancelled."""
        is_complete = True
        while True:
            with contextlib.suppress(TimeoutError):
                wait_s = REFRESH_S if is_complete else PAUSE_S
                await asyncio.wait_for(self._wanted.wait(), wait_s)
            is_complete = await self.refresh()
            await asyncio.sleep(PAUSE_S)
            self._wanted.clear()

    def reload(self) -> None:
        """Ask `run` to load all keys again."""
        self._wanted.set()

    async def refresh(self) -> bool:
        """Load all keys again. Return False if some could not be loaded."""
        is_complete = await asyncio.to_thread(self._load)
        self.verifier.keys = [*self._local, *self._fetched]
        return is_complete

    def _load(self) -> bool:
        faults = []
        try:
            self._local = local_keys(self._settings)
        except ConfigError as fault:
            faults.append(str(fault))
        try:
            if self._settings.oauth2_jwks_url:
                self._fetched = fetch_key_set(self._settings.oauth2_jwks_url)
        except ConfigError as fault:
            faults.append(str(fault))
        text = _NOT_LOADED % "; ".join(faults) if faults else ""
        if text and text != self.fault:  # it is tried again every few seconds
            log.error("%s", text)
        elif self.fault and not text:
            log.warning("the keys of OAuth2 tokens are loaded again")
        self.fault = text
        return not faults


def local_keys(settings: Settings) -> list[Key]:
    """Return the keys of the settings that need no network. Raises ConfigError."""
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


def claim_mapping(settings: Settings) -> ClaimMapping:
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
    """Parse `ALIAS=SCOPE SCOPE;ALIAS=SCOPE`. Raises ConfigError."""
    aliases: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        alias, sign, scopes = part.partition("=")
        if not sign or not alias.strip() or not scopes.split():
            raise ConfigError(f"oauth2_scope_aliases: '{part}' is not ALIAS=SCOPE…")
        aliases[alias.strip()] = tuple(scopes.split())
    return aliases
