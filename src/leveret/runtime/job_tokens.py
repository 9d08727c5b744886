"""Tokens of the jobs service: which namespaces a client may use.

A token is a JWT with `exp` and a claim `namespaces`, a list of names; `*` stands for all. It is
verified with the secret or the public key of the settings, and only with the algorithm of that key
type. If neither is set, a secret in the data directory is used. The node or `leveret jobs token`
makes that secret at the first need.
"""

import contextlib
import os
import secrets
from pathlib import Path
from typing import Any, Final

from leveret.clock import Clock
from leveret.config.settings import Settings
from leveret.errors import ConfigError, TokenRefusedError

SECRET_FILE: Final = "jobs-secret"
SECRET_CHARACTERS_MIN: Final = 32
ALL: Final = "*"
NAMESPACES: Final = "namespaces"
NAMESPACES_MAX: Final = 1_000  # in one token
_KNOWN_MAX: Final = 1_000  # verified tokens that are cached
_KNOWN_CHARACTERS_MAX: Final = 4_096  # a longer token is not cached


class JobTokens:
    """Verifies tokens of jobs, and signs them if the node has a secret."""

    def __init__(self, settings: Settings, folder: Path | None) -> None:
        from leveret.auth.keys import Key, pem_key, secret_key
        from leveret.auth.tokens import TokenRules, TokenVerifier

        self._secret = ""
        if settings.jobs_token_key is not None:
            key = pem_key("jobs_token_key", settings.jobs_token_key)
            allowed = key.algorithms & {"RS256", "ES256"}
            if not allowed:
                raise ConfigError("jobs_token_key: it is neither an RSA nor a P-256 key")
        else:
            self._secret = str(settings.jobs_token_secret) or secret_in(folder)
            if len(self._secret) < SECRET_CHARACTERS_MIN:
                few = SECRET_CHARACTERS_MIN
                raise ConfigError(f"jobs_token_secret: it is shorter than {few} characters")
            key, allowed = secret_key(self._secret), frozenset(("HS256",))
        pinned = Key("", frozenset(allowed), key.material)
        self._tokens = TokenVerifier(TokenRules(frozenset(allowed), audience=""), [pinned])
        self._known: dict[str, tuple[frozenset[str], int]] = {}  # namespaces, and when they expire

    def namespaces(self, token: str, now_ms: int) -> frozenset[str]:
        """Return the namespaces that a token allows. Raises TokenRefusedError."""
        known = self._known.get(token)
        if known is not None and now_ms < known[1]:
            return known[0]
        claims = self._tokens.verify(token, now_ms)
        names = _names(claims.get(NAMESPACES))
        if len(token) <= _KNOWN_CHARACTERS_MAX:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[token] = (names, self._tokens.expires_ms(claims))
        return names

    def sign(self, namespaces: list[str], subject: str, now_ms: int, lasts_s: int) -> str:
        """Sign a token. Raises TokenRefusedError if the node has only a public key."""
        if not self._secret:
            raise TokenRefusedError("this node has a public key alone: tokens are made elsewhere")
        return make_token(self._secret, namespaces, subject, now_ms, lasts_s)


def _names(claim: Any) -> frozenset[str]:
    if not isinstance(claim, list) or len(claim) > NAMESPACES_MAX:
        raise TokenRefusedError("the token does not list its namespaces")
    return frozenset(name for name in claim if isinstance(name, str))


def make_token(secret: str, namespaces: list[str], subject: str, now_ms: int, lasts_s: int) -> str:
    """Return a token for these namespaces that expires after `lasts_s`."""
    from leveret.auth.signing import sign_token

    now_s = now_ms // 1000
    claims = {"sub": subject, NAMESPACES: namespaces, "iat": now_s, "exp": now_s + lasts_s}
    return sign_token(claims, secret)


def now_ms() -> int:
    """Return the current time, for commands that run without a node."""
    return Clock().now_ms()


def secret_in(folder: Path | None) -> str:
    """Return the secret of a data directory, and make it if it is missing.

    Without a directory the secret is random and is lost when the node ends.
    """
    made = secrets.token_urlsafe(48)
    if folder is None:
        return made
    path = folder / SECRET_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_new(path, made)
        found = path.read_text().strip()
    except OSError as fault:
        raise ConfigError(f"{path}: {fault.strerror}") from fault
    if len(found) < SECRET_CHARACTERS_MIN:
        raise ConfigError(f"{path}: it has fewer than {SECRET_CHARACTERS_MIN} characters")
    return found


def _write_new(path: Path, text: str) -> None:
    """Write a file with mode 0600 unless it exists; it appears complete or not at all."""
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(draft, path)
    finally:
        draft.unlink()
