"""Tokens: which are valid, which are refused, and why."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from leveret.auth.keys import Key, fetch_key_set, parse_key_set, pem_keys, read_key_set, secret_key
from leveret.auth.tokens import TokenRules, TokenVerifier, looks_like_token
from leveret.errors import ConfigError, TokenRefusedError

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
SECRET = "a secret of thirty-two characters"
RULES = TokenRules(frozenset(("HS256", "RS256", "ES256", "EdDSA")), "broker")
CLAIMS = {"sub": "hare", "aud": "broker", "exp": NOW_S + 60}

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
PRIVATE: dict[str, Any] = {"RS256": RSA, "ES256": EC, "EdDSA": ED, "HS256": SECRET}


def pem(private: Any) -> bytes:
    public: bytes = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return public


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[Key]:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("RS256", "ES256", "EdDSA"):
        (folder / name).write_bytes(pem(PRIVATE[name]))
    text = f"first={folder / 'RS256'}, {folder / 'ES256'},{folder / 'EdDSA'}"
    return [secret_key(SECRET), *pem_keys(text)]


def signed(algorithm: str = "HS256", key: Any = None, *, kid: str = "", **changes: object) -> str:
    claims = {name: v for name, v in {**CLAIMS, **changes}.items() if v is not None}
    headers = {"kid": kid} if kid else None
    return jwt.encode(claims, key or PRIVATE[algorithm], algorithm, headers=headers)


def forged(header: dict[str, object], claims: dict[str, object], signature: str = "") -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in (header, claims)]
    return ".".join([*(part.decode().rstrip("=") for part in parts), signature])


@pytest.mark.parametrize("algorithm", ["HS256", "RS256", "ES256", "EdDSA"])
def test_token_of_each_algorithm_is_trusted(keys: list[Key], algorithm: str) -> None:
    token = signed(algorithm)
    assert looks_like_token(token)
    claims = TokenVerifier(RULES, keys).verify(token, NOW_MS)
    assert claims["sub"] == "hare"
    assert TokenVerifier(RULES, keys).expires_ms(claims) == NOW_MS + 60_000


def deep() -> str:
    """A header that is brackets, and nothing but brackets."""
    text = b'{"alg": "HS256", "x": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    return base64.urlsafe_b64encode(text).decode().rstrip("=") + ".e30.AAAA"


OTHER_RSA = rsa.generate_private_key(65537, 2048)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (signed(exp=NOW_S), "expired"),
        (signed(exp=NOW_S - 1), "expired"),
        (signed(exp=None), "when it expires"),
        (forged({"alg": "none"}, CLAIMS), "algorithm"),
        (forged({"alg": "None"}, CLAIMS), "algorithm"),
        (forged({"alg": ["HS256"]}, CLAIMS), "token"),
        (forged({}, CLAIMS), "token"),
        (forged({"alg": "HS256"}, CLAIMS, "AAAA"), "signed"),
        (signed("HS512", SECRET * 2), "algorithm"),
        (signed("HS256", "another secret of thirty-two characters"), "signed"),
        (signed("RS256", OTHER_RSA), "signed"),
        (signed("RS256", kid="second"), "signed"),
        (signed(aud="other"), "audience"),
        (signed(aud=["other", "third"]), "audience"),
        (signed(aud=None), "audience"),
        (signed(aud={"broker": 1}), "audience"),
        (signed(nbf=NOW_S + 1), "yet"),
        (signed(nbf="soon"), "yet"),
        (signed(exp=True), "when it expires"),
        (signed(exp="9999999999"), "when it expires"),
        (signed(exp=1e300), "when it expires"),
        ("", "well-formed"),
        ("a.b.c", "well-formed"),
        ("eyJ.eyJ.", "well-formed"),
        ("eyJ" + "a" * 70_000 + "..", "too long"),
        (signed()[:-2], "token"),
        (deep(), "well-formed"),
    ],
)
def test_token_that_is_not_trusted(keys: list[Key], token: str, reason: str) -> None:
    with pytest.raises(TokenRefusedError, match=reason):
        TokenVerifier(RULES, keys).verify(token, NOW_MS)


def test_public_key_is_no_secret(keys: list[Key]) -> None:
    """An HMAC with the public key as its secret must not verify."""
    import hashlib
    import hmac

    head = forged({"alg": "HS256", "typ": "JWT"}, CLAIMS).rstrip(".")
    digest = hmac.new(pem(RSA), head.encode(), hashlib.sha256).digest()
    token = f"{head}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"
    with pytest.raises(TokenRefusedError):
        TokenVerifier(RULES, keys[1:]).verify(token, NOW_MS)


def test_changed_claims_are_noticed(keys: list[Key]) -> None:
    head, _, signature = signed("ES256").split(".")
    body = forged({}, {**CLAIMS, "sub": "fox"}).split(".")[1]
    with pytest.raises(TokenRefusedError, match="signed"):
        TokenVerifier(RULES, keys).verify(f"{head}.{body}.{signature}", NOW_MS)


def test_audience_may_be_one_of_several_and_the_issuer_is_checked(keys: list[Key]) -> None:
    rules = TokenRules(RULES.algorithms, "broker", issuer="https://issuer")
    tokens = TokenVerifier(rules, keys)
    token = signed(aud=["x", "broker"], iss="https://issuer")
    assert tokens.verify(token, NOW_MS)["aud"] == ["x", "broker"]
    for issuer in ("https://other", None):
        with pytest.raises(TokenRefusedError, match="issuer"):
            tokens.verify(signed(iss=issuer), NOW_MS)


def test_leeway_is_given_at_both_ends(keys: list[Key]) -> None:
    tokens = TokenVerifier(TokenRules(RULES.algorithms, "broker", leeway_ms=5000), keys)
    claims = tokens.verify(signed(exp=NOW_S - 4, nbf=NOW_S + 4), NOW_MS)
    assert tokens.expires_ms(claims) == NOW_MS + 1000
    for changes in ({"exp": NOW_S - 5}, {"nbf": NOW_S + 6}):
        with pytest.raises(TokenRefusedError):
            tokens.verify(signed(**changes), NOW_MS)  # type: ignore[arg-type]


def jwk(private: Any, algorithm: str, **more: object) -> dict[str, object]:
    made: Any = jwt.algorithms.RSAAlgorithm if algorithm == "RS256" else jwt.algorithms.ECAlgorithm
    found: dict[str, object] = json.loads(made.to_jwk(private.public_key()))
    return {**found, **more}


KEY_SET = {
    "keys": [
        jwk(RSA, "RS256", kid="one", use="sig", alg="RS256"),
        jwk(EC, "ES256", kid="two"),
        jwk(OTHER_RSA, "RS256", kid="three", use="enc"),
        {"kty": "oct", "k": base64.urlsafe_b64encode(SECRET.encode()).decode(), "kid": "four"},
        {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "five"},
        {"kty": "unheard"},
        5,
    ]
}


def test_key_set_gives_public_keys_for_signatures_only(tmp_path: Path) -> None:
    (tmp_path / "set").write_text(json.dumps(KEY_SET))
    keys = read_key_set(tmp_path / "set")
    assert [(key.id, sorted(key.algorithms)) for key in keys] == [
        ("one", ["RS256"]),
        ("two", ["ES256"]),
    ]
    tokens = TokenVerifier(RULES, keys)
    assert tokens.verify(signed("RS256", kid="one"), NOW_MS)
    assert tokens.verify(signed("ES256", kid="two"), NOW_MS)
    assert tokens.verify(signed("ES256"), NOW_MS)
    for token in (signed("RS256", kid="two"), signed("HS256", kid="four")):
        with pytest.raises(TokenRefusedError):
            tokens.verify(token, NOW_MS)


def test_unknown_key_is_told_and_a_wrong_signature_is_not() -> None:
    tokens = TokenVerifier(RULES, parse_key_set(json.dumps(KEY_SET).encode()))
    told: list[int] = []
    tokens.on_unknown_key = lambda: told.append(1)
    with pytest.raises(TokenRefusedError):
        tokens.verify(signed("RS256", OTHER_RSA, kid="one"), NOW_MS)
    assert told == []
    with pytest.raises(TokenRefusedError):
        tokens.verify(signed("RS256", OTHER_RSA, kid="three"), NOW_MS)
    assert told == [1]
    tokens.keys = [Key("three", frozenset(("RS256",)), OTHER_RSA.public_key())]
    assert tokens.verify(signed("RS256", OTHER_RSA, kid="three"), NOW_MS)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"keys": 5}', b"\xff", b"[" * 100_000])
def test_what_is_no_key_set_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError):
        parse_key_set(data)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent"):
        pem_keys(str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match="absent"):
        read_key_set(tmp_path / "absent")
    (tmp_path / "text").write_text("no key")
    with pytest.raises(ConfigError, match="text: is not a public key"):
        pem_keys(str(tmp_path / "text"))


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """A server that answers every GET in this way; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/keys"
        finally:
            server.shutdown()
            thread.join()


def test_key_set_is_fetched() -> None:
    with answering(200, json.dumps(KEY_SET).encode()) as url:
        assert [key.id for key in fetch_key_set(url)] == ["one", "two"]


def test_key_set_that_cannot_be_fetched_is_named() -> None:
    for answer in ((500, b""), (200, b"no JSON"), (200, b" " * 2_000_000)):
        with answering(*answer) as url, pytest.raises(ConfigError, match="127"):
            fetch_key_set(url)
    with answering(302, b"", Location="file:///etc/passwd") as url, pytest.raises(ConfigError):
        fetch_key_set(url)
    with pytest.raises(ConfigError, match="refused"):
        fetch_key_set(url)
