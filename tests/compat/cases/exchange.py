"""exchange.declare, delete, bind and unbind, and publishing to what may not be published to."""

from __future__ import annotations

from tests.compat.case import Topic
from tests.compat.describe import show
from tests.compat.stage import Stage

topic = Topic("exchange")


def redeclared(t: Stage, **changes: object) -> str:
    """Declares a plain direct exchange, then again with changes; the answer to the second."""
    channel = t.channel()
    name = t.exchange(channel, "direct")
    fields = {"type": "direct", **changes}
    return show(channel.call("exchange.declare", exchange=name, **fields))


@topic.case(
    "type-unknown",
    "declare of an unknown type",
    "channel.close 406 PRECONDITION_FAILED - unknown exchange type 'nope' (40.10)",
    rabbitmq="connection.close 503 COMMAND_INVALID - unknown exchange type 'nope' (40.10)",
    difference="exchange-type-unknown",
)
def _(t: Stage) -> str:
    return show(t.channel().call("exchange.declare", exchange=t.name("x"), type="nope"))


@topic.case(
    "type-empty",
    "declare with an empty type",
    "channel.close 406 PRECONDITION_FAILED - invalid exchange type '' (40.10)",
    rabbitmq="connection.close 503 COMMAND_INVALID - invalid exchange type '' (40.10)",
    difference="exchange-type-unknown",
)
def _(t: Stage) -> str:
    return show(t.channel().call("exchange.declare", exchange=t.name("x"), type=""))


