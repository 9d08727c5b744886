"""Class channel: flow. (A channel is opened in `rare_frames` and closed in `closing`.)"""

from leveret.amqp.channel import Channel
from leveret.amqp.methods import ACCESS_REQUEST_OK, CHANNEL_FLOW_OK
from leveret.amqp.reader import Reader
from leveret.amqp.writer import Writer
from leveret.errors import UnsupportedError


def on_flow(channel: Channel, reader: Reader) -> None:
    active = reader.bit()
    reader.finish()
    if not active:
        raise UnsupportedError("active=false")
    channel.reply(Writer(CHANNEL_FLOW_OK).octet(1))


def on_access_request(channel: Channel, reader: Reader) -> None:
    """Tickets were given up by AMQP 0-9-1; old clients still ask for one."""
    channel.reply(Writer(ACCESS_REQUEST_OK).short(1))
