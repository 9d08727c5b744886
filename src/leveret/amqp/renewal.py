"""`connection.update-secret`: a peer renews its credentials while it works.

The user stays the same; what it may do can change. What a channel remembers of permissions is
forgotten, and consumers of queues that it may no longer read are cancelled (RabbitMQ 4.3).
"""

from leveret.amqp.channel import BODY, Channel
from leveret.amqp.link import Link
from leveret.amqp.methods import CONNECTION_UPDATE_SECRET_OK
from leveret.amqp.reader import Reader
from leveret.amqp.writer import Writer
from leveret.auth import READ, User
from leveret.engine.consuming import expel
from leveret.errors import NotAllowed


def on_update_secret(link: Link, channels: list[Channel], reader: Reader) -> None:
    """Take over the new credentials, or raise NotAllowed and leave all as it was."""
    secret = reader.long_string().decode("utf-8", "replace")
    reader.short_string()  # the reason, for people
    reader.finish()
    user = link.user
    vhost = link.vhost
    assert user is not None
    assert vhost is not None
    renewed = link.front.authority.renew(user, secret)
    if renewed is None:
        raise NotAllowed("New secret was refused by one of the backends")
    if not renewed.may_open(vhost.name):
        raise NotAllowed(f"access to vhost '{vhost.name}' refused for user '{renewed.name}'")
    link.user = renewed
    for channel in channels:
        if not channel.is_closing:
            _check_again(channel, renewed)
    link.send(0, Writer(CONNECTION_UPDATE_SECRET_OK))


def _check_again(channel: Channel, user: User) -> None:
    channel.routes.clear()
    channel.publish_method = b""  # the next publish is looked up again; one under way goes on
    if channel.expects != BODY:
        channel.content = None  # it was checked whether the user may publish in another's name
    slots = channel.link.front.broker.slots
    for tag, consumer in list(channel.consumers.items()):
        name = slots.queue(consumer.queue).name
        if not user.may(READ, channel.vhost.name, "queue", name):
            expel(slots, channel, tag)
