"""Handlers of `channel.flow` and `access.request`. `rare_frames` and `closing` have the rest."""

from leveret.amqp.channel import Channel
from leveret.amqp.methods import ACCESS_REQUEST_OK, CHANNEL_FLOW_OK
from leveret.amqp.reader import MethodReader
from leveret.amqp.writer import MethodWriter
from leveret.errors import UnsupportedError


def on_flow(channel: Channel, reader: MethodReader) -> None:
    active = reader.bit()
    reader.finish()
    if not active:
        raise UnsupportedError("active=false")
    channel.reply(MethodWriter(CHANNEL_FLOW_OK).octet(1))


def on_access_request(channel: Channel, reader: MethodReader) -> None:
    """Grant a ticket. AMQP 0-9-1 has abolished tickets, but old clients still ask for one."""
    channel.reply(MethodWriter(ACCESS_REQUEST_OK).short(1))
