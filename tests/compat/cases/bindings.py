"""queue.bind and unbind, queue.delete and purge."""

from __future__ import annotations

from tests.compat.case import Script, Topic
from tests.compat.describe import briefs, show
from tests.compat.stage import Stage

topic = Topic("bindings")


@topic.case(
    "exchange-missing",
    "bind to a missing exchange",
    "channel.close 404 NOT_FOUND - no exchange 'nope' in vhost '/' (50.20)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    return show(channel.call("queue.bind", queue=t.queue(channel), exchange=t.name("nope")))


@topic.case(
    "queue-missing",
    "bind of a missing queue",
    "channel.close 404 NOT_FOUND - no queue 'nope' in vhost '/' (50.20)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.bind", queue=t.name("nope"), exchange="amq.direct"))


@topic.case(
    "both-missing",
    "bind of a missing queue to a missing exchange",
    "channel.close 404 NOT_FOUND - no exchange 'nowhere' in vhost '/' (50.20)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.bind", queue=t.name("nope"), exchange=t.name("nowhere")))


@topic.case(
    "default",
    "bind to the default exchange",
    ("channel.close 403 ACCESS_REFUSED - operation not permitted on the default exchange (50.20)"),
)
def _(t: Stage) -> str:
    channel = t.channel()
    return show(channel.call("queue.bind", queue=t.queue(channel), exchange=""))


@topic.case(
    "empty-name",
    "bind with an empty queue name, none declared",
    "channel.close 404 NOT_FOUND - no previously declared queue (50.20)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.bind", exchange="amq.direct"))


@topic.case(
    "last-declared",
    "bind with empty queue and key means the last queue and its name",
    ["queue.bind-ok", "messages 1"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel, "direct")
    bound = channel.call("queue.bind", exchange=exchange)
    t.put(channel, exchange, queue)
    return [show(bound), f"messages {t.count(queue, channel, 1)}"]


@topic.case("last-declared-key", "bind with empty queue and a key uses that key", "messages 1")
def _(t: Stage) -> str:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel, "direct")
    t.require(channel.call("queue.bind", exchange=exchange, routing_key="k"))
    t.put(channel, exchange, "k")
    t.put(channel, exchange, queue)
    return f"messages {t.count(queue, channel, 1)}"


@topic.case("empty-key", "bind of a named queue with an empty key uses the empty key", "messages 1")
def _(t: Stage) -> str:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel, "direct")
    t.bind(channel, queue, exchange)
    t.put(channel, exchange, "")
    t.put(channel, exchange, queue)
    return f"messages {t.count(queue, channel, 1)}"


@topic.case("twice", "the same binding twice is one, and gone with one unbind", "messages 0")
def _(t: Stage) -> str:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel)
    t.bind(channel, queue, exchange)
    t.bind(channel, queue, exchange)
    t.require(channel.call("queue.unbind", queue=queue, exchange=exchange))
    t.put(channel, exchange, "")
    return f"messages {t.count(queue, channel, 0)}"


@topic.case(
    "arguments-tell-apart", "bindings with other arguments are other bindings", "messages 1"
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue, exchange = t.queue(channel), t.exchange(channel)
    t.bind(channel, queue, exchange, "", {"a": 1})
    t.bind(channel, queue, exchange)
    t.require(channel.call("queue.unbind", queue=queue, exchange=exchange))
    t.put(channel, exchange, "")
    return f"messages {t.count(queue, channel, 1)}"


@topic.case("unbind-none", "unbind of no binding", "queue.unbind-ok")
def _(t: Stage) -> str:
    channel = t.channel()
    return show(channel.call("queue.unbind", queue=t.queue(channel), exchange="amq.direct"))


@topic.case("unbind-exchange-missing", "unbind from a missing exchange", "queue.unbind-ok")
def _(t: Stage) -> str:
    channel = t.channel()
    return show(channel.call("queue.unbind", queue=t.queue(channel), exchange=t.name("nope")))


@topic.case("unbind-queue-missing", "unbind of a missing queue", "queue.unbind-ok")
def _(t: Stage) -> str:
    return show(t.channel().call("queue.unbind", queue=t.name("nope"), exchange="amq.direct"))


@topic.case(
    "unbind-default",
    "unbind from the default exchange",
    ("channel.close 403 ACCESS_REFUSED - operation not permitted on the default exchange (50.50)"),
)
def _(t: Stage) -> str:
    channel = t.channel()
    return show(channel.call("queue.unbind", queue=t.queue(channel), exchange=""))


@topic.case(
    "unbind-empty-name",
    "unbind with an empty queue name, none declared",
    "channel.close 404 NOT_FOUND - no previously declared queue (50.50)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.unbind", exchange="amq.direct"))


