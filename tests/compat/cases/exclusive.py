"""Exclusive queues seen from another connection, and exclusive consumers."""

from __future__ import annotations

from typing import Final

from tests.compat.case import Script, Topic
from tests.compat.client import Channel
from tests.compat.describe import show
from tests.compat.stage import Stage

topic = Topic("exclusive")


def locked(ids: str) -> str:
    """The close that meets every use of another connection's queue."""
    return (
        "channel.close 405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' "
        "in vhost '/'. It could be originally declared on another connection or the exclusive "
        f"property value does not match that of the original declaration. ({ids})"
    )


def _two(t: Stage) -> tuple[Channel, Channel, str]:
    """The owner's channel, a stranger's channel and the owner's exclusive queue."""
    owner, stranger = t.channel(), t.connect().channel()
    return owner, stranger, t.queue(owner, exclusive=True)


def _strange(method: str, **fields: object) -> Script:
    def script(t: Stage) -> str:
        _, stranger, queue = _two(t)
        return show(stranger.call(method, queue=queue, **fields))

    return script


_USES: Final[tuple[tuple[str, str, dict[str, object], str], ...]] = (
    ("declare-exclusive", "queue.declare", {"exclusive": True}, "50.10"),
    ("declare", "queue.declare", {}, "50.10"),
    ("declare-passive", "queue.declare", {"passive": True}, "50.10"),
    ("consume", "basic.consume", {}, "60.20"),
    ("get", "basic.get", {}, "60.70"),
    ("delete", "queue.delete", {}, "50.40"),
    ("purge", "queue.purge", {}, "50.30"),
    ("bind", "queue.bind", {"exchange": "amq.direct"}, "50.20"),
)
for _name, _method, _fields, _ids in _USES:
    topic.add(
        _name,
        f"{_method} {_fields or ''} on another connection's queue",
        _strange(_method, **_fields),
        locked(_ids),
    )


@topic.case(
    "unbind",
    "queue.unbind of another connection's binding",
    (
        "channel.close 405 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue "
        "'q' in vhost '/'. It could be originally declared on another connection or the "
        "exclusive property value does not match that of the original declaration. (50.50)"
    ),
)
def _(t: Stage) -> str:
    owner, stranger, queue = _two(t)
    t.bind(owner, queue, "amq.direct", "k")
    return show(stranger.call("queue.unbind", queue=queue, exchange="amq.direct", routing_key="k"))


@topic.case(
    "unbind-none", "queue.unbind of no binding of another connection's queue", "queue.unbind-ok"
)
def _(t: Stage) -> str:
    _, stranger, queue = _two(t)
    return show(stranger.call("queue.unbind", queue=queue, exchange="amq.direct"))


@topic.case(
    "publish",
    "publish to another connection's queue by its name",
    (
        "basic.get-ok delivery_tag=1 redelivered=false exchange= routing_key=q "
        "message_count=0 body=x"
    ),
)
def _(t: Stage) -> str:
    owner, stranger, queue = _two(t)
    t.put(stranger, "", queue)
    return show(owner.get_soon(queue))


@topic.case(
    "same-connection",
    "another channel of the owner's connection may use it",
    "queue.declare-ok queue=q message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    owner, _, queue = _two(t)
    other = owner.connection.channel(9)
    return show(other.call("queue.declare", queue=queue, exclusive=True))


@topic.case(
    "consume-second-exclusive",
    "exclusive consume where a consumer is",
    "channel.close 403 ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use (60.20)",
)
def _(t: Stage) -> str:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue)
    return show(other.call("basic.consume", queue=queue, exclusive=True))


@topic.case(
    "consume-after-exclusive",
    "consume where an exclusive consumer is",
    "channel.close 403 ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use (60.20)",
)
def _(t: Stage) -> str:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue, exclusive=True)
    return show(other.call("basic.consume", queue=queue))


@topic.case(
    "consume-exclusive-gone",
    "consume after the exclusive consumer has gone",
    "basic.consume-ok consumer_tag=u",
)
def _(t: Stage) -> str:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue, exclusive=True)
    t.require(channel.call("basic.cancel", consumer_tag="t"))
    return show(other.call("basic.consume", queue=queue, consumer_tag="u"))


@topic.case(
    "get-beside-exclusive", "basic.get beside an exclusive consumer", "basic.get-empty cluster_id="
)
def _(t: Stage) -> str:
    channel, other = t.channel(), t.channel()
    queue = t.queue(channel)
    t.consume(channel, queue, exclusive=True)
    return show(other.call("basic.get", queue=queue))


@topic.case("dropped-connection", "an exclusive queue goes with its connection's socket", "gone")
def _(t: Stage) -> str:
    owner, _, queue = _two(t)
    t.connect()
    connection = t.connect()
    mine = connection.channel()
    t.queue(mine, "mine", exclusive=True)
    connection.drop()
    t.until(lambda: not t.exists(t.name("mine")), "the end of the queue")
    return "gone" if t.exists(queue) else f"{owner} lost its queue too"


@topic.case(
    "closed-connection",
    "an exclusive queue is gone when close-ok comes",
    "channel.close 404 NOT_FOUND - no queue 'q' in vhost '/' (50.10)",
)
def _(t: Stage) -> str:
    connection = t.connect()
    queue = t.queue(connection.channel(), exclusive=True)
    connection.close()
    return show(t.channel().call("queue.declare", queue=queue, passive=True))


@topic.case(
    "closed-channel",
    "an exclusive queue outlives the channel that made it",
    "queue.declare-ok queue=q message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    connection = t.connect()
    channel = connection.channel(1)
    queue = t.queue(channel, exclusive=True)
    channel.call("channel.close")
    return show(connection.channel(2).call("queue.declare", queue=queue, exclusive=True))


@topic.case(
    "name-free-again",
    "another connection may take the name when the owner is gone",
    "queue.declare-ok queue=q message_count=0 consumer_count=0",
)
def _(t: Stage) -> str:
    connection = t.connect()
    queue = t.queue(connection.channel(), exclusive=True)
    connection.close()
    return show(t.channel().call("queue.declare", queue=queue, exclusive=True))
