"""Every operation of the HTTP API, with every tag and without a login."""

import re
from collections.abc import Iterator

import pytest

from leveret.http.app import OPERATIONS
from leveret.http.framework.operations import Access, Operation
from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask, ask_whole

# The tags that give each kind of access, written down independently from RabbitMQ's documents.
ENOUGH = {
    Access.ANY_USER: {"", "management", "policymaker", "monitoring", "administrator"},
    Access.MANAGEMENT: {"management", "policymaker", "monitoring", "administrator"},
    Access.POLICYMAKER: {"policymaker", "administrator"},
    Access.MONITORING: {"monitoring", "administrator"},
    Access.METRICS: {"monitoring", "administrator"},  # if a login is required
    Access.ADMINISTRATOR: {"administrator"},
    Access.JOB_TOKEN: {"administrator"},  # or a token
}
TAGS = ("", "management", "policymaker", "monitoring", "administrator")
# Hash of the password "pw", by RabbitMQ's SHA-256, which is fast to verify.
HASH = "AAAAALEkKvUBGEzMSFzin0zK97z+wnfsndrUYKOF2RUry1wo"
LOGIN = "/api/login"  # checks a login, and changes nothing
LACKING = re.compile(rb"Not (management|policymaker|monitor|administrator) user")


def name_of(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True, metrics_login="always") as server:
        for tag in TAGS:
            body = {"password_hash": HASH, "tags": tag}
            status, _ = ask(server, "PUT", f"/api/users/tag-{tag}", body)
            assert status == 201
        yield server


def path_of(operation: Operation) -> str:
    """Return a path with names of objects that do not exist."""
    return re.sub(r"\{[^}]*\}", "no-such-thing", operation.path)


@pytest.mark.parametrize("operation", OPERATIONS, ids=name_of)
def test_operation_is_allowed_only_with_the_tag(
    server: RunningBroker, operation: Operation
) -> None:
    for tag in TAGS:
        if operation.access is Access.PUBLIC:
            continue
        path = path_of(operation)
        status, body, _ = ask_whole(server, operation.method, path, login=f"tag-{tag}:pw")
        is_refused = status == 401 and LACKING.search(body) is not None
        if operation.access is Access.JOB_TOKEN:  # only an administrator may use a login
            is_refused = status == 403
        assert is_refused is (tag not in ENOUGH[operation.access]), (tag, status, body)
        assert status < 500 or status == 503, (tag, status, body)


@pytest.mark.parametrize("operation", OPERATIONS, ids=name_of)
def test_operation_requires_a_login(server: RunningBroker, operation: Operation) -> None:
    for login in (None, "tag-administrator:wrong"):
        status, _, headers = ask_whole(server, operation.method, path_of(operation), login=login)
        if operation.access is Access.PUBLIC:
            assert status != 401 or operation.path == LOGIN
        elif login is None:
            assert status == 401
            scheme = "Bearer" if operation.access is Access.JOB_TOKEN else "Basic"
            assert headers["WWW-Authenticate"].startswith(f"{scheme} ")
        else:
            assert status in (401, 429)


def test_no_operation_that_changes_something_is_public() -> None:
    open_to_all = [o for o in OPERATIONS if o.access is Access.PUBLIC and o.method != "GET"]
    assert {operation.path for operation in open_to_all} == {LOGIN}
