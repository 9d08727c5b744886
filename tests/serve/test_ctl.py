"""`leveret ctl` against a running broker: commands do what they say, and say what they do."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from leveret.testing.broker import BrokerUrl, broker

pytestmark = pytest.mark.compiled_only("the command line and the calls behind it have one form")


@pytest.fixture(scope="module")
def url() -> Iterator[BrokerUrl]:
    with broker(http=True) as url:
        yield url


def ctl(
    url: BrokerUrl,
    *words: str,
    code: int = 0,
    text: str | None = None,
    env: dict[str, str] | None = None,
) -> str:
    """What a command printed; its exit code is as expected."""
    address = f"http://guest:guest@{url.host}:{url.http_port}"
    command = [sys.executable, "-m", "leveret", "ctl", *words, "--url", address]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, input=text, env=env
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def found(url: BrokerUrl, *words: str) -> Any:
    return json.loads(ctl(url, *words, "--json"))


def test_objects_are_declared_listed_bound_and_deleted(url: BrokerUrl) -> None:
    ctl(url, "declare", "queue", "orders", "--type", "quorum")
    ctl(url, "declare", "exchange", "shop", "--type", "topic")
    ctl(url, "bind", "shop", "orders", "-k", "order.#")
    assert found(url, "show", "queue", "orders")["type"] == "quorum"
    (binding,) = [b for b in found(url, "list", "bindings") if b["source"] == "shop"]
    assert binding["routing_key"] == "order.#"
    assert ctl(url, "route", "shop", "-k", "order.made") == "orders\n"
    assert ctl(url, "route", "shop", "-k", "other") == "no queue\n"
    ctl(url, "unbind", "shop", "orders", "-k", "order.#")
    assert not [b for b in found(url, "list", "bindings") if b["source"] == "shop"]
    ctl(url, "delete", "exchange", "shop")
    ctl(url, "delete", "queue", "orders")
    assert not [q for q in found(url, "list", "queues") if q["name"] == "orders"]


def test_messages_are_published_seen_found_taken_and_dropped(url: BrokerUrl) -> None:
    ctl(url, "declare", "queue", "mail")
    ctl(url, "publish", '{"n": 1}', "-k", "mail", "-p", "message_id=m1", "--header", "tenant=a")
    ctl(url, "publish", "-k", "mail", text="second")
    assert [m["payload"] for m in found(url, "peek", "mail")] == ['{"n": 1}', "second"]
    (hit,) = found(url, "search", "mail", "--header", "tenant=a")
    assert hit["properties"]["message_id"] == "m1"
    assert "ready in mail" in ctl(url, "trace", "m1")
    assert "consumes" in ctl(url, "explain", "mail")
    ctl(url, "pause", "mail")
    assert "paused" in ctl(url, "explain", "mail")
    ctl(url, "resume", "mail")
    ctl(url, "drop", "mail", "--id", hit["id"])
    assert found(url, "get", "mail", "--consume")[0]["payload"] == "second"
    assert "0 messages" in ctl(url, "purge", "mail")
    assert "no queue is bound" in ctl(url, "publish", "x", "-k", "nobody", code=1)


def test_unacked_messages_name_their_holder(url: BrokerUrl) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare("held")
    channel.basic_publish("", "held", b"x")
    channel.basic_get("held")
    (item,) = found(url, "unacked", "held")
    (shown,) = found(url, "list", "connections")
    assert item["holder"]["connection"] == shown["name"]
    ctl(url, "close-connection", shown["name"], "--reason", "enough")
    with pytest.raises(pika.exceptions.ConnectionClosed, match="enough"):
        connection.process_data_events(20)


def test_dead_letters_are_redriven_after_a_dry_run(url: BrokerUrl) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("work", arguments=arguments)
    for number in range(3):
        channel.basic_publish("", "work", b"%d" % number)
        got, _, _ = channel.basic_get("work")
        assert got is not None
        channel.basic_reject(got.delivery_tag, requeue=False)
    assert "3 messages match" in ctl(url, "redrive", "dead", "--dry-run")
    ended = found(url, "redrive", "dead")
    assert (ended["state"], ended["done"]) == ("done", 3)
    assert [m["payload"] for m in found(url, "peek", "work")] == ["0", "1", "2"]
    ctl(url, "copy", "work", "--to", "dead", "--limit", "1")
    assert "2 of" in ctl(url, "move", "work", "--to", "dead", "--limit", "2")
    assert len(found(url, "peek", "dead")) == 3
    assert {t["kind"] for t in found(url, "task", "list")} >= {"redrive", "copy", "move"}
    connection.close()


def test_users_permissions_policies_and_definitions(url: BrokerUrl, tmp_path: Path) -> None:
    ctl(url, "declare", "vhost", "shop", "--description", "sales")
    ctl(url, "user", "set", "ann", "--tags", "monitoring", text="secret\n")
    ctl(url, "permission", "set", "ann", "--vhost", "shop", "--configure", "^$")
    (permission,) = [p for p in found(url, "list", "permissions") if p["user"] == "ann"]
    assert (permission["vhost"], permission["configure"]) == ("shop", "^$")
    ctl(url, "user", "tags", "ann", "administrator")
    assert found(url, "show", "user", "ann")["tags"] == ["administrator"]
    ctl(url, "policy", "set", "short", "^q", "max-length=10", "--apply-to", "queues")
    ctl(url, "limit", "set", "max-queues", "5", "--vhost", "shop")
    file = tmp_path / "definitions.json"
    ctl(url, "definitions", "export", str(file))
    kept = json.loads(file.read_text())
    assert [p["definition"] for p in kept["policies"]] == [{"max-length": 10}]
    ctl(url, "policy", "clear", "short")
    ctl(url, "user", "delete", "ann")
    ctl(url, "definitions", "import", str(file))
    assert [p["name"] for p in found(url, "list", "policies")] == ["short"]
    assert "ann" in ctl(url, "list", "users")
    ctl(url, "permission", "clear", "ann", "--vhost", "shop")
    ctl(url, "delete", "vhost", "shop")
    assert "shop" not in ctl(url, "list", "vhosts")


def test_lists_can_be_chosen_and_sorted(url: BrokerUrl) -> None:
    for name in ("z-list", "a-list"):
        ctl(url, "declare", "queue", name)
    words = ("list", "queues", "--name", "-list", "--columns", "name", "--sort", "name")
    assert ctl(url, *words).split() == ["name", "a-list", "z-list"]
    assert ctl(url, *words, "--reverse").split() == ["name", "z-list", "a-list"]
    assert "unknown kind hares" in ctl(url, "list", "hares", code=2)


def test_what_does_not_exist_is_one_line(url: BrokerUrl) -> None:
    said = ctl(url, "show", "queue", "none", code=1)
    assert said == "leveret ctl: the broker refuses: Not Found: /api/queues/%2F/none\n"


def test_status_and_environment(url: BrokerUrl) -> None:
    assert "health   ok" in ctl(url, "status")
    assert "heartbeat_s" in ctl(url, "environment")


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


def test_names_that_a_terminal_cannot_show_are_escaped(url: BrokerUrl) -> None:
    ctl(url, "declare", "queue", "hase-🐇")
    old = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    assert "hase-\\U0001f407" in ctl(url, "list", "queues", env=old)
    assert "hase-\\U0001f407" in ctl(url, "show", "queue", "hase-🐇", env=old)
    ctl(url, "delete", "queue", "hase-🐇")


def test_a_name_that_is_not_text_is_one_line(url: BrokerUrl) -> None:
    said = ctl(url, "declare", "queue", os.fsdecode(b"q\xff"), code=1)
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


def test_nobody_needs_to_read_what_a_command_prints(url: BrokerUrl) -> None:
    address = f"http://guest:guest@{url.host}:{url.http_port}"
    words = ["-m", "leveret", "ctl", "list", "exchanges", "--url", address]
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, *words]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
