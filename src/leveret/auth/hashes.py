"""Password hashes, salted.

New passwords are hashed by scrypt. The text holds its parameters:

    $scrypt$ln=14,r=8,p=1$<salt, base64>$<hash, base64>

Hashes from RabbitMQ are kept unchanged: base64 of a salt of four bytes and the digest of salt and
password. The name of the algorithm says which digest. No password matches an empty hash.

scrypt takes a tenth of a second on purpose. `is_slow` tells callers to compute such a hash outside
the event loop.
"""

import binascii
import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from typing import Final

from leveret.errors import PreconditionFailedError

SCRYPT: Final = "leveret_password_hashing_scrypt"
SHA256: Final = "rabbit_password_hashing_sha256"
SHA512: Final = "rabbit_password_hashing_sha512"
MD5: Final = "rabbit_password_hashing_md5"  # used by RabbitMQ before 3.6

_DIGESTS: Final = {SHA256: "sha256", SHA512: "sha512", MD5: "md5"}
_SALT_BYTES: Final = 4  # RabbitMQ's
_PREFIX: Final = "$scrypt$"
_COST_LOG2: Final = 14
_BLOCK: Final = 8
_PARALLEL: Final = 1
_MEMORY_BYTES_MAX: Final = 64 * 1024 * 1024  # memory that an imported hash may demand
_COST_LOG2_MAX: Final = 16


class PasswordHash:
    """A hash with the name of its algorithm, as stored and exported."""

    __slots__ = ("algorithm", "text")

    def __init__(self, text: str, algorithm: str) -> None:
        self.text = text
        self.algorithm = algorithm

    @property
    def is_slow(self) -> bool:
        return self.text.startswith(_PREFIX)

    def matches(self, password: str) -> bool:
        """Return True if this is the password. The time does not depend on the difference."""
        data = _bytes(password)
        if not self.text or not data:
            return False
        if self.is_slow:
            cost_log2, block, parallel, salt, digest = _read_scrypt(self.text)
            return hmac.compare_digest(_scrypt(data, salt, cost_log2, block, parallel), digest)
        kept = b64decode(self.text)
        found = hashlib.new(_DIGESTS[self.algorithm], kept[:_SALT_BYTES] + data).digest()
        return hmac.compare_digest(found, kept[_SALT_BYTES:])


NO_PASSWORD: Final = PasswordHash("", SHA256)


def hash_password(password: str) -> PasswordHash:
    """Hash a password with scrypt; slow."""
    salt = os.urandom(16)
    digest = _scrypt(_bytes(password), salt, _COST_LOG2, _BLOCK, _PARALLEL)
    head = f"{_PREFIX}ln={_COST_LOG2},r={_BLOCK},p={_PARALLEL}"
    return PasswordHash(f"{head}${_text(salt)}${_text(digest)}", SCRYPT)


def quick_hash(password: str) -> PasswordHash:
    """Hash a password with RabbitMQ's fast hash: enough for the public default password."""
    salt = os.urandom(_SALT_BYTES)
    return PasswordHash(_text(salt + hashlib.sha256(salt + _bytes(password)).digest()), SHA256)


def read_hash(text: str, algorithm: str = "") -> PasswordHash:
    """Parse an imported hash. Raises PreconditionFailedError if it is malformed."""
    if not text:
        return PasswordHash("", algorithm or SHA256)
    if text.startswith(_PREFIX):
        _read_scrypt(text)
        return PasswordHash(text, SCRYPT)
    algorithm = algorithm or SHA256
    digest = _DIGESTS.get(algorithm)
    if digest is None:
        raise PreconditionFailedError(f"hashing_algorithm '{algorithm}' is not known")
    try:
        size = len(b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        raise PreconditionFailedError("password_hash is not base64") from None
    if size != _SALT_BYTES + hashlib.new(digest).digest_size:
        raise PreconditionFailedError(f"password_hash does not have the length of {algorithm}")
    return PasswordHash(text, algorithm)


def _read_scrypt(text: str) -> tuple[int, int, int, bytes, bytes]:
    try:
        _, _, head, salt, digest = text.split("$")
        fields = dict(part.split("=") for part in head.split(","))
        cost_log2, block, parallel = int(fields["ln"]), int(fields["r"]), int(fields["p"])
        found = (cost_log2, block, parallel, b64decode(salt), b64decode(digest))
    except (ValueError, KeyError):
        raise PreconditionFailedError("password_hash is not an scrypt hash") from None
    is_bounded = 1 <= cost_log2 <= _COST_LOG2_MAX and 1 <= block <= 8 and 1 <= parallel <= 4
    if not is_bounded or len(found[4]) < 16:
        raise PreconditionFailedError("password_hash has parameters out of range")
    return found


def _scrypt(data: bytes, salt: bytes, cost_log2: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        data,
        salt=salt,
        n=1 << cost_log2,
        r=block,
        p=parallel,
        maxmem=_MEMORY_BYTES_MAX + 1024 * 1024,
        dklen=32,
    )


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