@topic.case(
    "type-differs",
    "redeclare with another type",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'x' in "
        "vhost '/': received 'fanout' but current is 'direct' (40.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(t, type="fanout")


@topic.case(
    "durable",
    "redeclare with another durable flag",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'durable' for exchange 'x' "
        "in vhost '/': received 'true' but current is 'false' (40.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(t, durable=True)


@topic.case(
    "auto-delete",
    "redeclare with another auto_delete flag",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'auto_delete' for exchange "
        "'x' in vhost '/': received 'true' but current is 'false' (40.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(t, auto_delete=True)


@topic.case(
    "internal",
    "redeclare with another internal flag",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'internal' for exchange "
        "'x' in vhost '/': received 'true' but current is 'false' (40.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(t, internal=True)


@topic.case(
    "alternate-added",
    "redeclare with alternate-exchange where none was",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for "
        "exchange 'x' in vhost '/': received the value 'foo' of type 'longstr' but current "
        "is none (40.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(t, arguments={"alternate-exchange": "foo"})


@topic.case("argument-unknown", "redeclare with an unknown argument", "exchange.declare-ok")
def _(t: Stage) -> str:
    return redeclared(t, arguments={"x-nobody-knows": 1})


@topic.case("same", "redeclare as it is", "exchange.declare-ok")
def _(t: Stage) -> str:
    return redeclared(t)


@topic.case(
    "alternate-changed",
    "redeclare with another alternate-exchange",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for "
        "exchange 'x' in vhost '/': received 'b' but current is 'a' (40.10)"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    name = t.exchange(channel, "direct", arguments={"alternate-exchange": "a"})
    return show(
        channel.call(
            "exchange.declare",
            exchange=name,
            type="direct",
            arguments={"alternate-exchange": "b"},
        )
    )


@topic.case(
    "alternate-number",
    "alternate-exchange of the wrong type",
    (
        "channel.close 406 PRECONDITION_FAILED - invalid type 'signedint' for arg "
        "'alternate-exchange' in exchange 'x' in vhost '/' (40.10)"
    ),
)
def _(t: Stage) -> str:
    return show(
        t.channel().call(
            "exchange.declare",
            exchange=t.name("x"),
            type="direct",
            arguments={"alternate-exchange": 5},
        )
    )


@topic.case(
    "reserved-name",
    "declare of a name that begins with amq.",
    (
        "channel.close 403 ACCESS_REFUSED - exchange name 'amq.foo' contains reserved prefix "
        "'amq.*' (40.10)"
    ),
)
def _(t: Stage) -> str:
    return show(t.channel().call("exchange.declare", exchange="amq.foo", type="direct"))


@topic.case("predeclared-same", "declare of amq.direct as it is", "exchange.declare-ok")
def _(t: Stage) -> str:
    return show(
        t.channel().call("exchange.declare", exchange="amq.direct", type="direct", durable=True)
    )


@topic.case(
    "predeclared-differs",
    "declare of amq.direct as not durable",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'durable' for exchange "
        "'amq.direct' in vhost '/': received 'false' but current is 'true' (40.10)"
    ),
)
def _(t: Stage) -> str:
    return show(t.channel().call("exchange.declare", exchange="amq.direct", type="direct"))


@topic.case(
    "predeclared",
    "the exchanges that are there from the start",
    [
        "exchange.declare-ok",
        "exchange.declare-ok",
        "exchange.declare-ok",
        "exchange.declare-ok",
        "exchange.declare-ok",
    ],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    kinds = ("direct", "fanout", "topic", "headers", "match")
    types = {"match": "headers"}
    return [
        show(
            channel.call(
                "exchange.declare",
                exchange=f"amq.{kind}",
                type=types.get(kind, kind),
                durable=True,
            )
        )
        for kind in kinds
    ]


@topic.case(
    "default",
    "declare of the default exchange",
    ("channel.close 403 ACCESS_REFUSED - operation not permitted on the default exchange (40.10)"),
)
def _(t: Stage) -> str:
    return show(t.channel().call("exchange.declare", exchange="", type="direct", durable=True))


@topic.case(
    "default-passive",
    "passive declare of the default exchange",
    ("channel.close 403 ACCESS_REFUSED - operation not permitted on the default exchange (40.10)"),
)
def _(t: Stage) -> str:
    return show(t.channel().call("exchange.declare", exchange="", type="direct", passive=True))


@topic.case(
    "passive-missing",
    "passive declare of a missing exchange",
    "channel.close 404 NOT_FOUND - no exchange 'nope' in vhost '/' (40.10)",
)
def _(t: Stage) -> str:
    return show(
        t.channel().call("exchange.declare", exchange=t.name("nope"), type="direct", passive=True)
    )


@topic.case(
    "passive-differs",
    "passive declare of an exchange with other type and flags",
    "exchange.declare-ok",
)
def _(t: Stage) -> str:
    return redeclared(t, type="fanout", durable=True, passive=True)


@topic.case(
    "passive-type-unknown",
    "passive declare of an exchange with an unknown type",
    "exchange.declare-ok",
)
def _(t: Stage) -> str:
    return redeclared(t, type="nope", passive=True)


@topic.case("name-newline", "line ends are taken out of a name", "exchange.declare-ok")
def _(t: Stage) -> str:
    channel = t.channel()
    channel.call("exchange.declare", exchange=f"{t.name('x')}\n", type="direct")
    return show(channel.call("exchange.declare", exchange=t.name("x"), type="", passive=True))


@topic.case(
    "delete-default",
    "delete of the default exchange",
    ("channel.close 403 ACCESS_REFUSED - operation not permitted on the default exchange (40.20)"),
)
def _(t: Stage) -> str:
    return show(t.channel().call("exchange.delete", exchange=""))


@topic.case(
    "delete-predeclared",
    "delete of amq.direct",
    (
        "channel.close 403 ACCESS_REFUSED - deletion of system exchange 'amq.direct' in "
        "vhost '/' not allowed (40.20)"
    ),
)
def _(t: Stage) -> str:
    return show(t.channel().call("exchange.delete", exchange="amq.direct"))


@topic.case("delete-missing", "delete of a missing exchange", "exchange.delete-ok")
def _(t: Stage) -> str:
    return show(t.channel().call("exchange.delete", exchange=t.name("nope")))


@topic.case("delete-missing-unused", "delete if-unused of a missing exchange", "exchange.delete-ok")
def _(t: Stage) -> str:
    return show(t.channel().call("exchange.delete", exchange=t.name("nope"), if_unused=True))


@topic.case(
    "delete-used",
    "delete if-unused of an exchange with a binding",
    "channel.close 406 PRECONDITION_FAILED - exchange 'x' in vhost '/' in use (40.20)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    name = t.exchange(channel)
    t.bind(channel, t.queue(channel), name)
    return show(channel.call("exchange.delete", exchange=name, if_unused=True))


@topic.case(
    "delete-used-as-destination",
    "delete if-unused of an exchange bound to another",
    "exchange.delete-ok",
)
def _(t: Stage) -> str:
    channel = t.channel()
    source, destination = t.exchange(channel), t.exchange(channel, suffix="y")
    t.require(channel.call("exchange.bind", source=source, destination=destination))
    return show(channel.call("exchange.delete", exchange=destination, if_unused=True))


@topic.case(
    "delete-unused", "delete if-unused of an exchange without bindings", "exchange.delete-ok"
)
def _(t: Stage) -> str:
    channel = t.channel()
    return show(channel.call("exchange.delete", exchange=t.exchange(channel), if_unused=True))


@topic.case(
    "delete-removes-bindings", "an exchange made again has none of its old bindings", "messages 0"
)
def _(t: Stage) -> str:
    channel = t.channel()
    name, queue = t.exchange(channel), t.queue(channel)
    t.bind(channel, queue, name)
    channel.call("exchange.delete", exchange=name)
    t.exchange(channel)
    t.put(channel, name, "")
    return f"messages {t.count(queue, channel, 0)}"


@topic.case(
    "publish-missing",
    "publish to a missing exchange",
    "channel.close 404 NOT_FOUND - no exchange 'nope' in vhost '/' (60.40)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    channel.publish(t.name("nope"), "k", b"x")
    return show(channel.next())


@topic.case(
    "publish-internal",
    "publish to an internal exchange",
    (
        "channel.close 403 ACCESS_REFUSED - cannot publish to internal exchange 'x' in vhost "
        "'/' (60.40)"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    channel.publish(t.exchange(channel, internal=True), "k", b"x")
    return show(channel.next())


@topic.case(
    "publish-internal-bad-header",
    "publish to an internal exchange, with an expiration that is none",
    (
        "channel.close 403 ACCESS_REFUSED - cannot publish to internal exchange 'x' in vhost "
        "'/' (60.40)"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    channel.publish(t.exchange(channel, internal=True), "k", b"x", {"expiration": "soon"})
    return show(channel.next())


@topic.case(
    "publish-internal-tx",
    "publish to an internal exchange in a transaction: refused before the commit",
    (
        "channel.close 403 ACCESS_REFUSED - cannot publish to internal exchange 'x' in vhost "
        "'/' (60.40)"
    ),
)
def _(t: Stage) -> str:
    channel = t.channel()
    channel.call("tx.select")
    channel.publish(t.exchange(channel, internal=True), "k", b"x")
    return show(channel.next())


@topic.case(
    "publish-through-internal", "an internal exchange routes what another sends it", "messages 1"
)
def _(t: Stage) -> str:
    channel = t.channel()
    front, inner = t.exchange(channel), t.exchange(channel, suffix="inner", internal=True)
    queue = t.queue(channel)
    t.require(channel.call("exchange.bind", source=front, destination=inner))
    t.bind(channel, queue, inner)
    t.put(channel, front, "k")
    return f"messages {t.count(queue, channel, 1)}"


@topic.case(
    "bind-default-destination",
    "exchange.bind with the default as destination",
    ("channel.close 403 ACCESS_REFUSED - operation not permitted on the default exchange (40.30)"),
)
def _(t: Stage) -> str:
    return show(t.channel().call("exchange.bind", destination="", source="amq.direct"))


@topic.case(
    "bind-default-source",
    "exchange.bind with the default as source",
    ("channel.close 403 ACCESS_REFUSED - operation not permitted on the default exchange (40.30)"),
)
def _(t: Stage) -> str:
    return show(t.channel().call("exchange.bind", destination="amq.direct", source=""))


@topic.case(
    "bind-missing-source",
    "exchange.bind with a missing source",
    "channel.close 404 NOT_FOUND - no exchange 'nope' in vhost '/' (40.30)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("exchange.bind", destination="amq.direct", source=t.name("nope")))


@topic.case(
    "bind-missing-destination",
    "exchange.bind with a missing destination",
    "channel.close 404 NOT_FOUND - no exchange 'nope' in vhost '/' (40.30)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("exchange.bind", destination=t.name("nope"), source="amq.direct"))


@topic.case("unbind-none", "exchange.unbind of no binding", "exchange.unbind-ok")
def _(t: Stage) -> str:
    return show(
        t.channel().call(
            "exchange.unbind", destination="amq.direct", source="amq.fanout", routing_key="k"
        )
    )


@topic.case(
    "unbind-default",
    "exchange.unbind from the default exchange",
    ("channel.close 403 ACCESS_REFUSED - operation not permitted on the default exchange (40.40)"),
)
def _(t: Stage) -> str:
    return show(t.channel().call("exchange.unbind", destination="amq.direct", source=""))
