"""The application answers health, version, and errors in RabbitMQ's form."""

import asyncio
from typing import Any

import msgspec
import pytest
from starlette.types import ASGIApp, Message

from leveret.http.app import make_app
from leveret.http.framework.node import Jobs
from leveret.http.framework.responses import ErrorBody, json_response
from tests.http.fake_node import FakeNode


class BrokenNode(FakeNode):
    def alarms(self) -> tuple[str, ...]:
        raise ZeroDivisionError("secret detail")


class BrokenJobs(FakeNode):
    @property
    def jobs(self) -> Jobs:
        raise ZeroDivisionError("secret detail")


def ask(
    app: ASGIApp, path: str, method: str = "GET", token: str = ""
) -> tuple[int, dict[str, str], Any]:
    """Return status, headers and JSON body of one request, without a socket."""
    sent: list[Message] = []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {token}".encode())] if token else [],
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    async def run() -> None:
        try:
            await app(scope, receive, send)
        except ZeroDivisionError:
            assert sent, "the answer goes out before the fault reaches the log"

    asyncio.run(run())
    headers = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    return sent[0]["status"], headers, msgspec.json.decode(sent[1]["body"])


def test_node_without_alarms_is_healthy() -> None:
    status, headers, body = ask(make_app(FakeNode()), "/api/health")
    assert (status, body) == (200, {"status": "ok", "node": "hare", "durability": "sync"})
    assert headers["content-type"] == "application/json"


def test_alarm_makes_health_fail_and_says_why() -> None:
    status, _, body = ask(make_app(FakeNode("memory is high", "disk is low")), "/api/health")
    assert status == 503
    assert body["status"] == "failed"
    assert body["reason"] == "memory is high; disk is low"


def test_version_includes_the_form(compiled: bool) -> None:
    status, _, body = ask(make_app(FakeNode()), "/api/version")
    assert status == 200
    assert (body["product"], body["version"]) == ("Leveret", "0.1.0")
    assert body["form"] == ("compiled" if compiled else "pure Python")


@pytest.mark.parametrize(
    "path", ["/page", "/api/nothing", "/api//health", "/api/", "/api/health//"]
)
def test_unknown_path_is_a_json_404(path: str) -> None:
    status, headers, body = ask(make_app(FakeNode()), path)
    assert (status, body) == (404, {"error": "Object Not Found", "reason": "Not Found"})
    assert headers["content-type"] == "application/json"


def test_a_slash_at_the_end_of_a_path_means_nothing() -> None:
    status, _, body = ask(make_app(FakeNode()), "/api/version/")
    assert (status, body["product"]) == (200, "Leveret")


def test_wrong_method_is_a_json_405_with_the_allowed_methods() -> None:
    status, headers, body = ask(make_app(FakeNode()), "/api/health", "DELETE")
    assert (status, body["error"]) == (405, "Method Not Allowed")
    assert "GET" in headers["allow"]


def test_unexpected_error_is_a_json_500_without_details() -> None:
    status, _, body = ask(make_app(BrokenNode()), "/api/health")
    assert status == 500
    assert body == {"error": "Internal Server Error", "reason": "Internal Server Error"}


def test_unexpected_error_in_the_jobs_service_is_a_problem_without_details() -> None:
    status, headers, body = ask(make_app(BrokenJobs()), "/stats", token="any")
    assert (status, headers["content-type"]) == (500, "application/problem+json")
    assert (body["status"], body["title"]) == (500, "Internal Server Error")
    assert "secret" not in str(body)


def test_names_that_are_not_utf_8_are_shown_with_replacements() -> None:
    failure = ErrorBody("bad_request", "no_such_user: \udcff\udcfe")
    assert msgspec.json.decode(json_response(failure).body)["reason"] == "no_such_user: ??"
