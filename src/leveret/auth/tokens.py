"""Verify JSON Web Tokens. This is the only module that does.

A token is valid if its algorithm is allowed, a key for that algorithm has signed it, it names the
audience (and the issuer, if one is required), and the current time is within its times. A token
without an expiry time is refused, because it could never be revoked.

PyJWT checks signature and form. This module checks the times, against the time that it is given.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt

from leveret.auth.keys import Key, matching_keys
from leveret.errors import TokenRefusedError

TOKEN_CHARACTERS_MAX: Final = 65_536
KEYS_TRIED_MAX: Final = 8  # for a token that does not name its key
_EXPIRES_MS_MAX: Final = 253_402_300_799_000  # the end of the year 9999

Claims = Mapping[str, Any]

# Errors that made-up tokens can cause. PyJWT's JSON decoder recurses as deep as the input nests.
MALFORMED: Final = (jwt.PyJWTError, ValueError, TypeError, RecursionError)

# PyJWT must check neither times nor names, because this module does.
_SIGNATURE_ONLY: Final[Any] = {
    "verify_signature": True,
    **dict.fromkeys(("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss"), False),
    **dict.fromkeys(("verify_sub", "verify_jti"), False),
}


@dataclass(frozen=True)
class TokenRules:
    """Conditions that a token must meet to be accepted."""

    algorithms: frozenset[str]
    audience: str  # empty: any
    issuer: str = ""  # empty: any
    leeway_ms: int = 0


class TokenVerifier:
    """Verifies tokens with rules and keys; the keys may be replaced at any time."""

    def __init__(self, rules: TokenRules, keys: Sequence[Key]) -> None:
        self.rules = rules
        self.keys = keys
        # Called when no key matches: the key refresher may have to fetch new keys.
        self.on_unknown_key: Callable[[], None] | None = None

    def verify(self, token: str, now_ms: int) -> Claims:
        """Return the claims of a valid token. Raises TokenRefusedError."""
        claims = self._signed(token)
        self._check_names(claims)
        self._check_times(claims, now_ms)
        return claims

    def expires_ms(self, claims: Claims) -> int:
        """Return when a verified token expires, with the leeway."""
        return min(int(claims["exp"] * 1000) + self.rules.leeway_ms, _EXPIRES_MS_MAX)

    def _signed(self, token: str) -> Claims:
        algorithm, key_id = self._header(token)
        found = matching_keys(self.keys, key_id, algorithm)
        for key in found[:KEYS_TRIED_MAX]:
            try:
                return _decoded(token, key, algorithm)
            except jwt.InvalidSignatureError:
                continue
            except MALFORMED as fault:
                raise TokenRefusedError("the token is not well-formed") from fault
        if self.on_unknown_key is not None and not any(key.id == key_id for key in found):
            self.on_unknown_key()
        raise TokenRefusedError(
            "the token is signed with a secret or key that this node does not have"
        )

    def _header(self, token: str) -> tuple[str, str]:
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise TokenRefusedError("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
        except MALFORMED as fault:
            raise TokenRefusedError("the token is not well-formed") from fault
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self.rules.algorithms:
            raise TokenRefusedError("the token is not signed by an algorithm that is allowed")
        return algorithm, str(header.get("kid", ""))

    def _check_names(self, claims: Claims) -> None:
        audience = claims.get("aud")
        named = [audience] if isinstance(audience, str) else audience
        wanted = self.rules.audience
        if wanted and (not isinstance(named, list) or wanted not in named):
            raise TokenRefusedError("the token is for another audience")
        if self.rules.issuer and claims.get("iss") != self.rules.issuer:
            raise TokenRefusedError("the token is of another issuer")

    def _check_times(self, claims: Claims, now_ms: int) -> None:
        if not _is_time(claims.get("exp")):
            raise TokenRefusedError("the token does not say when it expires")
        if now_ms >= self.expires_ms(claims):
            raise TokenRefusedError("the token has expired")
        begins = claims.get("nbf", 0)
        if not _is_time(begins) or begins * 1000 - self.rules.leeway_ms > now_ms:
            raise TokenRefusedError("the token is not valid yet")


def looks_like_token(text: str) -> bool:
    """Return True if a password has the form of a signed token."""
    return text.startswith("eyJ") and text.count(".") == 2


def _decoded(token: str, key: Key, algorithm: str) -> Claims:
    claims: Claims = jwt.decode(
        token, key.material, algorithms=[algorithm], options=_SIGNATURE_ONLY
    )
    return claims


def _is_time(value: object) -> bool:
    """Return True for a finite number of seconds; a boolean is not a number here."""
    return type(value) in (int, float) and abs(value) < 1e15  # type: ignore[arg-type]
