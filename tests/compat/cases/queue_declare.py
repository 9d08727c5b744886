"""queue.declare: equivalence with what is there, names, passive declares, queue types.

Every mismatch closes the channel and leaves the queue as it was.
"""

from __future__ import annotations

from tests.compat.case import Topic
from tests.compat.describe import show
from tests.compat.stage import Stage

topic = Topic("queue.declare")


def redeclared(t: Stage, first: dict[str, object], second: dict[str, object]) -> str:
    """Declares a queue, then declares it again; the answer to the second."""
    channel = t.channel()
    t.require(channel.call("queue.declare", queue=t.name(), **first))
    return show(channel.call("queue.declare", queue=t.name(), **second))


@topic.case(
    "durable",
    "redeclare with another durable flag",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in "
        "vhost '/': received 'true' but current is 'false' (50.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(t, {}, {"durable": True})


@topic.case(
    "durable-to-transient",
    "redeclare of a durable queue as transient",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in "
        "vhost '/': received 'false' but current is 'true' (50.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(t, {"durable": True}, {})


@topic.case(
    "auto-delete",
    "redeclare with another auto_delete flag",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue "
        "'q' in vhost '/': received 'true' but current is 'false' (50.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(t, {}, {"auto_delete": True})


@topic.case(
    "exclusive",
    "redeclare of a non-exclusive queue as exclusive",
    (
        "channel.close 405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue "
        "'q' in vhost '/'. It could be originally declared on another connection or the "
        "exclusive property value does not match that of the original declaration. (50.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(t, {}, {"exclusive": True})


@topic.case(
    "exclusive-to-plain",
    "redeclare of an own exclusive queue as non-exclusive",
    (
        "channel.close 405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue "
        "'q' in vhost '/'. It could be originally declared on another connection or the "
        "exclusive property value does not match that of the original declaration. (50.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(t, {"exclusive": True}, {})


@topic.case(
    "exclusive-again",
    "redeclare of an own exclusive queue as it is",
    "queue.declare-ok queue=q message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    return redeclared(t, {"exclusive": True}, {"exclusive": True})


@topic.case(
    "exclusive-durable",
    "an exclusive queue declared durable and again as transient",
    "queue.declare-ok queue=q message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    return redeclared(t, {"exclusive": True, "durable": True}, {"exclusive": True})


@topic.case(
    "same",
    "redeclare of a queue with everything equal",
    "queue.declare-ok queue=q message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    same = {"durable": True, "arguments": {"x-message-ttl": 1000, "x-max-length": 5}}
    return redeclared(t, same, same)


@topic.case(
    "argument-added",
    "redeclare with x-message-ttl where none was",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue "
        "'q' in vhost '/': received the value '1000' of type 'signedint' but current is none "
        "(50.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(t, {}, {"arguments": {"x-message-ttl": 1000}})


@topic.case(
    "argument-changed",
    "redeclare with x-message-ttl of another value",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue "
        "'q' in vhost '/': received '2000' but current is '1000' (50.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(
        t, {"arguments": {"x-message-ttl": 1000}}, {"arguments": {"x-message-ttl": 2000}}
    )


@topic.case(
    "argument-removed",
    "redeclare without the x-message-ttl it was declared with",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue "
        "'q' in vhost '/': received none but current is the value '1000' of type 'signedint' "
        "(50.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(t, {"arguments": {"x-message-ttl": 1000}}, {})


@topic.case(
    "argument-text-changed",
    "redeclare with another dead-letter exchange",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' "
        "for queue 'q' in vhost '/': received 'b' but current is 'a' (50.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(
        t,
        {"arguments": {"x-dead-letter-exchange": "a"}},
        {"arguments": {"x-dead-letter-exchange": "b"}},
    )


@topic.case(
    "argument-flag-changed",
    "redeclare with another x-single-active-consumer",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'x-single-active-consumer' "
        "for queue 'q' in vhost '/': received 'false' but current is 'true' (50.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(
        t,
        {"arguments": {"x-single-active-consumer": True}},
        {"arguments": {"x-single-active-consumer": False}},
    )


@topic.case(
    "argument-width",
    "redeclare with the same number in another integer type",
    "queue.declare-ok queue=q message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    return redeclared(
        t,
        {"arguments": {"x-message-ttl": ("l", 1000)}},
        {"arguments": {"x-message-ttl": ("s", 1000)}},
    )


@topic.case(
    "argument-unknown",
    "redeclare with an argument nobody knows",
    "queue.declare-ok queue=q message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    return redeclared(t, {}, {"arguments": {"x-nobody-knows": 1}})


@topic.case(
    "arguments-two-differ",
    "redeclare with two differing arguments names one",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'x-expires' for queue 'q' "
        "in vhost '/': received '200000' but current is '100000' (50.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(
        t,
        {"arguments": {"x-message-ttl": 1, "x-expires": 100000}},
        {"arguments": {"x-message-ttl": 2, "x-expires": 200000}},
    )


@topic.case(
    "type-differs",
    "declare of type quorum over a classic queue",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue "
        "'q' in vhost '/': received the value 'quorum' of type 'longstr' but current is none "
        "(50.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(
        t, {"durable": True}, {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    )


@topic.case(
    "type-classic",
    "declare of type classic over one declared without a type",
    "queue.declare-ok queue=q message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    return redeclared(
        t, {"durable": True}, {"durable": True, "arguments": {"x-queue-type": "classic"}}
    )


@topic.case(
    "type-classic-left-out",
    "declare without a type over one of type classic",
    "queue.declare-ok queue=q message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    return redeclared(
        t, {"durable": True, "arguments": {"x-queue-type": "classic"}}, {"durable": True}
    )


@topic.case(
    "type-quorum-left-out",
    "declare without a type over a quorum queue",
    (
        "channel.close 406 PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue "
        "'q' in vhost '/': received none but current is the value 'quorum' of type 'longstr' "
        "(50.10)"
    ),
)
def _(t: Stage) -> str:
    return redeclared(
        t, {"durable": True, "arguments": {"x-queue-type": "quorum"}}, {"durable": True}
    )


@topic.case(
    "unchanged-after-refusal",
    "a refused redeclare leaves queue and messages alone",
    "queue.declare-ok queue=q message_count=1 consumer_count=0",
)
def _(t: Stage) -> str:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, "kept")
    channel.call("queue.declare", queue=queue, durable=True)
    return show(other.call("queue.declare", queue=queue))


@topic.case(
    "reserved-name",
    "a name that begins with amq.",
    (
        "channel.close 403 ACCESS_REFUSED - queue name 'amq.foo' contains reserved prefix "
        "'amq.*' (50.10)"
    ),
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.declare", queue="amq.foo"))


@topic.case(
    "reserved-name-passive",
    "passive declare of a missing name that begins with amq.",
    "channel.close 404 NOT_FOUND - no queue 'amq.foo' in vhost '/' (50.10)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.declare", queue="amq.foo", passive=True))


@topic.case(
    "passive-missing",
    "passive declare of a missing queue",
    "channel.close 404 NOT_FOUND - no queue 'nope' in vhost '/' (50.10)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.declare", queue=t.name("nope"), passive=True))


@topic.case(
    "passive-other-flags",
    "passive declare of a queue with other flags and arguments",
    "queue.declare-ok queue=q message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    return redeclared(
        t,
        {},
        {
            "passive": True,
            "durable": True,
            "auto_delete": True,
            "arguments": {"x-message-ttl": 5},
        },
    )


@topic.case(
    "passive-empty-name",
    "passive declare with an empty name, none declared before",
    "channel.close 404 NOT_FOUND - no queue '' in vhost '/' (50.10)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.declare", passive=True))


@topic.case(
    "server-named",
    "an empty name makes the server choose one",
    "queue.declare-ok queue=amq.gen-* message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.declare", exclusive=True))


@topic.case(
    "server-named-passive",
    "passive with an empty name after a server-named declare",
    "channel.close 404 NOT_FOUND - no queue '' in vhost '/' (50.10)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    t.require(channel.call("queue.declare", exclusive=True))
    return show(channel.call("queue.declare", passive=True))


@topic.case(
    "name-255",
    "a name of 255 bytes",
    "queue.declare-ok queue=<255 bytes> message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    name = t.name("n").ljust(255, "n")
    answer = t.channel().call("queue.declare", queue=name, exclusive=True)
    return show(answer).replace(name, f"<{len(name)} bytes>")


@topic.case(
    "name-not-utf8",
    "a name that is not UTF-8",
    "connection.close 501 FRAME_ERROR - Malformed UTF-8 in shortstr (0.0)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.declare", queue=b"\xff\xfe"))


@topic.case(
    "name-utf8",
    "a name with letters beyond ASCII",
    "queue.declare-ok queue=häse message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.declare", queue=t.name("häse"), exclusive=True))


@topic.case(
    "name-newline",
    "line ends are taken out of a name",
    "queue.declare-ok queue=q message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    name = t.name("q")
    channel = t.channel()
    answer = channel.call("queue.declare", queue=f"\r{name}\n", exclusive=True)
    return show(answer)


@topic.case(
    "counts",
    "declare-ok counts ready messages and consumers, not unacked ones",
    "queue.declare-ok queue=q message_count=2 consumer_count=1",
)
def _(t: Stage) -> str:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, "a", "b", "c", "d")
    channel.get(queue, no_ack=False)
    t.require(other.call("basic.qos", prefetch_count=1))
    t.consume(other, queue)
    other.next()
    return show(channel.call("queue.declare", queue=queue))


@topic.case(
    "arguments-large",
    "arguments of 20,000 bytes",
    (
        "channel.close 406 PRECONDITION_FAILED - the arguments of queue 'q' in vhost '/' have "
        "20016 bytes; at most 16384 are allowed (50.10)"
    ),
    rabbitmq="queue.declare-ok queue=q message_count=0 consumer_count=0",
    difference="argument-limits",
)
def _(t: Stage) -> str:
    arguments = {"x-note": "x" * 20_000}
    name = t.name("q")
    return show(t.channel().call("queue.declare", queue=name, exclusive=True, arguments=arguments))
