"""Keys that verify tokens: a secret, public keys as PEM, or a JSON Web Key Set.

Each key has a type and verifies only algorithms of that type. This defeats the classic attack: an
HMAC that was made with a public key as its secret finds no key.

This module and `tokens` import PyJWT and cryptography. A node imports them only if it accepts
tokens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec

from leveret.decode_errors import DECODE_ERRORS
from leveret.errors import ConfigError
from leveret.http_client.address import parse_address
from leveret.http_client.connections import ask_once
from leveret.http_client.errors import CallError
from leveret.http_client.requests import RequestEncoder

# The algorithms of each key type.
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
FETCH_S: Final = 5.0  # time limit for a whole key set
_NO_CRYPTOGRAPHY: Final = "public keys need the package cryptography: pip install 'leveret[oauth2]'"


@dataclass(frozen=True)
class Key:
    """One key. `id` is its name in tokens; a key with an empty id is tried for every token."""

    id: str
    algorithms: frozenset[str]
    material: Any


def matching_keys(keys: Sequence[Key], id: str, algorithm: str) -> list[Key]:
    """Return the keys for this algorithm that have this id or no id; all if `id` is empty."""
    fitting = [key for key in keys if algorithm in key.algorithms]
    return [key for key in fitting if not id or not key.id or key.id == id]


def secret_key(secret: str) -> Key:
    """Return the key for a secret that issuer and broker share."""
    return Key("", ALGORITHMS["oct"], secret.encode())


def pem_keys(text: str) -> list[Key]:
    """Read public keys from files: `[KID=]FILE,…`. Raises ConfigError."""
    return [_pem_key(part.strip()) for part in text.split(",") if part.strip()]


def _pem_key(part: str) -> Key:
    id, _, path = part.rpartition("=")
    return pem_key("oauth2_keys", Path(path), id)


def pem_key(option: str, path: Path, id: str = "") -> Key:
    """Read the public key of the file that an option names. Raises ConfigError."""
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
        raise ConfigError(f"{option}: {path}: is not a public key: {fault}") from fault
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


def parse_key_set(data: bytes) -> list[Key]:
    """Parse a JSON Web Key Set. Raises ConfigError.

    Keys that cannot be used are skipped. Secrets are skipped too, because a key set is public.
    """
    try:
        found = msgspec.json.decode(data)
    except DECODE_ERRORS as fault:
        raise ConfigError(f"is not JSON: {fault}") from fault
    items = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(items, list) or len(items) > SET_KEYS_MAX:
        raise ConfigError(f"is not a key set of at most {SET_KEYS_MAX} keys")
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


def read_key_set(path: Path) -> list[Key]:
    """Read a key set from a file. Raises ConfigError."""
    try:
        return parse_key_set(path.read_bytes())
    except OSError as fault:
        raise ConfigError(f"oauth2_jwks_file: {path}: {fault.strerror}") from fault
    except ConfigError as fault:
        raise ConfigError(f"oauth2_jwks_file: {path}: {fault}") from fault


def fetch_key_set(url: str) -> list[Key]:
    """Fetch a key set from a URL. This blocks: call it in a thread. Raises ConfigError."""
    try:
        address = parse_address(url)
        request = RequestEncoder(address).encode_to_target("GET")
        answer = ask_once(address, request, FETCH_S, SET_BYTES_MAX)
        if not 200 <= answer.status < 300:
            raise ConfigError(f"HTTP status {answer.status} {answer.reason}")
        return parse_key_set(answer.body)
    except (CallError, ValueError, ConfigError) as fault:
        raise ConfigError(f"{url}: {fault}") from fault
