"""Every AMQP operation with each permission that it needs missing, and with just those it needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask

Channel = Any
Need = tuple[str, str, str]  # permission, kind, name

HASH = "AAAAALEkKvUBGEzMSFzin0zK97z+wnfsndrUYKOF2RUry1wo"  # of "pw"
KINDS = ("configure", "write", "read")


@dataclass(frozen=True)
class Case:
    """An operation, what it needs, and what must be there first."""

    name: str
    do: Callable[[Channel], object]
    needs: tuple[Need, ...] = ()


def publish(channel: Channel, exchange: str, key: str) -> None:
    channel.confirm_delivery()
    channel.basic_publish(exchange, key, b"")


def declare_dead_lettering(channel: Channel) -> None:
    channel.queue_declare("new", arguments={"x-dead-letter-exchange": "dlx"})


def declare_alternate(channel: Channel) -> None:
    channel.exchange_declare("newx", arguments={"alternate-exchange": "aex"})


def transaction(channel: Channel) -> None:
    channel.tx_select()
    channel.tx_commit()


CONFIGURE_Q = ("configure", "queue", "q")
WRITE_Q = ("write", "queue", "q")
READ_Q = ("read", "queue", "q")
READ_X = ("read", "exchange", "x")

CASES = (
    Case("qos", lambda c: c.basic_qos(prefetch_count=1)),
    Case("confirm", lambda c: c.confirm_delivery()),
    Case("tx", transaction),
    Case("recover", lambda c: c.basic_recover(requeue=True)),
    Case("queue.declare", lambda c: c.queue_declare("q"), (CONFIGURE_Q,)),
    Case("queue.declare new", lambda c: c.queue_declare("new"), (("configure", "queue", "new"),)),
    Case(
        "queue.declare dead-lettering",
        declare_dead_lettering,
        (
            ("configure", "queue", "new"),
            ("read", "queue", "new"),
            ("write", "exchange", "dlx"),
        ),
    ),
    Case("queue.delete", lambda c: c.queue_delete("q"), (CONFIGURE_Q,)),
    Case("queue.delete missing", lambda c: c.queue_delete("m"), (("configure", "queue", "m"),)),
    Case("queue.purge", lambda c: c.queue_purge("q"), (READ_Q,)),
    Case("queue.bind", lambda c: c.queue_bind("q", "x", "k"), (WRITE_Q, READ_X)),
    Case("queue.unbind", lambda c: c.queue_unbind("q", "x", "k"), (WRITE_Q, READ_X)),
    Case("consume", lambda c: c.basic_consume("q", print), (READ_Q,)),
    Case("get", lambda c: c.basic_get("q"), (READ_Q,)),
    Case("publish", lambda c: publish(c, "x", "k"), (("write", "exchange", "x"),)),
    Case("publish default", lambda c: publish(c, "", "q"), (("write", "exchange", "amq.default"),)),
    Case("exchange.declare", lambda c: c.exchange_declare("x"), (("configure", "exchange", "x"),)),
    Case(
        "exchange.declare alternate",
        declare_alternate,
        (
            ("configure", "exchange", "newx"),
            ("read", "exchange", "newx"),
            ("write", "exchange", "aex"),
        ),
    ),
    Case("exchange.delete", lambda c: c.exchange_delete("x"), (("configure", "exchange", "x"),)),
    Case(
        "exchange.bind",
        lambda c: c.exchange_bind("y", "x", "k"),
        (("write", "exchange", "y"), READ_X),
    ),
    Case(
        "exchange.unbind",
        lambda c: c.exchange_unbind("y", "x", "k"),
        (("write", "exchange", "y"), READ_X),
    ),
)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        ask(server, "PUT", "/api/users/u", {"password_hash": HASH, "tags": ""})
        grant(server, ())
        yield server


def connect(server: RunningBroker, name: str, password: str) -> Any:
    credentials = pika.PlainCredentials(name, password)
    parameters = pika.ConnectionParameters(server.host, server.port, credentials=credentials)
    return pika.BlockingConnection(parameters)


@pytest.fixture(scope="module")
def connection(server: RunningBroker) -> Iterator[Any]:
    connection = connect(server, "u", "pw")
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def admin(server: RunningBroker) -> Iterator[Any]:
    connection = connect(server, "guest", "guest")
    yield connection.channel()
    connection.close()


@pytest.fixture(autouse=True)
def topology(admin: Any) -> None:
    """Whatever the last case changed is as it was."""
    for name in ("q", "new"):
        admin.queue_delete(name)
    for name in ("x", "y", "newx", "t"):
        admin.exchange_delete(name)
    admin.queue_declare("q")
    admin.exchange_declare("x")
    admin.exchange_declare("y")
    admin.exchange_declare("t", "topic")
    admin.queue_bind("q", "x", "k")


def grant(server: RunningBroker, needs: tuple[Need, ...]) -> None:
    """Just these permissions."""
    patterns = {}
    for kind in KINDS:
        names = [name.replace(".", "\\.") for permission, _, name in needs if permission == kind]
        patterns[kind] = f"^({'|'.join(names)})$" if names else ""
    status, _ = ask(server, "PUT", "/api/permissions/%2F/u", patterns)
    assert status in (201, 204)


def refusal(connection: Any, do: Callable[[Channel], object]) -> str:
    """The text by which an operation was refused, or nothing."""
    channel = connection.channel()
    try:
        do(channel)
    except ChannelClosedByBroker as closed:
        assert closed.reply_code == 403
        return str(closed.reply_text)
    channel.close()
    return ""


def refused(need: Need) -> str:
    permission, kind, name = need
    return (
        f"ACCESS_REFUSED - {permission} access to {kind} '{name}' in vhost '/' refused for user 'u'"
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_operation_needs_just_these_permissions(
    server: RunningBroker, connection: Any, case: Case
) -> None:
    for missing in case.needs:
        grant(server, tuple(need for need in case.needs if need != missing))
        assert refusal(connection, case.do) == refused(missing)
    grant(server, case.needs)
    assert refusal(connection, case.do) == ""


@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_passive_declare_needs_any_permission(
    server: RunningBroker, connection: Any, kind: str
) -> None:
    name = "q" if kind == "queue" else "x"

    def look(channel: Channel) -> None:
        declare = channel.queue_declare if kind == "queue" else channel.exchange_declare
        declare(name, passive=True)

    grant(server, ())
    assert refusal(connection, look) == refused(("configure", kind, name))
    for permission in KINDS:
        grant(server, ((permission, kind, name),))
        assert refusal(connection, look) == ""


def test_declaring_again_what_exists_needs_configure_alone(
    server: RunningBroker, connection: Any
) -> None:
    """RabbitMQ asks for the dead-letter and alternate exchange where something new is made."""
    grant(server, (("configure", "queue", "new"), ("configure", "exchange", "newx")))
    with connect(server, "guest", "guest") as other:
        declare_dead_lettering(other.channel())
        declare_alternate(other.channel())
    assert refusal(connection, declare_dead_lettering) == ""
    assert refusal(connection, declare_alternate) == ""


def test_server_named_queue_needs_configure_on_its_name(
    server: RunningBroker, connection: Any
) -> None:
    def declare(channel: Channel) -> None:
        channel.queue_declare("", exclusive=True)

    grant(server, ())
    text = refusal(connection, declare)
    assert text.startswith("ACCESS_REFUSED - configure access to queue 'amq.gen-")
    ask(
        server,
        "PUT",
        "/api/permissions/%2F/u",
        {"configure": "^amq\\.gen-", "write": "", "read": ""},
    )
    assert refusal(connection, declare) == ""


def topic(server: RunningBroker, write: str, read: str) -> None:
    body = {"exchange": "t", "write": write, "read": read}
    ask(server, "PUT", "/api/topic-permissions/%2F/u", body)


def test_topic_permission_rules_publishing_and_binding(
    server: RunningBroker, connection: Any
) -> None:
    grant(server, (("write", "exchange", "t"), ("read", "exchange", "t"), WRITE_Q))
    topic(server, "^{username}\\.", "^a\\.")
    in_exchange = "in exchange 't' in vhost '/' refused for user 'u'"
    assert refusal(connection, lambda c: publish(c, "t", "u.1")) == ""
    assert refusal(connection, lambda c: publish(c, "t", "v.1")) == (
        f"ACCESS_REFUSED - write access to topic 'v.1' {in_exchange}"
    )
    assert refusal(connection, lambda c: c.queue_bind("q", "t", "a.#")) == ""
    refused_key = f"ACCESS_REFUSED - read access to topic '#' {in_exchange}"
    assert refusal(connection, lambda c: c.queue_bind("q", "t", "#")) == refused_key
    assert refusal(connection, lambda c: c.queue_unbind("q", "t", "#")) == refused_key
    ask(server, "DELETE", "/api/topic-permissions/%2F/u")
    assert refusal(connection, lambda c: publish(c, "t", "v.1")) == ""


def test_topic_permission_rules_the_keys_in_cc_too(server: RunningBroker, connection: Any) -> None:
    grant(server, (("write", "exchange", "t"),))
    topic(server, "^u\\.", "")

    def publish_copies(channel: Channel, copy: str) -> None:
        channel.confirm_delivery()
        properties = pika.BasicProperties(headers={"CC": [copy]})
        channel.basic_publish("t", "u.1", b"", properties)

    assert refusal(connection, lambda c: publish_copies(c, "u.2")) == ""
    text = "ACCESS_REFUSED - write access to topic 'v.2' in exchange 't' in vhost '/' refused"
    assert refusal(connection, lambda c: publish_copies(c, "v.2")).startswith(text)
    ask(server, "DELETE", "/api/topic-permissions/%2F/u")


def dead_lettering(**arguments: str) -> Callable[[Channel], object]:
    found = {f"x-dead-letter-{name.replace('_', '-')}": value for name, value in arguments.items()}
    given = {**found, "x-message-ttl": 0}
    return lambda channel: channel.queue_declare("new", arguments=given)


WAYS_IN: dict[str, Callable[[Channel], object]] = {
    "binding": lambda channel: channel.exchange_bind("t", "x", "u.1"),
    "alternate": lambda channel: channel.exchange_declare(
        "newx", "fanout", arguments={"alternate-exchange": "t"}
    ),
    "dead letters": dead_lettering(exchange="t"),
    "dead letters with a key": dead_lettering(exchange="t", routing_key="v.1"),
}


@pytest.mark.parametrize("way", WAYS_IN)
def test_topic_permission_rules_every_way_into_the_exchange(
    server: RunningBroker, connection: Any, way: str
) -> None:
    """Messages that come by it have any key, also one with which the user may not publish."""
    patterns = dict.fromkeys(KINDS, ".*")
    ask(server, "PUT", "/api/permissions/%2F/u", patterns)
    topic(server, "^u\\.", ".*")
    what = "topic 'v.1'" if "key" in way else "every topic"
    text = f"ACCESS_REFUSED - write access to {what} in exchange 't' in vhost '/' refused"
    assert refusal(connection, WAYS_IN[way]).startswith(text)
    topic(server, ".*", ".*")
    assert refusal(connection, WAYS_IN[way]) == ""
    ask(server, "DELETE", "/api/topic-permissions/%2F/u")


def test_dead_letters_with_an_allowed_key_have_only_that_key(
    server: RunningBroker, connection: Any, admin: Any
) -> None:
    ask(server, "PUT", "/api/permissions/%2F/u", dict.fromkeys(KINDS, ".*"))
    topic(server, "^u\\.", ".*")
    assert refusal(connection, dead_lettering(exchange="t", routing_key="u.1")) == ""
    admin.queue_bind("q", "t", "#")
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", "new", b"", pika.BasicProperties(headers={"CC": ["v.1"]}))
    method, properties, _ = next(admin.consume("q"))
    assert method.routing_key == "u.1"
    assert "CC" not in properties.headers
    admin.basic_ack(method.delivery_tag)
    admin.cancel()
    channel.close()
    ask(server, "DELETE", "/api/topic-permissions/%2F/u")


def test_lost_permission_counts_on_a_route_in_use(server: RunningBroker, connection: Any) -> None:
    grant(server, (("write", "exchange", "x"),))
    channel = connection.channel()
    publish(channel, "x", "k")
    channel.basic_publish("x", "k", b"")
    grant(server, ())
    with pytest.raises(ChannelClosedByBroker, match="write access to exchange 'x'"):
        channel.basic_publish("x", "k", b"")


def test_lost_permission_ends_a_consumer(
    server: RunningBroker, connection: Any, admin: Any
) -> None:
    grant(server, (READ_Q,))
    channel = connection.channel()
    bodies: list[bytes] = []
    cancelled: list[object] = []
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume("q", lambda c, m, p, body: bodies.append(body), auto_ack=True)
    admin.basic_publish("", "q", b"before")
    while not bodies:
        connection.process_data_events(time_limit=5)
    grant(server, ())
    admin.basic_publish("", "q", b"after")
    while not cancelled:
        connection.process_data_events(time_limit=5)
    assert bodies == [b"before"]
    channel.close()


def test_exploding_pattern_does_no_harm(server: RunningBroker, connection: Any, admin: Any) -> None:
    """In a backtracking engine the first publish would never end, and nobody else be served."""
    exploding = {"configure": "(a+)+$", "write": "^(a|a)*$", "read": "^(([a-z])+.)+[A-Z]$"}
    assert ask(server, "PUT", "/api/permissions/%2F/u", exploding)[0] == 204
    topic(server, "(a+)+$", "(a|aa)+$")
    name = "a" * 200 + "!"
    began = time.perf_counter()
    for do in (
        lambda c: c.queue_declare(name),
        lambda c: publish(c, name, ""),
        lambda c: c.basic_get(name),
    ):
        assert refusal(connection, do).startswith("ACCESS_REFUSED")
    admin.queue_declare("q", passive=True)
    assert time.perf_counter() - began < 30
    ask(server, "DELETE", "/api/topic-permissions/%2F/u")
