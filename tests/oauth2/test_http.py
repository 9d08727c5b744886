"""Tokens over HTTP: as bearers, and as passwords of Basic."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest

from leveret.testing import ManualClock
from leveret.testing.broker import RunningBroker
from tests.oauth2.conftest import ALL, Sign


def asked(server: RunningBroker, authorization: str, path: str = "/api/queues") -> int:
    with closing(HTTPConnection(server.host, server.http_port, timeout=60)) as client:
        client.request("GET", path, headers={"Authorization": authorization})
        answer = client.getresponse()
        answer.read()
        return answer.status


def called(server: RunningBroker, method: str, path: str, authorization: str) -> tuple[int, Any]:
    with closing(HTTPConnection(server.host, server.http_port, timeout=60)) as client:
        client.request(method, path, headers={"Authorization": authorization})
        answer = client.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if data else None


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


def test_jobs_token_has_the_scopes_of_the_login_and_ends_with_it(
    server: RunningBroker, sign: Sign, clock: ManualClock
) -> None:
    scope = "broker.read:%2F/mine broker.configure:%2F/* broker.tag:management"
    login = f"Bearer {sign(scope)}"
    status, body = called(server, "POST", "/api/jobs/token", login)
    assert status == 200
    token = f"Bearer {body['token']}"
    assert called(server, "GET", "/dequeue?namespace=/&topic=mine", token) == (200, [])
    status, body = called(server, "GET", "/dequeue?namespace=/&topic=theirs", token)
    assert (status, body["field"]) == (403, "topic")
    assert called(server, "GET", "/dequeue?namespace=other&topic=mine", token)[0] == 403
    assert called(server, "GET", "/api/queues", token)[0] == 401
    clock.advance(seconds=60)
    assert called(server, "GET", "/dequeue?namespace=/&topic=mine", token)[0] == 401
