"""Tokens over HTTP: as bearers, and as passwords of Basic."""

from __future__ import annotations

from base64 import b64encode
from contextlib import closing
from http.client import HTTPConnection

import pytest

from leveret.testing import ManualClock
from leveret.testing.broker import RunningBroker
from tests.oauth2.conftest import ALL, Sign


def asked(server: RunningBroker, authorization: str, path: str = "/api/queues") -> int:
    with closing(HTTPConnection(server.host, server.http_port, timeout=30)) as client:
        client.request("GET", path, headers={"Authorization": authorization})
        answer = client.getresponse()
        answer.read()
        return answer.status


def basic(name: str, password: str) -> str:
    return "Basic " + b64encode(f"{name}:{password}".encode()).decode()


def test_bearer_with_a_tag_is_let_in(server: RunningBroker, sign: Sign) -> None:
    token = sign(ALL + " broker.tag:management")
    assert asked(server, f"Bearer {token}") == 200
    assert asked(server, f"bearer {token}") == 200
    assert asked(server, basic("anybody", token)) == 200
    assert asked(server, basic("guest", "guest")) == 200


@pytest.mark.parametrize("scope", [ALL, "", "broker.tag:unheard", "tag:management"])
def test_token_without_a_tag_is_not(server: RunningBroker, sign: Sign, scope: str) -> None:
    assert asked(server, f"Bearer {sign(scope)}") == 401


def test_token_that_is_not_trusted_is_refused(
    server: RunningBroker, sign: Sign, clock: ManualClock
) -> None:
    token = sign("broker.tag:administrator")
    assert asked(server, f"Bearer {token}") == 200
    assert asked(server, f"Bearer {token[:-2]}") == 401
    assert asked(server, f"Bearer {sign('broker.tag:administrator', aud='x')}") == 401
    assert asked(server, "Bearer nothing") == 401
    assert asked(server, "Bearer") == 401
    clock.advance(seconds=60)
    assert asked(server, f"Bearer {token}") == 401
