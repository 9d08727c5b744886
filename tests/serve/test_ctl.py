"""`leveret ctl` against a running broker: effects and output of the commands."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from typer.testing import CliRunner

from leveret.cli.app import make_app
from leveret.http.insight.trace import PLACES_MAX
from leveret.testing.broker import RunningBroker, broker

pytestmark = pytest.mark.compiled_only("the command line and the calls behind it have one form")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


def ctl(
    server: RunningBroker,
    *words: str,
    code: int = 0,
    text: str | None = None,
    env: dict[str, str] | None = None,
) -> str:
    """Return the output of a command, and check its exit code.

    It runs in this process, because a start takes half a second. With `env` it has its own process.
    """
    address = f"http://guest:guest@{server.host}:{server.http_port}"
    command = ["ctl", *words, "--url", address]
    if env is not None:
        done = subprocess.run(
            [sys.executable, "-m", "leveret", *command],
            capture_output=True, text=True, timeout=60, check=True, input=text, env=env,
        )  # fmt: skip
        return done.stdout
    result = CliRunner().invoke(make_app("ctl"), command, input=text, catch_exceptions=False)
    assert result.exit_code == code, result.stderr
    return result.stdout if code == 0 else result.stderr


def found(server: RunningBroker, *words: str) -> Any:
    return json.loads(ctl(server, *words, "--json"))


def test_objects_are_declared_listed_bound_and_deleted(server: RunningBroker) -> None:
    ctl(server, "declare", "queue", "orders", "--type", "quorum")
    ctl(server, "declare", "exchange", "shop", "--type", "topic")
    ctl(server, "bind", "shop", "orders", "-k", "order.#")
    assert found(server, "show", "queue", "orders")["type"] == "quorum"
    (binding,) = [b for b in found(server, "list", "bindings") if b["source"] == "shop"]
    assert binding["routing_key"] == "order.#"
    assert ctl(server, "route", "shop", "-k", "order.made") == "orders\n"
    assert ctl(server, "route", "shop", "-k", "other") == "no queue\n"
    ctl(server, "unbind", "shop", "orders", "-k", "order.#")
    assert not [b for b in found(server, "list", "bindings") if b["source"] == "shop"]
    ctl(server, "delete", "exchange", "shop")
    ctl(server, "delete", "queue", "orders")
    assert not [q for q in found(server, "list", "queues") if q["name"] == "orders"]


def test_messages_are_published_seen_found_taken_and_dropped(server: RunningBroker) -> None:
    ctl(server, "declare", "queue", "mail")
    ctl(server, "publish", '{"n": 1}', "-k", "mail", "-p", "message_id=m1", "--header", "tenant=a")
    ctl(server, "publish", "-k", "mail", text="second")
    assert [m["payload"] for m in found(server, "peek", "mail")] == ['{"n": 1}', "second"]
    (hit,) = found(server, "search", "mail", "--header", "tenant=a")
    assert hit["properties"]["message_id"] == "m1"
    assert f"ready in mail of vhost /, id {hit['id']}\n" in ctl(server, "trace", "m1")
    assert "no queue holds the message now;" in ctl(server, "trace", "m2", code=1)
    assert "`leveret ctl trace` shows the ids" in ctl(server, "explain", "mail", "m1", code=1)
    assert "consumes" in ctl(server, "explain", "mail")
    ctl(server, "pause", "mail")
    assert "paused" in ctl(server, "explain", "mail")
    ctl(server, "resume", "mail")
    ctl(server, "drop", "mail", "--id", hit["id"])
    assert found(server, "get", "mail", "--consume")[0]["payload"] == "second"
    assert "0 messages" in ctl(server, "purge", "mail")
    assert "no queue is bound" in ctl(server, "publish", "x", "-k", "nobody", code=1)


def test_trace_follows_its_cursor_to_the_end(server: RunningBroker) -> None:
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("copies")
        channel.confirm_delivery()
        for _ in range(PLACES_MAX + 1):
            channel.basic_publish("", "copies", b"", pika.BasicProperties(message_id="twin"))
    assert ctl(server, "trace", "twin").count("ready in copies") == PLACES_MAX + 1
    ctl(server, "delete", "queue", "copies")


def test_properties_that_look_like_numbers_are_text(server: RunningBroker) -> None:
    ctl(server, "declare", "queue", "numbers")
    ctl(server, "publish", "x", "-k", "numbers", "-p", "message_id=5", "-p", "expiration=600000",
        "-p", "priority=3")  # fmt: skip
    (hit,) = found(server, "search", "numbers", "--property", "message_id=5")
    wanted = {"message_id": "5", "expiration": "600000", "priority": 3}
    assert wanted.items() <= hit["properties"].items()
    ctl(server, "delete", "queue", "numbers")


def test_unacked_messages_name_their_holder(server: RunningBroker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(server.url))
    channel = connection.channel()
    channel.queue_declare("held")
    channel.basic_publish("", "held", b"x")
    channel.basic_get("held")
    (item,) = found(server, "unacked", "held")
    (shown,) = found(server, "list", "connections")
    assert item["holder"]["connection"] == shown["name"]
    said = ctl(server, "explain", "held", item["id"])
    assert f"\n  {shown['name']}, channel 1, user guest" in said
    ctl(server, "close-connection", shown["name"], "--reason", "enough")
    with pytest.raises(pika.exceptions.ConnectionClosed, match="enough"):
        connection.process_data_events(20)


def test_dead_letters_are_redriven_after_a_dry_run(server: RunningBroker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(server.url))
    channel = connection.channel()
    channel.queue_declare("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("work", arguments=arguments)
    for number in range(3):
        channel.basic_publish("", "work", b"%d" % number)
        got, _, _ = channel.basic_get("work")
        assert got is not None
        channel.basic_reject(got.delivery_tag, requeue=False)
    assert "3 messages match" in ctl(server, "redrive", "dead", "--dry-run")
    ended = found(server, "redrive", "dead")
    assert (ended["state"], ended["done"]) == ("done", 3)
    assert [m["payload"] for m in found(server, "peek", "work")] == ["0", "1", "2"]
    ctl(server, "copy", "work", "--to", "dead", "--limit", "1")
    assert "2 of" in ctl(server, "move", "work", "--to", "dead", "--limit", "2")
    assert len(found(server, "peek", "dead")) == 3
    assert {t["kind"] for t in found(server, "task", "list")} >= {"redrive", "copy", "move"}
    connection.close()


def test_users_permissions_policies_and_definitions(server: RunningBroker, tmp_path: Path) -> None:
    ctl(server, "declare", "vhost", "shop", "--description", "sales")
    ctl(server, "user", "set", "ann", "--tags", "monitoring", text="secret\n")
    ctl(server, "permission", "set", "ann", "--vhost", "shop", "--configure", "^$")
    (permission,) = [p for p in found(server, "list", "permissions") if p["user"] == "ann"]
    assert (permission["vhost"], permission["configure"]) == ("shop", "^$")
    ctl(server, "user", "tags", "ann", "administrator")
    assert found(server, "show", "user", "ann")["tags"] == ["administrator"]
    ctl(server, "policy", "set", "short", "^q", "max-length=10", "--apply-to", "queues")
    ctl(server, "limit", "set", "max-queues", "5", "--vhost", "shop")
    file = tmp_path / "definitions.json"
    ctl(server, "definitions", "export", str(file))
    kept = json.loads(file.read_text())
    assert [p["definition"] for p in kept["policies"]] == [{"max-length": 10}]
    ctl(server, "policy", "clear", "short")
    ctl(server, "user", "delete", "ann")
    ctl(server, "definitions", "import", str(file))
    assert [p["name"] for p in found(server, "list", "policies")] == ["short"]
    assert "ann" in ctl(server, "list", "users")
    ctl(server, "permission", "clear", "ann", "--vhost", "shop")
    ctl(server, "delete", "vhost", "shop")
    assert "shop" not in ctl(server, "list", "vhosts")


def test_lists_can_be_chosen_and_sorted(server: RunningBroker) -> None:
    for name in ("z-list", "a-list"):
        ctl(server, "declare", "queue", name)
    words = ("list", "queues", "--name", "-list", "--columns", "name", "--sort", "name")
    assert ctl(server, *words).split() == ["name", "a-list", "z-list"]
    assert ctl(server, *words, "--reverse").split() == ["name", "z-list", "a-list"]
    assert "unknown kind hares" in ctl(server, "list", "hares", code=2)


def test_what_does_not_exist_is_one_line(server: RunningBroker) -> None:
    said = ctl(server, "show", "queue", "none", code=1)
    assert said == "leveret ctl: no queue 'none' in vhost '/'\n"


def test_status_and_environment(server: RunningBroker) -> None:
    assert "health   ok" in ctl(server, "status")
    assert "heartbeat_s" in ctl(server, "environment")


def test_configuration_is_checked_and_shown(tmp_path: Path) -> None:
    file = tmp_path / "leveret.toml"
    file.write_text('heartbeat_s = 30\ndefault_pass = "hidden"\n')
    command = [sys.executable, "-m", "leveret", "config"]
    show = subprocess.run(
        [*command, "show", "--config", str(file)], capture_output=True, text=True, check=True
    )
    assert "heartbeat_s = 30" in show.stdout
    assert "hidden" not in show.stdout
    file.write_text("heartbeet_s = 30\n")
    check = subprocess.run(
        [*command, "check", "--config", str(file)], capture_output=True, text=True, check=False
    )
    assert check.returncode == 2
    assert "did you mean heartbeat_s?" in check.stderr


def test_names_that_a_terminal_cannot_show_are_escaped(server: RunningBroker) -> None:
    ctl(server, "declare", "queue", "hase-🐇")
    old = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    assert "hase-\\U0001f407" in ctl(server, "list", "queues", env=old)
    assert "hase-\\U0001f407" in ctl(server, "show", "queue", "hase-🐇", env=old)
    ctl(server, "delete", "queue", "hase-🐇")


def test_a_name_that_is_not_text_is_one_line(server: RunningBroker) -> None:
    said = ctl(server, "declare", "queue", os.fsdecode(b"q\xff"), code=1)
    assert said == "leveret ctl: 'q\\udcff' cannot be encoded as utf-8\n"


def test_an_address_that_is_none_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "leveret", "ctl", "list", "queues", "--url", "http://["],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.startswith("leveret ctl: http://[ is not a valid address: ")


def test_nobody_needs_to_read_what_a_command_prints(server: RunningBroker) -> None:
    address = f"http://guest:guest@{server.host}:{server.http_port}"
    words = ["-m", "leveret", "ctl", "list", "exchanges", "--url", address]
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, *words]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