def _headers_bind(arguments: dict[str, object]) -> Script:
    def script(t: Stage) -> str:
        channel = t.channel()
        return show(
            channel.call(
                "queue.bind",
                queue=t.queue(channel),
                exchange=t.exchange(channel, "headers"),
                arguments=arguments,
            )
        )

    return script


topic.add(
    "x-match-unknown",
    "x-match nope",
    _headers_bind({"x-match": "nope"}),
    (
        'channel.close 406 PRECONDITION_FAILED - Invalid x-match field value <<"nope">>; '
        "expected all, any, all-with-x, or any-with-x (50.20)"
    ),
)
topic.add(
    "x-match-number",
    "x-match 5",
    _headers_bind({"x-match": 5}),
    (
        "channel.close 406 PRECONDITION_FAILED - Invalid x-match field type signedint (value "
        "5); expected longstr (50.20)"
    ),
)
topic.add(
    "x-match-none", "a headers binding without x-match", _headers_bind({"a": 1}), "queue.bind-ok"
)
topic.add(
    "x-match-with-x",
    "x-match any-with-x",
    _headers_bind({"x-match": "any-with-x"}),
    "queue.bind-ok",
)


@topic.case("delete-missing", "delete of a missing queue", "queue.delete-ok message_count=0")
def _(t: Stage) -> str:
    return show(t.channel().call("queue.delete", queue=t.name("nope")))


@topic.case(
    "delete-missing-conditions",
    "delete if-unused, if-empty of a missing queue",
    "queue.delete-ok message_count=0",
)
def _(t: Stage) -> str:
    return show(
        t.channel().call("queue.delete", queue=t.name("nope"), if_unused=True, if_empty=True)
    )


@topic.case(
    "delete-empty-name",
    "delete with an empty name, none declared",
    "channel.close 404 NOT_FOUND - no previously declared queue (50.40)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.delete"))


