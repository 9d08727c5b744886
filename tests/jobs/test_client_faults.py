"""Both clients raise the right error when a server fails, and never enqueue a job twice."""

import asyncio
import inspect
import re
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from leveret.jobs import (
    AsyncClient,
    BadAnswerError,
    CallTimeoutError,
    Client,
    InvalidCallError,
    Job,
    NotAllowedError,
    NotAuthenticatedError,
    RateLimitError,
    UnknownJobError,
    UnreachableError,
)
from tests.jobs.scripted import (
    Act,
    answers,
    answers_and_closes,
    answers_byte_by_byte,
    closes,
    scripted,
    stalls,
)

LONG_S = 60.0  # a deadline that nobody is to reach
Ask = Callable[..., Any]  # what is asked of a client, by the name of the method


def by_thread(url: str, script: Callable[[Ask], Any], timeout_s: float, token: Any = "t") -> Any:
    with Client(url, token=token, namespace="n", timeout_s=timeout_s) as client:
        return script(lambda method, *args, **more: getattr(client, method)(*args, **more))


def by_loop(url: str, script: Callable[[Ask], Any], timeout_s: float, token: Any = "t") -> Any:
    """The same calls of the asynchronous client, each in the same loop."""
    with asyncio.Runner() as runner:

        async def made() -> AsyncClient:
            return AsyncClient(url, token=token, namespace="n", timeout_s=timeout_s)

        client = runner.run(made())

        def ask(method: str, *args: Any, **more: Any) -> Any:
            return runner.run(getattr(client, method)(*args, **more))

        try:
            return script(ask)
        finally:
            client.close()


@pytest.fixture(params=[by_thread, by_loop], ids=["Client", "AsyncClient"])
def asking(request: pytest.FixtureRequest) -> Any:
    return request.param


def outcome(asking: Any, acts: list[Act], script: Callable[[Ask], Any]) -> tuple[Any, list[bytes]]:
    """What the script returned, or the exception, and the requests that were sent."""
    with scripted(*acts) as server:
        try:
            found = asking(server.url, script, LONG_S)
        except Exception as fault:
            found = fault
        return found, server.seen


def test_a_connection_is_used_again(asking: Any) -> None:
    with scripted(*[answers(b"[1]")] * 3) as server:
        asking(server.url, lambda ask: [ask("enqueue", "t", b"x") for _ in range(3)], LONG_S)
        assert (server.connections, len(server.seen)) == (1, 3)


def test_an_answer_may_come_byte_by_byte(asking: Any) -> None:
    found, _ = outcome(asking, [answers_byte_by_byte(b"[12]")], lambda ask: ask("enqueue", "t", 1))
    assert found == 12


def test_a_connection_that_was_closed_while_idle_costs_no_job(asking: Any) -> None:
    """A job without a key is put in once, and yet put in."""

    closed = threading.Event()

    def script(ask: Ask) -> Any:
        first = ask("enqueue", "t", b"x")
        assert closed.wait(LONG_S)
        return first, ask("enqueue", "t", b"y")

    found, seen = outcome(asking, [answers_and_closes(b"[1]", closed), answers(b"[2]")], script)
    assert (found, len(seen)) == ((1, 2), 2)


def test_a_lost_answer_is_not_asked_for_again_where_that_could_double_a_job(asking: Any) -> None:
    found, seen = outcome(asking, [closes, answers(b"[1]")], lambda ask: ask("enqueue", "t", b"x"))
    assert isinstance(found, UnreachableError)
    assert found.was_sent
    assert len(seen) == 1


def test_a_lost_answer_is_asked_for_again_where_a_key_makes_that_safe(asking: Any) -> None:
    found, seen = outcome(
        asking,
        [closes, answers(b"[1]")],
        lambda ask: ask("enqueue", "t", b"x", idempotency_key="k"),
    )
    assert (found, len(seen)) == (1, 2)
    assert seen[0] == seen[1]


def test_no_call_outlasts_its_deadline(asking: Any) -> None:
    with scripted(stalls) as server:
        with pytest.raises(CallTimeoutError):
            asking(server.url, lambda ask: ask("stats"), 2.0)
        assert len(server.seen) == 1


def test_nobody_there_is_told_as_such(asking: Any) -> None:
    with scripted() as server:
        url = server.url
    with pytest.raises(UnreachableError) as raised:
        asking(url, lambda ask: ask("stats"), LONG_S)
    assert not raised.value.was_sent


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("400 Bad Request", InvalidCallError),
        ("401 Unauthorized", NotAuthenticatedError),
        ("403 Forbidden", NotAllowedError),
        ("413 Content Too Large", InvalidCallError),
    ],
)
def test_each_refusal_is_its_own_exception(asking: Any, status: str, kind: type) -> None:
    said = b'{"title": "no", "detail": "item 3: payload is missing"}'
    found, seen = outcome(asking, [answers(said, status)], lambda ask: ask("enqueue", "t", b""))
    assert type(found) is kind
    assert str(found) == "item 3: payload is missing"
    assert len(seen) == 1


def test_over_the_rate_it_waits_as_told_and_asks_again(asking: Any) -> None:
    late = answers(b"{}", "429 Too Many Requests", b"Retry-After: 0\r\n")
    found, seen = outcome(asking, [late, answers(b"[5]")], lambda ask: ask("enqueue", "t", b""))
    assert (found, len(seen)) == (5, 2)
    too_late = answers(b"{}", "429 Too Many Requests", b"Retry-After: 60\r\n")
    found, seen = outcome(asking, [too_late], lambda ask: ask("enqueue", "t", b""))
    assert isinstance(found, RateLimitError)
    assert found.retry_after_s == 60


