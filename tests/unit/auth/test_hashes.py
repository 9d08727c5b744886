"""Password hashes: scrypt, RabbitMQ's, and malformed ones."""

import hashlib
from base64 import b64encode

import pytest

from leveret.auth.hashes import (
    MD5,
    NO_PASSWORD,
    SCRYPT,
    SHA256,
    SHA512,
    PasswordHash,
    hash_password,
    quick_hash,
    read_hash,
)
from leveret.errors import PreconditionFailedError


def rabbit_hash(digest: str, password: str) -> str:
    salt = bytes.fromhex("908dc60a")
    return b64encode(salt + hashlib.new(digest, salt + password.encode()).digest()).decode()


def test_new_hash_is_of_scrypt_salted_and_fits_one_password() -> None:
    kept = hash_password("hunter2")
    assert kept.algorithm == SCRYPT
    assert kept.is_slow
    assert "hunter2" not in kept.text
    assert kept.matches("hunter2")
    assert not kept.matches("hunter3")
    assert hash_password("hunter2").text != kept.text


@pytest.mark.parametrize(
    ("algorithm", "digest"), [(SHA256, "sha256"), (SHA512, "sha512"), (MD5, "md5")]
)
def test_hashes_of_rabbitmq_fit_and_stay_as_they_came(algorithm: str, digest: str) -> None:
    text = rabbit_hash(digest, "test12")
    kept = read_hash(text, algorithm)
    assert (kept.text, kept.algorithm, kept.is_slow) == (text, algorithm, False)
    assert kept.matches("test12")
    assert not kept.matches("test13")


def test_example_of_rabbitmqs_documentation_fits() -> None:
    """The salt 908DC60A and the password test12."""
    assert read_hash("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR").matches("test12")


def test_own_hash_can_be_handed_in_without_naming_its_algorithm() -> None:
    kept = hash_password("x")
    assert read_hash(kept.text).algorithm == SCRYPT
    assert read_hash(kept.text).matches("x")


def test_quick_hash_is_rabbitmqs() -> None:
    kept = quick_hash("guest")
    assert (kept.algorithm, kept.is_slow) == (SHA256, False)
    assert kept.matches("guest")


@pytest.mark.parametrize("kept", [NO_PASSWORD, quick_hash(""), hash_password(""), read_hash("")])
def test_empty_password_never_fits(kept: PasswordHash) -> None:
    assert not kept.matches("")


def test_no_password_fits_nothing() -> None:
    assert not NO_PASSWORD.matches("x")


def test_passwords_that_are_not_utf8_are_told_apart() -> None:
    kept = quick_hash("\udcff")
    assert kept.matches("\udcff")
    assert not kept.matches("\udcfe")


@pytest.mark.parametrize(
    ("text", "algorithm", "reason"),
    [
        ("AAAA", SHA256, "does not have the length"),
        (rabbit_hash("sha256", "x"), SHA512, "does not have the length"),
        ("not base64!", SHA256, "is not base64"),
        (rabbit_hash("sha256", "x"), "rabbit_password_hashing_crc32", "is not known"),
        ("$scrypt$ln=14,r=8,p=1$AAAA", "", "is not an scrypt hash"),
        ("$scrypt$ln=99,r=8,p=1$AAAA$" + "A" * 44, "", "out of range"),
        ("$scrypt$ln=14,r=8,p=1$AAAA$AAAA", "", "out of range"),
        ("$scrypt$ln=x,r=8,p=1$AAAA$AAAA", "", "is not an scrypt hash"),
    ],
)
def test_what_is_no_hash_is_refused(text: str, algorithm: str, reason: str) -> None:
    with pytest.raises(PreconditionFailedError, match=reason):
        read_hash(text, algorithm)


def test_most_expensive_hash_that_is_taken_can_be_verified() -> None:
    salt, digest = b64encode(b"s" * 16).decode(), b64encode(b"d" * 32).decode()
    assert not read_hash(f"$scrypt$ln=16,r=8,p=4${salt}${digest}").matches("x")
