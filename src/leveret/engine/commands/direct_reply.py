"""Direct reply-to: a reply goes to the session that waits for it, and into no queue."""

from typing import Final
from zlib import crc32

from mypy_extensions import i64

from leveret.engine.commands.content import Content
from leveret.engine.message import Address, Message
from leveret.engine.turns.loss_counts import UNREAD_REPLY
from leveret.engine.turns.outcomes import ROUTED, UNROUTED
from leveret.engine.turns.session import DELIVERY_BYTES
from leveret.engine.vhosts.vhost import Vhost

# This name, a dot and a token address a session instead of a queue.
REPLY_NAME: Final = "amq.rabbitmq.reply-to"
REPLY_PREFIX: Final = "amq.rabbitmq.reply-to."
# Replies that a peer may leave unread before further ones are dropped.
REPLY_OVERDRAFT_BYTES: Final = 16_777_216


def reply_name(token: str) -> str:
    """Return the name of a requester: its token, and a checksum against invented names."""
    return f"{REPLY_PREFIX}{token}.{crc32(token.encode()):08x}"


def is_reply_name(name: str) -> bool:
    """Return True if `reply_name` once made this name."""
    token, _, _ = name.removeprefix(REPLY_PREFIX).rpartition(".")
    return name == reply_name(token)


def reply(vhost: Vhost, address: Address, content: Content, body: bytes) -> i64:
    """Deliver straight to the session that waits for replies under this name."""
    consumer = vhost.replies.get(address.routing_key)
    if consumer is None:
        # RabbitMQ 4: a requester that is gone is not the replier's fault, an invented name is.
        return ROUTED if is_reply_name(address.routing_key) else UNROUTED
    session = consumer.session
    if session.outlet.credit < -REPLY_OVERDRAFT_BYTES:
        vhost.turn.losses.note_dropped(UNREAD_REPLY)
        return ROUTED  # RabbitMQ: replies are delivered at most once; this peer reads none
    session.last_tag += 1
    consumer.delivered += 1
    session.unacked.skip(session.last_tag)
    message = Message(address, content.header, body, 0, 0, 0, 0, consumer.queue)
    message.tag = session.last_tag
    message.holder = consumer
    session.outlet.credit -= len(body) + len(content.header) + DELIVERY_BYTES
    if not session.unsent:
        session.turn.deliveries.append(session)
    session.unsent.append(message)
    return ROUTED
