"""Mistakes on the command line: one clear line, and an exit code other than 0."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.testing.broker import RunningBroker, broker

pytestmark = pytest.mark.compiled_only("the command line and the calls behind it have one form")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


def refused(*words: str, code: int = 1) -> str:
    """Run a command that fails; return its errors in one line."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    done = subprocess.run(
        [sys.executable, "-m", "leveret", *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
        env={**clean, "COLUMNS": "500"},
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stderr


def url(server: RunningBroker, login: str = "guest:guest") -> list[str]:
    return ["--url", f"http://{login}@{server.host}:{server.http_port}"]


def test_status_with_a_wrong_password_fails(server: RunningBroker) -> None:
    for login in (url(server, "guest:wrong"), [*url(server), "--password", "wrong"]):
        assert "Login failed; check --user and --password" in refused("ctl", "status", *login)


def test_perf_with_a_wrong_password_says_so(server: RunningBroker) -> None:
    uri = f"amqp://guest:wrong@{server.host}:{server.port}/"
    assert "ACCESS_REFUSED" in refused("perf", "--uri", uri, "--seconds", "1")


@pytest.mark.parametrize("words", [["explain"], ["peek"], ["show", "queue"]])
def test_missing_queue_is_named(server: RunningBroker, words: list[str]) -> None:
    error = refused("ctl", *words, "nosuch", *url(server))
    assert error == "leveret ctl: no queue 'nosuch' in vhost '/'\n"


def test_policy_that_is_refused_is_explained_in_plain_words(server: RunningBroker) -> None:
    for definition, words in (
        ("tttl=5", "'tttl' is not a policy setting"),
        ("message-ttl=soon", "'soon' is not a valid message TTL"),
    ):
        error = refused("ctl", "policy", "set", "p", ".*", definition, *url(server))
        assert words in error
        assert "<<" not in error


def test_missing_user_and_vhost_are_named(server: RunningBroker) -> None:
    assert "no user 'nosuch'" in refused("ctl", "show", "user", "nosuch", *url(server))
    wrong = ["ctl", "list", "queues", "--vhost", "nosuch", *url(server)]
    assert "no vhost 'nosuch'" in refused(*wrong)


def test_user_is_not_created_without_a_password(server: RunningBroker) -> None:
    error = refused("ctl", "user", "set", "nosuch", *url(server), code=2)
    assert "standard input has no password; give --new-password" in error
    assert "no user 'nosuch'" in refused("ctl", "show", "user", "nosuch", *url(server))


@pytest.mark.parametrize("option", ["--columns", "--sort"])
def test_unknown_column_is_refused(server: RunningBroker, option: str) -> None:
    error = refused("ctl", "list", "users", option, "nam", *url(server), code=2)
    assert "users have no column nam; did you mean name?" in error


def test_unknown_flag_of_serve_is_one_line_with_a_hint(tmp_path: Path) -> None:
    error = refused("serve", "--data", str(tmp_path / "data"), "--amqp-prot", "1", code=2)
    assert error == "leveret serve: no such option: --amqp-prot; did you mean --amqp-port?\n"


def test_jobs_without_a_token_say_how_to_get_one(server: RunningBroker) -> None:
    error = refused("jobs", "stats", *url(server))
    assert "--token" in error and "LEVERET_JOBS_TOKEN" in error and "--data" in error
