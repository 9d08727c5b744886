"""Keys of tokens from files and from a server, and their refresh."""

from __future__ import annotations

import asyncio
import http.server
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from leveret.auth import UserDirectory
from leveret.config.option import Secret
from leveret.config.settings import Settings
from leveret.engine.broker import Broker
from leveret.errors import ConfigError, TokenRefusedError
from leveret.runtime.oauth2 import TokenLogins

NOW_MS = 1_700_000_000_000
KEYS = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("one", "two")}


def key_set(*names: str) -> bytes:
    made: Any = jwt.algorithms.ECAlgorithm
    keys = [{**json.loads(made.to_jwk(KEYS[n].public_key())), "kid": n} for n in names]
    return json.dumps({"keys": keys}).encode()


def token(name: str) -> str:
    claims = {"sub": "hare", "aud": "broker", "exp": NOW_MS // 1000 + 60}
    return jwt.encode(claims, KEYS[name], "ES256", headers={"kid": name})


class Issuer:
    """A server of keys; what it answers can be changed."""

    def __init__(self) -> None:
        self.body = key_set("one")
        self.status = 200
        self.asked = 0


@pytest.fixture
def issuer() -> Iterator[tuple[Issuer, str]]:
    told = Issuer()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.asked += 1
            self.send_response(told.status)
            self.end_headers()
            self.wfile.write(told.body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield told, f"http://127.0.0.1:{server.server_address[1]}/keys"
        finally:
            server.shutdown()
            thread.join()


class Watched(TokenLogins):
    """Tells when keys were loaded."""

    def __init__(self, settings: Settings, directory: UserDirectory) -> None:
        super().__init__(settings, directory, lambda: NOW_MS)
        self.refreshed = asyncio.Event()

    async def refresh(self) -> bool:
        is_complete = await super().refresh()
        self.refreshed.set()
        return is_complete


def run(scenario: Callable[[Watched], Awaitable[None]], **changes: Any) -> None:
    async def main() -> None:
        settings = Settings(oauth2_resource_server_id="broker", **changes)
        directory = UserDirectory(Broker(1).register, lambda: NOW_MS)
        await scenario(Watched(settings, directory))

    asyncio.run(main())


def is_trusted(logins: TokenLogins, name: str) -> bool:
    try:
        logins.verifier.verify(token(name), NOW_MS)
    except TokenRefusedError:
        return False
    return True


def test_keys_are_fetched_at_the_start_and_again(issuer: tuple[Issuer, str]) -> None:
    told, url = issuer

    async def scenario(logins: Watched) -> None:
        assert not is_trusted(logins, "one")
        await logins.start()
        assert is_trusted(logins, "one")
        told.body = key_set("two")
        assert await logins.refresh()
        assert not is_trusted(logins, "one")
        assert is_trusted(logins, "two")

    run(scenario, oauth2_jwks_url=url)


def test_unknown_key_has_the_keys_fetched_soon(issuer: tuple[Issuer, str]) -> None:
    told, url = issuer

    async def scenario(logins: Watched) -> None:
        await logins.start()
        logins.refreshed.clear()
        told.body = key_set("one", "two")
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            care = group.create_task(logins.run())
            assert not is_trusted(logins, "two")
            await logins.refreshed.wait()
            assert is_trusted(logins, "two")
            assert told.asked == 2
            care.cancel()

    run(scenario, oauth2_jwks_url=url)


@pytest.mark.parametrize("status", [200, 500])
def test_failure_keeps_the_keys(
    issuer: tuple[Issuer, str], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    told, url = issuer

    async def scenario(logins: Watched) -> None:
        await logins.start()
        told.body, told.status = b"nothing", status
        assert not await logins.refresh()
        assert is_trusted(logins, "one")

    run(scenario, oauth2_jwks_url=url)
    assert any(url in r.getMessage() for r in caplog.records if r.levelno == logging.ERROR)


def test_issuer_that_is_down_does_not_keep_the_node_from_starting() -> None:
    async def scenario(logins: Watched) -> None:
        await logins.start()
        assert not is_trusted(logins, "one")

    run(scenario, oauth2_jwks_url="http://127.0.0.1:1/keys")


def test_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set("one"))

    async def scenario(logins: Watched) -> None:
        assert is_trusted(logins, "one")
        path.write_bytes(key_set("two"))
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            care = group.create_task(logins.run())
            logins.reload()
            await logins.refreshed.wait()
            assert is_trusted(logins, "two")
            care.cancel()

    run(scenario, oauth2_jwks_file=path)


def test_keys_that_cannot_be_loaded_are_logged_once_and_shown_until_they_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set("one"))

    async def scenario(logins: Watched) -> None:
        path.unlink()
        for _ in range(3):
            assert not await logins.refresh()
        assert str(path) in logins.fault
        assert [each.message for each in caplog.records] == [logins.fault]
        path.write_bytes(key_set("two"))
        assert await logins.refresh()
        assert logins.fault == ""
        assert is_trusted(logins, "two")

    run(scenario, oauth2_jwks_file=path)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"oauth2_algorithms": "RS256,none"}, "oauth2_algorithms: there is no none"),
        ({"oauth2_scope_aliases": "reader"}, "'reader' is not ALIAS=SCOPE"),
        ({"oauth2_scope_aliases": "=x"}, "is not ALIAS=SCOPE"),
        ({"oauth2_keys": "absent.pem"}, "oauth2_keys: absent.pem"),
        ({"oauth2_jwks_file": Path("absent.json")}, "absent.json"),
    ],
)
def test_settings_that_cannot_be_used(changes: dict[str, Any], fault: str) -> None:
    async def scenario(logins: Watched) -> None:
        raise AssertionError("it was made")

    with pytest.raises(ConfigError, match=fault):
        run(scenario, **{"oauth2_secret": Secret("x" * 32), **changes})
