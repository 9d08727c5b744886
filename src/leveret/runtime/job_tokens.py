"""Tokens of the jobs service: which namespaces a client may use, or which user it is.

A token is a JWT with `exp` and one of these claims:

    namespaces    a list of names; `*` stands for all. Operators sign such tokens.
    account       the user `sub` of this node; the value is a digest of the user's password hash
    scopes        the user `sub` of an OAuth2 token, with the scopes of that token

The node signs tokens of the last two kinds for users. A token with `account` ends with the user and
with the user's password. The permissions of the user are looked up at each call.

A token is verified with the secret or the public key of the settings, and only with the algorithm
of that key type. If neither is set, a secret in the data directory is used. The node or
`leveret jobs` makes that secret at the first need. The nodes of a cluster derive it from the secret
of the cluster, so that each of them accepts the tokens of the others.
"""

import contextlib
import hmac
import os
import secrets
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from leveret.auth import JobAccess, User, UserDirectory
from leveret.clock import Clock
from leveret.config.settings import Settings
from leveret.errors import ConfigError, TokenRefusedError
from leveret.storage.disk import LOCK_FILE

SECRET_FILE: Final = "jobs-secret"
SECRET_CHARACTERS_MIN: Final = 32
ALL: Final = "*"
NAMESPACES: Final = "namespaces"
ACCOUNT: Final = "account"
SCOPES: Final = "scopes"
SUBJECT: Final = "sub"
SUBJECT_MAX: Final = 255  # characters of a subject that the audit shows
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
        material = self._secret.encode() or Path(str(settings.jobs_token_key)).read_bytes()
        # Identifies the key to other nodes, and does not reveal it.
        self.digest: Final = hmac.new(material, b"leveret jobs", "sha256").hexdigest()[:32]
        pinned = Key("", frozenset(allowed), key.material)
        self._tokens = TokenVerifier(TokenRules(frozenset(allowed), audience=""), [pinned])
        self._known: dict[str, _Grant] = {}  # of verified tokens
        self._digest_of = lru_cache(_KNOWN_MAX)(self._make_digest)  # every call needs one

    def access(self, token: str, now_ms: int, directory: UserDirectory) -> JobAccess:
        """Return the access that a token gives now. Raises TokenRefusedError."""
        grant = self._known.get(token)
        if grant is None or now_ms >= grant.expires_ms:
            grant = self._verified(token, now_ms)
            if len(token) <= _KNOWN_CHARACTERS_MAX:
                if len(self._known) >= _KNOWN_MAX:
                    self._known.clear()
                self._known[token] = grant
        if not grant.account:
            return grant.access
        proof = self._proof(grant.subject, directory)
        user = directory.user(grant.subject)
        if user is None or not hmac.compare_digest(proof, grant.account):
            raise TokenRefusedError("the user of the token is gone or has a new password")
        return JobAccess(frozenset(), user)

    def _verified(self, token: str, now_ms: int) -> "_Grant":
        from leveret.auth.oauth2 import TokenUser
        from leveret.auth.scopes import Scopes

        claims = self._tokens.verify(token, now_ms)
        expires_ms = self._tokens.expires_ms(claims)
        subject = str(claims.get(SUBJECT, ""))
        if self._secret and SCOPES in claims:
            user = TokenUser(subject, Scopes(_texts(claims[SCOPES]), {}), expires_ms)
            return _Grant(expires_ms, subject, "", JobAccess(frozenset(), user))
        if self._secret and ACCOUNT in claims:
            return _Grant(expires_ms, subject, str(claims[ACCOUNT]), JobAccess(frozenset()))
        names = _names(claims.get(NAMESPACES))
        return _Grant(expires_ms, subject, "", JobAccess(names, subject=subject[:SUBJECT_MAX]))

    def _proof(self, name: str, directory: UserDirectory) -> str:
        """Return a digest of the password hash of a user, which a new password changes."""
        account = directory.users.get(name)
        kept = account.password.text if account is not None else ""
        return self._digest_of(f"{name}\0{kept}")

    def _make_digest(self, text: str) -> str:
        return hmac.new(self._secret.encode(), text.encode(), "sha256").hexdigest()

    def sign_for(
        self, user: User, now_ms: int, lasts_s: int, directory: UserDirectory
    ) -> tuple[str, int]:
        """Sign a token for a user; return it, and when it expires. Raises as `sign` does."""
        from leveret.auth.oauth2 import TokenUser
        from leveret.auth.signing import sign_token

        self._require_secret()
        now_s = now_ms // 1000
        expires_s = now_s + lasts_s
        if user.expires_ms:
            expires_s = min(expires_s, user.expires_ms // 1000)
        claims = {SUBJECT: user.name, "iat": now_s, "exp": expires_s}
        if isinstance(user, TokenUser):
            claims[SCOPES] = user.scopes.texts
        else:
            claims[ACCOUNT] = self._proof(user.name, directory)
        return sign_token(claims, self._secret), expires_s * 1000

    def sign(self, namespaces: list[str], subject: str, now_ms: int, lasts_s: int) -> str:
        """Sign a token. Raises TokenRefusedError if the node has only a public key."""
        self._require_secret()
        return make_token(self._secret, namespaces, subject, now_ms, lasts_s)

    def _require_secret(self) -> None:
        if not self._secret:
            raise TokenRefusedError("this node has a public key alone: tokens are made elsewhere")


class _Grant:
    """The contents of a verified token."""

    __slots__ = ("access", "account", "expires_ms", "subject")

    def __init__(self, expires_ms: int, subject: str, account: str, access: JobAccess) -> None:
        self.expires_ms = expires_ms
        self.subject = subject
        self.account = account  # digest of the password hash of the user `subject`; else empty
        self.access = access  # without effect if `account` is set


def _texts(claim: Any) -> list[str]:
    return [text for text in claim if isinstance(text, str)] if isinstance(claim, list) else []


def _names(claim: Any) -> frozenset[str]:
    if not isinstance(claim, list) or len(claim) > NAMESPACES_MAX:
        raise TokenRefusedError("the token does not list its namespaces")
    return frozenset(name for name in claim if isinstance(name, str))


def make_token(secret: str, namespaces: list[str], subject: str, now_ms: int, lasts_s: int) -> str:
    """Return a token for these namespaces that expires after `lasts_s`."""
    from leveret.auth.signing import sign_token

    now_s = now_ms // 1000
    claims = {SUBJECT: subject, NAMESPACES: namespaces, "iat": now_s, "exp": now_s + lasts_s}
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


def secret_of_node(folder: Path) -> str:
    """Return the secret in the data directory of a node, for commands.

    Raises ConfigError if no node has used the directory: a mistyped name must not create one.
    """
    if not any((folder / name).exists() for name in (SECRET_FILE, LOCK_FILE)):
        raise ConfigError(f"{folder} is not the data directory of a node that has been started")
    return secret_in(folder)


def put_cluster_secret(folder: Path, cluster_secret: bytes) -> None:
    """Write the secret that all nodes of a cluster share into the data directory of a node.

    A secret from before the node joined the cluster is replaced. Raises ConfigError.
    """
    secret = hmac.new(cluster_secret, b"leveret jobs tokens", "sha256").hexdigest()
    path = folder / SECRET_FILE
    try:
        if not path.exists() or path.read_text().strip() != secret:
            path.unlink(missing_ok=True)
            _write_new(path, secret)
    except OSError as fault:
        raise ConfigError(f"{path}: {fault.strerror}") from fault


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
