"""Fixtures: a broker that accepts tokens, its clock, and a signer of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jwt
import pika
import pytest

from leveret.config.option import Secret
from leveret.testing import ManualClock, broker
from leveret.testing.broker import RunningBroker

SECRET = "a secret of thirty-two characters"
ALL = "broker.configure:*/* broker.write:*/*/* broker.read:*/*/*"

Sign = Callable[..., str]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sign(clock: ManualClock) -> Sign:
    """Makes tokens of a minute, for hare, who may do everything."""

    def signed(scope: object = ALL, *, key: str = SECRET, **changes: Any) -> str:
        expires_s = clock.now_ms() // 1000 + 60
        claims = {"sub": "hare", "aud": "broker", "exp": expires_s, "scope": scope, **changes}
        return jwt.encode(claims, key, "HS256")

    return signed


@pytest.fixture
def server(clock: ManualClock) -> Iterator[RunningBroker]:
    names: dict[str, Any] = {
        "oauth2_resource_server_id": "broker",
        "oauth2_secret": Secret(SECRET),
        "oauth2_scope_aliases": "reader=broker.read:*/* broker.tag:monitoring",
        "oauth2_scope_claims": "roles,realm.roles",
    }
    with broker(clock=clock, http=True, **names) as server:
        yield server


def connected(server: RunningBroker, token: str, name: str = "") -> pika.BlockingConnection:
    credentials = pika.PlainCredentials(name, token)
    return pika.BlockingConnection(
        pika.ConnectionParameters(server.host, server.port, credentials=credentials)
    )
