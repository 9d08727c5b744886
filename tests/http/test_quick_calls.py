"""Calls with a token: which are quick calls, and that their answers equal those of uvicorn."""

import asyncio
import json
import re
import socket
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from leveret.http.framework.node import NodeView
from leveret.http.jobs.quick_calls import BODY_BYTES_MAX, QUICK_CALLS, Decline, QuickCall, Respond
from leveret.job_service.embedded.store import EmbeddedStore
from leveret.testing.broker import RunningBroker, broker

LATE_S = 0.05  # time for the next request to arrive
Answer = tuple[int, dict[str, str], bytes]
# A request with an Expect header goes to uvicorn, even if the header has no effect.
TO_UVICORN = "Expect: nothing\r\n"
PLAIN = "Accept: application/json\r\nUser-Agent: test\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        yield found


@pytest.fixture
def peer(server: RunningBroker) -> Iterator["Peer"]:
    found = Peer(server)
    yield found
    found.close()


@pytest.fixture
def begun(peer: "Peer", monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list of the requests that are offered: True if it was taken as a quick call."""
    found: list[bool] = []
    for line in list(QUICK_CALLS):
        monkeypatch.setitem(QUICK_CALLS, line, noting(QUICK_CALLS[line], found))
    peer.ask(job())  # the first call opens the store
    found.clear()
    return found


def noting(call: QuickCall, found: list[bool]) -> QuickCall:
    def note(
        node: NodeView, token: str, query: bytes, body: bytes, respond: Respond, decline: Decline
    ) -> bool:
        is_begun = call(node, token, query, body, respond, decline)
        found.append(is_begun)
        return is_begun

    return note


class Peer:
    """A client with a token for the namespace `lane`."""

    def __init__(self, server: RunningBroker) -> None:
        self.token = server.node.jobs.sign(["lane"], "test", 3600)
        self._socket = socket.create_connection((server.host, server.http_port), 20)
        self._answers = self._socket.makefile("rb")

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def request(
        self,
        body: bytes,
        more: str = "",
        token: str | None = None,
        line: str = "POST /enqueue",
    ) -> bytes:
        login = f"Authorization: Bearer {self.token if token is None else token}\r\n"
        host = "" if "Host:" in more else "Host: x\r\n"
        head = f"{line} HTTP/1.1\r\n{host}{login}{PLAIN}{more}"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def ask(self, body: bytes, more: str = "", token: str | None = None) -> Answer:
        self.send(self.request(body, more, token))
        return self.answer()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self) -> Answer:
        status = int(self._answers.readline().split()[1])
        headers: dict[str, str] = {}
        while (line := self._answers.readline().decode().rstrip("\r\n")) != "":
            name, value = re.split(": ?", line.lower(), maxsplit=1)
            headers[name] = value
        headers.pop("date")
        return status, headers, self._answers.read(int(headers.get("content-length", 0)))


def job(topic: str = "t", namespace: str = "lane", **more: object) -> bytes:
    item = {"namespace": namespace, "topic": topic, "payload": b64encode(b"x").decode(), **more}
    return json.dumps([item]).encode()


@pytest.mark.parametrize(
    "body",
    [job(), job(priority=3, fair_key="f"), job(deliver_after="2100-01-01T00:00:00Z")],
    ids=["plain", "priority and fair key", "much too late"],
)
def test_good_and_refused_jobs_get_the_same_answer_as_from_uvicorn(
    peer: Peer, begun: list[bool], body: bytes
) -> None:
    quick, usual = peer.ask(body), peer.ask(body, TO_UVICORN)
    assert begun == [quick[0] == 200]
    if quick[0] == 200:
        quick, usual = with_ids_counted(quick), with_ids_counted(usual)
    assert quick == usual


def with_ids_counted(answer: Answer) -> Answer:
    status, headers, body = answer
    return status, headers, b"%d ids" % len(json.loads(body))


@pytest.mark.parametrize(
    "body", [b"nonsense", b"[]", job("t" * 300), job("amq.own"), job(namespace="other"), job(a=1)]
)
def test_bad_requests_are_declined_and_refused_as_by_uvicorn(
    peer: Peer, begun: list[bool], body: bytes
) -> None:
    quick, usual = peer.ask(body), peer.ask(body, TO_UVICORN)
    assert begun == [False]
    assert quick == usual
    assert quick[0] in (400, 403)


def test_large_bodies_are_quick_calls_if_the_store_begins_batches(
    peer: Peer, begun: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = (job(fair_key="f" * 100) + b" " * spaces for spaces in (0, BODY_BYTES_MAX))
    assert [peer.ask(body)[0] for body in (small, large)] == [200, 200]
    monkeypatch.setattr(EmbeddedStore, "begins_batches", False)
    assert [peer.ask(body)[0] for body in (small, large)] == [200, 200]
    assert begun == [True, True, True, False]


def test_a_token_that_is_wrong_is_refused_as_by_uvicorn(peer: Peer, begun: list[bool]) -> None:
    quick, usual = (peer.ask(job(), more, token="wrong") for more in ("", TO_UVICORN))
    assert begun == [False]
    assert quick == usual
    assert quick[0] == 401


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ("Origin: http://evil.example\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("X-Forwarded-For: 10.0.0.1\r\n", 200),
        ("Host: evil.example\r\n", 421),
    ],
)
def test_requests_of_browsers_and_proxies_are_no_quick_calls(
    peer: Peer, begun: list[bool], more: str, status: int
) -> None:
    assert peer.ask(job(), more)[0] == status
    assert begun == []


def test_a_node_with_an_alarm_refuses_quick_calls_as_others(
    server: RunningBroker, peer: Peer, begun: list[bool]
) -> None:
    alarms = server.node.front.alarms
    alarms.append("memory")
    try:
        quick, usual = peer.ask(job()), peer.ask(job(), TO_UVICORN)
    finally:
        alarms.remove("memory")
    assert begun == [True]
    assert quick == usual
    assert quick[0] == 503


@pytest.mark.parametrize("host", ["Host: x\r\n", "Host: evil.example\r\n"])
@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("GET /dequeue?namespace=lane&topic=none", b""),
        ("GET /dequeue?namespace=other&topic=none", b""),
        ("GET /dequeue?namespace=lane", b""),
        ("POST /dequeue?namespace=lane&topic=none", b"[]"),
        ("GET /enqueue", b""),
        ("POST /ack", b"[]"),
        ("POST /ack", b'{"namespace": "lane", "topic": "none", "id": 1}'),
        ("POST /nack", b'[{"namespace": "lane", "topic": "none", "id": 1}]'),
        ("POST /extend", b'{"namespace": "lane", "topic": "none", "id": 1, "lease": -1}'),
    ],
)
def test_other_calls_with_a_token_get_the_same_answer_as_from_uvicorn(
    peer: Peer, line: str, body: bytes, host: str
) -> None:
    answers = []
    for more in ("", TO_UVICORN):
        peer.send(peer.request(body, host + more, line=line))
        answers.append(peer.answer())
    assert answers[0] == answers[1]
    assert (answers[0][0] == 421) is ("evil" in host)


def take(peer: Peer, topic: str, *acked: dict[str, Any], query: str = "", more: str = "") -> Answer:
    """Ack jobs and take the next one."""
    line = f"POST /dequeue?namespace=lane&topic={topic}&limit=1{query}"
    peer.send(peer.request(json.dumps(acked).encode(), more, line=line))
    return peer.answer()


def handle(topic: str, answer: Answer, **more: object) -> dict[str, Any]:
    """Return the handle of the job that an answer has."""
    (found,) = json.loads(answer[2])["jobs"]
    handle = {"namespace": "lane", "topic": topic, "id": found["id"], "token": found["token"]}
    return {**handle, **more}


def test_an_ack_that_takes_the_next_job_is_a_quick_call(peer: Peer, begun: list[bool]) -> None:
    for _ in range(4):
        peer.ask(job("chain", fair_key="f"))
    begun.clear()
    first = take(peer, "chain")
    second = take(peer, "chain", handle("chain", first), query="&wait=1&lease=60")
    assert begun == [True, True]
    usual = take(peer, "chain", handle("chain", second), query="&lease=60", more=TO_UVICORN)
    shown = [{**json.loads(each[2])["jobs"][0], **VARYING} for each in (second, usual)]
    assert shown[0] == shown[1]
    assert [json.loads(each[2])["acked"] for each in (second, usual)] == [[{"outcome": "done"}]] * 2
    assert second[:2] == usual[:2]
    last = take(peer, "chain", handle("chain", usual), more=TO_UVICORN)
    quick = take(peer, "chain", handle("chain", last))
    assert begun[2:] == [True]
    assert quick[0] == 200
    assert quick[2] == b'{"acked":[{"outcome":"done"}],"jobs":[]}'


def test_a_dequeue_that_need_not_wait_is_a_quick_call(peer: Peer, begun: list[bool]) -> None:
    for _ in range(2):
        peer.ask(job("plain", fair_key="f"))
    begun.clear()
    line = "GET /dequeue?namespace=lane&topic=plain&limit=1&lease=60"
    answers = []
    for query, more in (("&wait=1", ""), ("", TO_UVICORN), ("", ""), ("&wait=0.001", "")):
        peer.send(peer.request(b"", more, line=line + query))
        answers.append(peer.answer())
    assert begun == [True, True, False]
    first, second = ([{**json.loads(each[2])[0], **VARYING}] for each in answers[:2])
    assert first == second
    assert answers[0][:2] == answers[1][:2]
    assert [each[2] for each in answers[2:]] == [b"[]", b"[]"]


VARYING = {"id": 0, "token": 0, "lease_expires_at": "", "deliver_after": "", "created_at": ""}


@pytest.mark.parametrize(
    ("query", "more", "status"),
    [
        ("", {"token": 1}, 207),
        ("", {"id": 1}, 207),
        ("", {"topic": "elsewhere"}, 207),
        ("", {"namespace": "other"}, 403),
        ("&wait=0.001", {}, 200),
        ("&wait=x", {}, 400),
        ("", {"lease": -1}, 400),
    ],
)
def test_acks_that_a_task_must_answer_are_declined_and_change_nothing(
    peer: Peer, begun: list[bool], query: str, more: dict[str, object], status: int
) -> None:
    topic = "task"
    peer.ask(job(topic))
    first = handle(topic, take(peer, topic))
    begun.clear()
    answer = take(peer, topic, {**first, **more}, query=query)
    assert begun == [False]
    assert answer[0] == status
    if answer[0] != 200:
        assert take(peer, topic, first)[0] == 200, "it was not acked before"


def test_a_call_that_is_declined_late_is_answered_by_a_task(
    server: RunningBroker, peer: Peer, begun: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "late"
    for _ in range(2):
        peer.ask(job(topic))
    done = handle(topic, take(peer, topic))
    monkeypatch.setattr(EmbeddedStore, "begin_take", decline_late)
    begun.clear()
    line = f"POST /dequeue?namespace=lane&topic={topic}&limit=1"
    peer.send(peer.request(json.dumps([done]).encode(), line=line))
    peer.send(peer.request(b"nonsense"))  # waits for the answer to the first request
    status, _, body = peer.answer()
    assert peer.answer()[0] == 400
    assert (status, json.loads(body)["acked"]) == (200, [{"outcome": "done"}])
    assert json.loads(body)["jobs"]
    assert begun == [True, False]
    assert server.node.view.metrics.requests.running == 0
    assert server.node.http is not None
    assert server.node.http.buffered_bytes() == 0


def decline_late(*arguments: Any, may_find_none: bool) -> bool:
    on_done = arguments[-1]
    asyncio.get_running_loop().call_later(LATE_S, on_done, None)
    return True


def test_a_topic_that_limits_its_leases_has_no_quick_takes(
    server: RunningBroker, peer: Peer, begun: list[bool]
) -> None:
    topic = "narrow"
    for _ in range(2):
        peer.ask(job(topic))
    settings = f"PUT /topics/lane/{topic}"
    peer.send(peer.request(b'{"concurrency_max": 1}', line=settings))
    assert peer.answer()[0] == 204
    begun.clear()
    first = take(peer, topic)
    assert take(peer, topic, handle(topic, first))[0] == 200
    assert begun == [False, False]


def test_requests_behind_a_quick_call_are_answered_in_order(peer: Peer, begun: list[bool]) -> None:
    """The second request may arrive while the first one waits for the disk."""
    for _ in range(5):
        peer.send(peer.request(job("line")))
        peer.send(peer.request(b"nonsense"))
        assert [peer.answer()[0] for _ in range(2)] == [200, 400]


def test_quick_calls_are_counted_and_leave_no_body_behind(
    server: RunningBroker, peer: Peer, begun: list[bool]
) -> None:
    requests = server.node.view.metrics.requests
    before = requests.counts.get(("POST", 200), 0)
    peer.ask(b"nonsense")
    peer.ask(job("counted"))  # a quick call leaves everything before it is answered
    assert begun == [False, True]
    assert requests.counts["POST", 200] == before + 1
    assert requests.running == 0
    assert server.node.http is not None
    assert server.node.http.buffered_bytes() == 0