@topic.case(
    "delete-last-declared",
    "delete with an empty name takes the last declared queue",
    ["queue.delete-ok message_count=0", "exists False"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    return [show(channel.call("queue.delete")), f"exists {t.exists(queue)}"]


@topic.case(
    "delete-not-empty",
    "delete if-empty with a message",
    "channel.close 406 PRECONDITION_FAILED - queue 'q' in vhost '/' not empty (50.40)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue)
    return show(channel.call("queue.delete", queue=queue, if_empty=True))


@topic.case(
    "delete-only-unacked",
    "delete if-empty with one unacked message only",
    "queue.delete-ok message_count=0",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue)
    channel.get(queue, no_ack=False)
    return show(channel.call("queue.delete", queue=queue, if_empty=True))


@topic.case(
    "delete-used",
    "delete if-unused with a consumer",
    "channel.close 406 PRECONDITION_FAILED - queue 'q' in vhost '/' in use (50.40)",
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue)
    return show(channel.call("queue.delete", queue=queue, if_unused=True))


@topic.case(
    "delete-count", "delete-ok counts the ready messages", "queue.delete-ok message_count=2"
)
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, "a", "b", "c")
    channel.get(queue, no_ack=False)
    return show(channel.call("queue.delete", queue=queue))


@topic.case(
    "delete-consumed",
    "delete of an own consumed queue: the order of its answers",
    ["queue.delete-ok message_count=0", "basic.cancel consumer_tag=t nowait=true"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue)
    channel.send("queue.delete", queue=queue)
    return briefs([channel.next(), channel.next()])


@topic.case("delete-then-ack", "ack of a delivery whose queue was deleted", "accepted")
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue)
    channel.get(queue, no_ack=False)
    channel.call("queue.delete", queue=queue)
    channel.send("basic.ack", delivery_tag=1)
    return briefs(channel.sync()) or ["accepted"]


@topic.case(
    "delete-then-reject", "reject with requeue of a delivery whose queue was deleted", "accepted"
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue)
    channel.get(queue, no_ack=False)
    channel.call("queue.delete", queue=queue)
    channel.send("basic.reject", delivery_tag=1, requeue=True)
    return briefs(channel.sync()) or ["accepted"]


@topic.case(
    "delete-removes-bindings", "a queue made again has none of its old bindings", "messages 0"
)
def _(t: Stage) -> str:
    channel = t.channel()
    exchange, queue = t.exchange(channel), t.queue(channel)
    t.bind(channel, queue, exchange)
    channel.call("queue.delete", queue=queue)
    t.queue(channel)
    t.put(channel, exchange, "")
    return f"messages {t.count(queue, channel, 0)}"


def _quorum_delete(**conditions: object) -> Script:
    def script(t: Stage) -> str:
        channel = t.channel()
        return show(channel.call("queue.delete", queue=t.quorum(channel), **conditions))

    return script


topic.add(
    "delete-quorum", "delete of a quorum queue", _quorum_delete(), "queue.delete-ok message_count=0"
)
topic.add(
    "delete-quorum-unused",
    "delete if-unused of a quorum queue",
    _quorum_delete(if_unused=True),
    (
        "connection.close 540 NOT_IMPLEMENTED - cannot delete queue 'q' in vhost '/'. "
        "queue.delete operations with if-unused flag set are not supported by quorum queues "
        "(50.40)"
    ),
)
topic.add(
    "delete-quorum-empty",
    "delete if-empty of a quorum queue",
    _quorum_delete(if_empty=True),
    (
        "connection.close 540 NOT_IMPLEMENTED - cannot delete queue 'q' in vhost '/'. "
        "queue.delete operations with if-empty flag set are not supported by quorum queues "
        "(50.40)"
    ),
)


@topic.case(
    "purge-missing",
    "purge of a missing queue",
    "channel.close 404 NOT_FOUND - no queue 'nope' in vhost '/' (50.30)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.purge", queue=t.name("nope")))


@topic.case(
    "purge-empty-name",
    "purge with an empty name, none declared",
    "channel.close 404 NOT_FOUND - no previously declared queue (50.30)",
)
def _(t: Stage) -> str:
    return show(t.channel().call("queue.purge"))


@topic.case(
    "purge-count",
    "purge-ok counts ready messages; unacked ones stay",
    ["queue.purge-ok message_count=3", "messages after requeue 1"],
)
def _(t: Stage) -> list[str]:
    channel = t.channel()
    queue = t.queue(channel)
    t.put(channel, "", queue, "a", "b", "c", "d")
    channel.get(queue, no_ack=False)
    purged = show(channel.call("queue.purge", queue=queue))
    channel.send("basic.reject", delivery_tag=1, requeue=True)
    return [purged, f"messages after requeue {t.count(queue, channel, 1)}"]


@topic.case("purge-quorum", "purge of a quorum queue", "queue.purge-ok message_count=2")
def _(t: Stage) -> str:
    channel = t.channel()
    queue = t.quorum(channel)
    t.put(channel, "", queue, "a", "b")
    return show(channel.call("queue.purge", queue=queue))
