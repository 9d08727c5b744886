"""Keys that verify tokens: a secret, public keys as PEM, or a JSON Web Key Set.

Each key knows its kind and verifies only by algorithms of that kind. A token that names an
algorithm of another kind (an HMAC made with a public key, the oldest trick) finds no key at all.

PyJWT and cryptography are imported by this module and `tokens`, which are imported only where
tokens are taken.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec

from leveret.errors import ConfigError
from leveret.http_client.address import parse_address
from leveret.http_client.connections import ask_once
from leveret.http_client.errors import CallError
from leveret.http_client.requests import RequestEncoder

# What a kind of key verifies.
ALGORITHMS: Final = {
    "oct": frozenset(("HS256", "HS384", "HS512")),
    "RSA": frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    "EC": frozenset(("ES256", "ES384", "ES512")),
    "OKP": frozenset(("EdDSA",)),
}
KNOWN_ALGORITHMS: Final = frozenset().union(*ALGORITHMS.values())
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}

SET_BYTES_MAX: Final = 1_048_576
SET_KEYS_MAX: Final = 256
FETCH_S: Final = 5.0  # in which a key set must have come whole
_NO_CRYPTOGRAPHY: Final = "public keys need the package cryptography: pip install leveret[oauth2]"


@dataclass(frozen=True)
class Key:
    """One key. `id` is what tokens call it by; empty for one that is tried for any."""

    id: str
    algorithms: frozenset[str]
    material: Any


def matching(keys: Sequence[Key], id: str, algorithm: str) -> list[Key]:
    """The keys that may have signed: those of that name, or without one, and of the right kind."""
    fitting = [key for key in keys if algorithm in key.algorithms]
    return [key for key in fitting if not id or not key.id or key.id == id]


def secret_key(secret: str) -> Key:
    """A secret that issuer and broker share."""
    return Key("", ALGORITHMS["oct"], secret.encode())


def pem_keys(text: str) -> list[Key]:
    """Public keys of files: `[KID=]FILE,…`. Raises ConfigError."""
    return [_pem_key(part.strip()) for part in text.split(",") if part.strip()]


def _pem_key(part: str) -> Key:
    id, _, path = part.rpartition("=")
    return pem_key("oauth2_keys", Path(path), id)


def pem_key(option: str, path: Path, id: str = "") -> Key:
    """The public key of a file that an option names. Raises ConfigError."""
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise ConfigError(f"{option}: {path}: {fault.strerror}") from fault
    try:
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
        from cryptography.x509 import load_pem_x509_certificate
    except ImportError as fault:
        raise ConfigError(f"{option}: {_NO_CRYPTOGRAPHY}") from fault
    try:
        is_certificate = b"BEGIN CERTIFICATE" in data
        public = (
            load_pem_x509_certificate(data).public_key()
            if is_certificate
            else load_pem_public_key(data)
        )
    except ValueError as fault:
        raise ConfigError(f"{option}: {path}: is no public key: {fault}") from fault
    return Key(id, _algorithms_of(public, option), public)


def _algorithms_of(public: Any, option: str) -> frozenset[str]:
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

    if isinstance(public, rsa.RSAPublicKey):
        return ALGORITHMS["RSA"]
    if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in _CURVES:
        return frozenset((_CURVES[public.curve.name],))
    if isinstance(public, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        return ALGORITHMS["OKP"]
    raise ConfigError(f"{option}: tokens are not signed by keys of the kind {type(public)}")


def set_keys(data: bytes) -> list[Key]:
    """The keys of a JSON Web Key Set; those that cannot be used are left out. Raises ConfigError.

    Secrets are left out too: a set is public.
    """
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise ConfigError(f"is no JSON: {fault}") from fault
    items = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(items, list) or len(items) > SET_KEYS_MAX:
        raise ConfigError(f"is no key set of at most {SET_KEYS_MAX} keys")
    return list(_usable(items))


def _usable(items: Iterable[Any]) -> Iterable[Key]:
    for item in items:
        if not isinstance(item, dict) or item.get("use", "sig") != "sig":
            continue
        if item.get("kty") not in ALGORITHMS or item["kty"] == "oct":
            continue
        try:
            material = jwt.PyJWK.from_dict(item).key
            algorithms = _algorithms_of(material, "oauth2_jwks")
        except (jwt.PyJWTError, ConfigError, ValueError, TypeError):
            continue
        if isinstance(item.get("alg"), str):
            algorithms &= {item["alg"]}
        yield Key(str(item.get("kid", "")), algorithms, material)


def read_set(path: Path) -> list[Key]:
    """The keys of a file. Raises ConfigError."""
    try:
        return set_keys(path.read_bytes())
    except OSError as fault:
        raise ConfigError(f"{path}: {fault.strerror}") from fault
    except ConfigError as fault:
        raise ConfigError(f"{path}: {fault}") from fault


def fetch_set(url: str, within_s: float = FETCH_S) -> list[Key]:
    """The keys that a server tells; this waits, so not on the loop. Raises ConfigError."""
    try:
        address = parse_address(url)
        request = RequestEncoder(address).encode_to_target("GET")
        answer = ask_once(address, request, within_s, SET_BYTES_MAX)
        if not 200 <= answer.status < 300:
            raise ConfigError(f"HTTP status {answer.status} {answer.reason}")
        return set_keys(answer.body)
    except (CallError, ValueError, ConfigError) as fault:
        raise ConfigError(f"{url}: {fault}") from fault
