"""`leveret jobs` against a running node."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from leveret.cli.app import make_app
from leveret.jobs import Client, TopicSettings
from leveret.storage.disk import Disk
from leveret.testing.broker import RunningBroker, broker
from tests.jobs.scripted import answers, scripted
from tests.jobs.service import NAMESPACE, address, token

APP = make_app("jobs")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        yield found


@pytest.fixture(scope="module")
def client(server: RunningBroker) -> Iterator[Client]:
    with Client(address(server), token=token(server), namespace=NAMESPACE) as found:
        yield found


def jobs(server: RunningBroker, *words: str, code: int = 0, text: str | None = None) -> str:
    """Return the output of a command, and check its exit code."""
    shared = ["--url", address(server), "--token", token(server), "--namespace", NAMESPACE]
    done = CliRunner().invoke(APP, ["jobs", *words, *shared], input=text)
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def found(server: RunningBroker, *words: str) -> Any:
    return json.loads(jobs(server, *words, "--json"))


def test_a_job_is_put_in_taken_given_back_and_done(server: RunningBroker) -> None:
    id = jobs(server, "enqueue", "mail", '{"to": "ann"}', "-p", "3").strip()
    assert jobs(server, "enqueue", "mail", "x", "--key", "k") == jobs(
        server, "enqueue", "mail", "x", "--key", "k"
    )
    shown = found(server, "dequeue", "mail", "--limit", "2", "--lease", "60")
    assert [job["payload"] for job in shown] == ["x", '{"to": "ann"}']
    assert str(shown[1]["id"]) == id
    lease = ("--lease-token", str(shown[1]["token"]))
    jobs(server, "nack", "mail", id, *lease, "--error", "no address", "--delay", "0")
    assert "lease is over" in jobs(server, "ack", "mail", id, *lease, code=1)
    (again,) = found(server, "dequeue", "mail", "--wait", "60", "--ack")
    assert (again["id"], again["attempt"]) == (int(id), 2)
    assert jobs(server, "dequeue", "mail") == "no job is ready\n"


def test_lines_become_jobs_and_plans_are_changed(server: RunningBroker, client: Client) -> None:
    ids = found_lines(
        jobs(server, "enqueue", "lines", "--lines", "--delay", "3600", text="a\nb\nc")
    )
    (stats,) = [row for row in found(server, "stats") if row["topic"] == "lines"]
    assert (stats["scheduled"], stats["ready"]) == (3, 0)
    assert jobs(server, "cancel", "lines", ids[0]) == "1 job is cancelled\n"
    assert jobs(server, "deliver-now", "lines", ids[1], ids[2]) == "2 jobs are ready\n"
    assert "no such job" in jobs(server, "cancel", "lines", ids[0], code=1)
    assert [job.payload for job in client.dequeue("lines", limit=9)] == [b"b", b"c"]


def found_lines(text: str) -> list[str]:
    return text.split()


def test_dead_jobs_are_shown_redriven_and_deleted(server: RunningBroker, client: Client) -> None:
    client.set_settings("dying", TopicSettings(retries_max=0))
    ids = [client.enqueue("dying", b"x") for _ in range(3)]
    for job in client.dequeue("dying", limit=3):
        client.nack(job, "no luck\nat line 3")
    shown = found(server, "dead", "dying")
    assert [(job["id"], job["error"]) for job in shown] == [(id, "no luck") for id in ids]
    assert str(ids[0]) in jobs(server, "dead", "dying")
    assert jobs(server, "redrive", "dying", str(ids[1])) == "1 job is ready again\n"
    assert jobs(server, "dead", "dying", "--delete", str(ids[0])) == "1 dead job is deleted\n"
    assert found(server, "redrive", "dying") == {"redriven": 1}
    assert found(server, "dead", "dying", "--delete-all") == {"deleted": 0}


@pytest.mark.parametrize(
    "words",
    [
        ("enqueue", "wrong", "x", "--delay", "-5"),
        ("enqueue", "wrong", "x", "--delay", "nan"),
        ("enqueue", "wrong", "x", "--delay", "1e300"),
        ("enqueue", "wrong", "x", "--file", "payload.json"),
        ("dead", "wrong", "--delete", "5", "--delete-all"),
        ("top", "--interval", "-1"),
        ("top", "--interval", "nan"),
        ("top", "--count", "-1"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    server: RunningBroker, words: tuple[str, ...]
) -> None:
    assert "Error: " in jobs(server, *words, code=2)
    assert [row for row in found(server, "stats") if row["topic"] == "wrong"] == []


@pytest.mark.parametrize("seconds", ["-5", "nan", "inf"])
def test_durations_that_cannot_be_meant_are_refused(server: RunningBroker, seconds: str) -> None:
    assert "wait must be from 0 to 60 seconds" in jobs(
        server, "dequeue", "wrong", "--wait", seconds, code=1
    )
    lease = ("--lease-token", "5", "--delay", seconds)
    assert "delay must be from 0" in jobs(server, "nack", "wrong", "5", *lease, code=1)


@pytest.mark.parametrize("namespace", ["", "a\nb", "x" * 201])
def test_a_token_for_a_namespace_that_cannot_exist_is_refused(namespace: str) -> None:
    words = ["jobs", "token", "--secret", "x" * 32, "-n", namespace]
    done = CliRunner().invoke(APP, words)
    assert done.exit_code == 2
    assert "printable" in done.stderr


def test_top_tells_why_jobs_are_not_counted() -> None:
    why = "shard 1 (pg1/jobs) does not answer: [Errno 111] Connection refused"
    unknown = dict.fromkeys(("ready", "scheduled", "leased", "dead", "oldest_ready_ms"))
    counts = dict.fromkeys(("enqueued", "handed_out", "acked", "failed", "expired"), 0)
    body = [{"namespace": NAMESPACE, "topic": "t", "missing": why} | unknown | counts]
    with scripted(answers(json.dumps(body).encode())) as service:
        words = ["jobs", "top", "--count", "1", "--url", service.url, "--token", "x"]
        done = CliRunner().invoke(APP, [*words, "-n", NAMESPACE])
    assert done.exit_code == 0, done.output
    assert f"not counted: {why}" in done.stdout


def test_top_ends_if_the_token_is_refused(server: RunningBroker) -> None:
    words = ["jobs", "top", "--count", "2", "--url", address(server), "--token", "x"]
    done = CliRunner().invoke(APP, [*words, "-n", NAMESPACE])
    assert done.exit_code == 1
    assert "token" in done.stderr


def test_top_looks_once_without_a_terminal(server: RunningBroker, client: Client) -> None:
    client.enqueue("once", b"x")
    shown = jobs(server, "top")
    assert "once" in shown
    assert shown.endswith("\n")


def test_top_shows_rates_between_two_looks(server: RunningBroker, client: Client) -> None:
    client.enqueue("busy", b"x")
    shown = jobs(server, "top", "--count", "2", "--interval", "0.1")
    assert "in/s" in shown
    assert "busy" in shown
    (row,) = [row for row in found(server, "top") if row["topic"] == "busy"]
    assert (row["ready"], row["in/s"]) == (1, 0.0)


def test_the_data_directory_of_a_node_stands_for_a_token(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        words = ["stats", "--url", address(server), "--all", "--json"]
        command = [sys.executable, "-m", "leveret", "jobs", *words]
        done = subprocess.run(
            [*command, "--data", str(tmp_path)], capture_output=True, text=True, check=True
        )
        assert json.loads(done.stdout) == []
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        mistyped = str(tmp_path / "elsewhere")
        nowhere = subprocess.run(
            [*command, "--data", mistyped], capture_output=True, text=True, check=False
        )
    assert refused.returncode == nowhere.returncode == 1
    assert refused.stderr.startswith("leveret jobs: a token is needed: give --token or set ")
    assert f"{mistyped} is not the data directory of a node" in nowhere.stderr


def test_no_service_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "leveret", "jobs", "stats", "--url", "http://127.0.0.1:1"]
    command += ["--token", "any"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "leveret jobs: http://127.0.0.1:1: Connection refused\n"


@pytest.mark.parametrize(
    ("url", "token", "reason"),
    [
        ("ftp://127.0.0.1:1", "any", "'ftp://127.0.0.1:1' is not an http:// or https:// address"),
        ("http://127.0.0.1:abc", "any", "Port could not be cast to integer value as 'abc'"),
        ("http://127.0.0.1:1", "two\nlines", "a token or a header has characters that no header"),
    ],
)
def test_an_address_or_token_that_cannot_be_used_is_one_line(
    url: str, token: str, reason: str
) -> None:
    done = CliRunner().invoke(APP, ["jobs", "stats", "--url", url, "--token", token])
    assert done.exit_code == 1
    assert done.stderr.startswith("leveret jobs: ") and done.stderr.count("\n") == 1
    assert reason in done.stderr


def test_an_address_without_a_jobs_service_does_not_pass_for_a_job_that_is_gone(
    server: RunningBroker,
) -> None:
    elsewhere = f"{address(server)}/elsewhere"
    options = ["--url", elsewhere, "--token", token(server)]
    for words in (["job", "mail", "5"], ["ack", "mail", "5", "--lease-token", "7"]):
        done = CliRunner().invoke(APP, ["jobs", *words, *options])
        assert done.exit_code == 1
        assert "there is no jobs service at this address" in done.stderr


def test_operators_set_topics_and_schedules_and_look_at_one_job(tmp_path: Path) -> None:
    secret = "a secret of the nodes that is long enough"
    with broker(http=True, disk=Disk(tmp_path), jobs_token_secret=secret) as server:

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            command = ["jobs", *words, "--url", address(server), "--json"]
            done = CliRunner().invoke(APP, command, env={"LEVERET_JOBS_TOKEN_SECRET": secret})
            return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)

        (id,) = json.loads(run("enqueue", "refund", "hare").stdout)
        (job,) = json.loads(run("job", "refund", str(id)).stdout)
        assert (job["id"], job["state"], job["payload"]) == (id, "ready", "hare")
        run("topic", "refund", "--retries-max", "3")
        (settings,) = json.loads(run("topic", "refund", "--lease", "7").stdout)
        assert (settings["retries_max"], settings["lease_s"]) == (3, 7.0)
        assert run("schedule", "nightly", "refund", "0 3 * * *").returncode == 0
        (nightly,) = json.loads(run("schedules").stdout)
        assert nightly["cron"] == "0 3 * * *"
        assert nightly["next"].endswith("T03:00:00+00:00")
        assert run("unschedule", "nightly").returncode == 0
        assert json.loads(run("schedules").stdout) == []
        refused = run("dequeue", "refund", "--lease", "1000000")
        assert "lease must be from 0.1 to 43200 seconds, not 1000000" in refused.stderr
        refused = run("topic", "refund", "--lease", "0.01")
        assert "lease_s must be from 0.1 to 43200 seconds, not 0.01" in refused.stderr