@pytest.mark.parametrize("body", [b"<html>", b'{"a": 1}', b'["x"]'])
def test_an_answer_of_something_else_is_told_as_such(asking: Any, body: bytes) -> None:
    found, _ = outcome(asking, [answers(body)], lambda ask: ask("enqueue", "t", b""))
    assert isinstance(found, BadAnswerError)


@pytest.mark.parametrize(
    "body", [b"[]", b'[{"outcome": "odd"}]', b'[{"outcome": "done"}, {"outcome": "done"}]']
)
def test_an_answer_about_other_jobs_is_told_as_such(asking: Any, body: bytes) -> None:
    """A worker must not fall over what it can log and try again."""
    job = Job(id=1, token=2, payload=b"", lease_expires_at=datetime(2030, 1, 1, tzinfo=UTC))
    for script in (lambda ask: ask("ack_many", [job]), lambda ask: ask("extend_many", [job])):
        found, _ = outcome(asking, [answers(body)], script)
        assert isinstance(found, BadAnswerError)
    found, _ = outcome(asking, [answers(b"[1, 2]")], lambda ask: ask("enqueue", "t", b""))
    assert isinstance(found, BadAnswerError)


def test_a_time_without_a_zone_is_refused_before_anything_is_sent(asking: Any) -> None:
    moment = datetime(2030, 1, 1)  # noqa: DTZ001
    found, seen = outcome(asking, [], lambda ask: ask("enqueue", "t", 1, deliver_after=moment))
    assert isinstance(found, ValueError)
    assert seen == []


# Tokens that end


REFUSES = answers(b"{}", "401 Unauthorized")


class Source:
    """Gives one token after the other: t1, t2 …"""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        return f"t{self.asked}"


def tokens_sent(requests: list[bytes]) -> list[bytes]:
    return [found[1] for one in requests if (found := re.search(rb"Bearer (\S+)\r\n", one))]


def test_a_token_that_has_ended_is_renewed_and_kept(asking: Any) -> None:
    source = Source()
    with scripted(answers(b"[]"), REFUSES, answers(b"[]"), answers(b"[]")) as server:
        asking(server.url, lambda ask: [ask("dequeue", "topic") for _ in range(3)], LONG_S, source)
    assert tokens_sent(server.seen) == [b"t1", b"t1", b"t2", b"t2"]
    assert source.asked == 2


def test_a_call_is_sent_again_once_with_another_token_and_no_more(asking: Any) -> None:
    source = Source()
    with scripted(*[REFUSES] * 4) as server:
        for _ in range(2):
            with pytest.raises(NotAuthenticatedError):
                asking(server.url, lambda ask: ask("enqueue", "topic", b""), LONG_S, source)
    assert tokens_sent(server.seen) == [b"t1", b"t2", b"t3", b"t4"]


def test_a_source_that_fails_is_told_and_asked_again_by_the_next_call(asking: Any) -> None:
    failures = [OSError("the issuer is away")]

    def source() -> str:
        if failures:
            raise failures.pop()
        return "late"

    def script(ask: Ask) -> Any:
        with pytest.raises(NotAuthenticatedError, match="the issuer is away") as caught:
            ask("dequeue", "topic")
        assert caught.value.status == 0  # nobody was asked
        return ask("dequeue", "topic")

    with scripted(answers(b"[]")) as server:
        assert asking(server.url, script, LONG_S, source) == []
    assert tokens_sent(server.seen) == [b"late"]


def test_a_coroutine_function_gives_tokens_too() -> None:
    source = Source()

    async def given() -> str:
        await asyncio.sleep(0)
        return source()

    with scripted(REFUSES, answers(b"[]")) as server:
        assert by_loop(server.url, lambda ask: ask("dequeue", "topic"), LONG_S, given) == []
    assert tokens_sent(server.seen) == [b"t1", b"t2"]


def test_calls_that_are_refused_together_ask_for_one_token() -> None:
    source = Source()

    async def run(url: str) -> None:
        async with AsyncClient(url, token=source, namespace="n", timeout_s=LONG_S) as client:
            await asyncio.gather(*(client.dequeue("topic") for _ in range(5)))

    def refuses_the_first(peer: socket.socket) -> None:
        together.wait(LONG_S)
        REFUSES(peer)

    together = threading.Barrier(5)
    with scripted(*[refuses_the_first] * 5, *[answers(b"[]")] * 5) as server:
        asyncio.run(run(server.url))
    assert sorted(tokens_sent(server.seen)) == [b"t1"] * 5 + [b"t2"] * 5
    assert source.asked == 2


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> dict[str, str]:
        named = inspect.getmembers(kind, inspect.isfunction)
        return {
            name: str(inspect.signature(method)).replace("AsyncIterator", "Iterator")
            for name, method in named
            if not name.startswith("_")
        }

    assert methods(Client) == methods(AsyncClient)


@pytest.mark.parametrize("run", [by_thread, by_loop])
def test_an_ack_whose_answer_was_lost_is_done(run: Any) -> None:
    gone = answers(b'[{"outcome": "unknown"}]', "207 Multi-Status")
    end = datetime.fromtimestamp(0, UTC)
    job = Job(id=1, token=2, payload=b"", lease_expires_at=end, namespace="n", topic="t")
    with scripted(closes, gone, gone) as server:
        run(server.url, lambda ask: ask("ack", job), LONG_S)
        assert len(server.seen) == 2
        with pytest.raises(UnknownJobError):  # the first answer already says so
            run(server.url, lambda ask: ask("ack", job), LONG_S)
