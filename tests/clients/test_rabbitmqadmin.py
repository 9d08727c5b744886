"""rabbitmqadmin, the script of RabbitMQ's management plugin: every command for every kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from leveret.testing.broker import RunningBroker, broker
from tests.clients import rabbitmqadmin
from tests.clients.tools import give_up

pytestmark = pytest.mark.compiled_only("what answers HTTP has one form, and has tests in both")

WAIT_S = 60
Run = Callable[..., str]


@pytest.fixture(scope="module")
def script() -> Path:
    try:
        return rabbitmqadmin.find()
    except rabbitmqadmin.UnavailableError as fault:
        give_up(str(fault))
        raise


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


@pytest.fixture(scope="module")
def run(script: Path, server: RunningBroker) -> Run:
    """Runs the script; what it printed. Other than 0 is a failure, unless that is wanted."""

    def admin(*arguments: str, ok: bool = True, stdin: str = "") -> str:
        where = ["-H", server.host, "-P", str(server.http_port)]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(script), *where, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
            env={**os.environ, "HOME": "/nonexistent"},
        )
        assert (done.returncode == 0) == ok, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    return admin


def listed(run: Run, kind: str, *more: str) -> Any:
    """A list as JSON."""
    return json.loads(run("-f", "raw_json", *more, "list", kind))


@pytest.fixture
def connection(server: RunningBroker) -> Iterator[pika.BlockingConnection]:
    made = pika.BlockingConnection(pika.URLParameters(server.url))
    yield made
    if made.is_open:
        made.close()


def test_show_overview(run: Run) -> None:
    table = run("show", "overview")
    assert "rabbitmq_version" in table and "4.3.0" in table
    assert "cluster_name" in run("show", "overview", "cluster_name", "queue_totals.messages")


@pytest.mark.parametrize(
    "kind",
    [
        "connections",
        "channels",
        "consumers",
        "exchanges",
        "queues",
        "bindings",
        "users",
        "vhosts",
        "permissions",
        "nodes",
        "parameters",
        "policies",
        "operator_policies",
        "vhost_limits",
    ],
)
def test_every_kind_of_object_is_listed(
    run: Run, kind: str, connection: pika.BlockingConnection
) -> None:
    channel = connection.channel()
    channel.queue_declare("listed", exclusive=True)
    channel.basic_consume("listed", lambda *_: None)
    run("list", kind)


@pytest.mark.parametrize("form", ["long", "tsv", "kvp", "bash", "raw_json", "pretty_json"])
def test_list_in_every_form(run: Run, form: str) -> None:
    assert "amq.topic" in run("-f", form, "list", "exchanges")


def test_list_with_columns_sort_and_vhost(run: Run) -> None:
    run("declare", "queue", "name=sort.b")
    run("declare", "queue", "name=sort.a")
    run("publish", "routing_key=sort.b", "payload=x")
    names = [q["name"] for q in listed(run, "queues", "-S", "messages", "-R", "-V", "/")]
    assert names.index("sort.b") < names.index("sort.a")
    assert "sort.b" in run("list", "queues", "name", "messages", "message_stats.publish")
    for name in ("sort.a", "sort.b"):
        run("delete", "queue", f"name={name}")


def test_queue_is_declared_refused_and_deleted(run: Run) -> None:
    assert "declared" in run("declare", "queue", "name=q", "durable=true", "auto_delete=false")
    run("declare", "queue", "name=typed", "queue_type=quorum", 'arguments={"x-max-length": 5}')
    kinds = {queue["name"]: queue["type"] for queue in listed(run, "queues")}
    assert (kinds["q"], kinds["typed"]) == ("classic", "quorum")
    refused = run("declare", "queue", "name=q", "durable=false", ok=False)
    assert "inequivalent arg 'durable'" in refused
    assert "deleted" in run("delete", "queue", "name=q")
    run("delete", "queue", "name=typed")
    assert "Not found" in run("delete", "queue", "name=q", ok=False)


def test_exchange_and_binding(run: Run) -> None:
    run("declare", "exchange", "name=x", "type=headers", "durable=true", "internal=false")
    run("declare", "exchange", "name=y", "type=fanout")
    run("declare", "queue", "name=bound")
    run("declare", "binding", "source=x", "destination=bound", 'arguments={"a": 1}')
    run("declare", "binding", "source=x", "destination=bound", "routing_key=k")
    run("declare", "binding", "source=x", "destination=y", "destination_type=exchange")
    bound = [b for b in listed(run, "bindings", "-V", "/") if b["source"] == "x"]
    assert sorted(b["destination"] for b in bound) == ["bound", "bound", "y"]
    for binding in bound:
        run(
            "delete",
            "binding",
            "source=x",
            f"destination_type={binding['destination_type']}",
            f"destination={binding['destination']}",
            f"properties_key={binding['properties_key']}",
        )
    assert not [b for b in listed(run, "bindings") if b["source"] == "x"]
    run("delete", "exchange", "name=x")
    run("delete", "exchange", "name=y")
    run("delete", "queue", "name=bound")


def test_publish_get_and_purge(run: Run, tmp_path: Path) -> None:
    run("declare", "queue", "name=box")
    published = run(
        "publish", "routing_key=box", "payload=hello", 'properties={"delivery_mode": 2}'
    )
    assert published.strip() == "Message published"
    assert "NOT routed" in run("publish", "routing_key=nowhere", "payload=x")
    run("publish", "exchange=amq.default", "routing_key=box", stdin="from stdin")
    table = run("get", "queue=box", "count=5")
    assert "hello" in table and "from stdin" in table
    file = tmp_path / "payload"
    run("get", "queue=box", "ackmode=ack_requeue_false", f"payload_file={file}")
    assert file.read_text() == "hello"
    run("get", "queue=box", "ackmode=reject_requeue_true", "encoding=base64")
    assert "purged" in run("purge", "queue", "name=box")
    assert "No items" in run("get", "queue=box")
    run("delete", "queue", "name=box")


def test_close_connection(run: Run, connection: pika.BlockingConnection) -> None:
    (name,) = [c["name"] for c in listed(run, "connections")]
    assert "closed" in run("close", "connection", f"name={name}")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(WAIT_S)
    assert closed.value.reply_code == 320
    assert "Not found" in run("close", "connection", "name=none", ok=False)


def test_vhost_user_and_permission(run: Run) -> None:
    run("declare", "vhost", "name=warren", "tracing=false")
    assert "warren" in run("list", "vhosts")
    run("declare", "user", "name=bunny", "password=secret", "tags=management")
    run("declare", "user", "name=hashed", "password_hash=", "tags=")
    run("declare", "permission", "vhost=warren", "user=bunny", "configure=.*", "write=", "read=.*")
    assert {"vhost": "warren", "user": "bunny", "configure": ".*", "write": "", "read": ".*"} in (
        listed(run, "permissions")
    )
    as_bunny = ["-u", "bunny", "-p", "secret", "-V", "warren"]
    run(*as_bunny, "declare", "queue", "name=q")
    refused = run(*as_bunny, "publish", "routing_key=q", "payload=x", ok=False)
    assert "Access refused" in refused
    assert [q["name"] for q in listed(run, "queues", *as_bunny)] == ["q"]
    run("delete", "permission", "vhost=warren", "user=bunny")
    run("delete", "user", "name=bunny")
    run("delete", "user", "name=hashed")
    run("delete", "vhost", "name=warren")
    assert "warren" not in run("list", "vhosts")


def test_policy_operator_policy_parameter_and_limit(run: Run) -> None:
    run("declare", "queue", "name=ruled")
    definition = 'definition={"max-length": 3}'
    run("declare", "policy", "name=p", "pattern=^ruled$", definition, "priority=1")
    run("declare", "operator_policy", "name=o", "pattern=^ruled$", definition, "apply-to=queues")
    assert listed(run, "policies")[0]["definition"] == {"max-length": 3}
    assert listed(run, "operator_policies")[0]["name"] == "o"
    (ruled,) = [q for q in listed(run, "queues") if q["name"] == "ruled"]
    assert (ruled["policy"], ruled["operator_policy"]) == ("p", "o")
    assert ruled["effective_policy_definition"] == {"max-length": 3}
    run("delete", "policy", "name=p")
    run("delete", "operator_policy", "name=o")
    run("declare", "vhost_limit", "vhost=/", "name=max-queues", "value=1000")
    assert "max-queues" in run("list", "vhost_limits")
    run("delete", "vhost_limit", "vhost=/", "name=max-queues")
    run("delete", "queue", "name=ruled")


def test_parameter_is_declared_listed_and_deleted(run: Run) -> None:
    value = 'value={"src-uri":"amqp://","src-queue":"a","dest-uri":"amqp://","dest-queue":"b"}'
    run("declare", "parameter", "component=shovel", "name=move", value)
    assert "move" in run("list", "parameters")
    run("delete", "parameter", "component=shovel", "name=move")
    assert "move" not in run("list", "parameters")


def test_export_and_import(run: Run, tmp_path: Path) -> None:
    run("declare", "queue", "name=kept", "durable=true")
    run("declare", "exchange", "name=kept", "type=topic")
    run("declare", "binding", "source=kept", "destination=kept", "routing_key=a.#")
    file = tmp_path / "definitions.json"
    assert "Exported" in run("export", str(file))
    exported = json.loads(file.read_text())
    assert "kept" in [q["name"] for q in exported["queues"]]
    run("delete", "queue", "name=kept")
    run("delete", "exchange", "name=kept")
    assert "Uploaded" in run("import", str(file))
    assert [b["routing_key"] for b in listed(run, "bindings") if b["source"]] == ["a.#"]
    run("-V", "/", "export", str(file))
    run("-V", "/", "import", str(file))
    run("delete", "queue", "name=kept")
    run("delete", "exchange", "name=kept")
