"""Events of connections and channels, for whoever listens at the event exchange."""

from typing import Final

from mypy_extensions import i64

from leveret.amqp.link import Link
from leveret.engine.turns.events import facts_of, note_event

_PROTOCOL: Final = "{0,9,1}"  # RabbitMQ


def tell_opened(link: Link) -> None:
    """A connection has entered its vhost."""
    facts = _facts(link)
    facts["protocol"] = _PROTOCOL
    facts["auth_mechanism"] = link.mechanism
    facts["frame_max"] = int(link.frame_max)
    facts["channel_max"] = int(link.channel_max)
    facts["timeout"] = int(link.heartbeat_s)
    facts["connected_at"] = int(link.front.broker.turn.now_ms)
    facts["client_properties"] = link.client_properties
    note_event(link.front.broker.turn, "connection.created", facts_of(facts))


def tell_closed(link: Link) -> None:
    note_event(link.front.broker.turn, "connection.closed", facts_of(_facts(link)))


def tell_channel(link: Link, number: i64, key: str) -> None:
    """A channel was opened or closed."""
    facts = _facts(link)
    facts["number"] = int(number)
    facts["connection"] = link.name
    facts["name"] = f"{link.name} ({number})"
    note_event(link.front.broker.turn, key, facts_of(facts))


def _facts(link: Link) -> dict[str, object]:
    vhost = link.vhost
    return {
        "name": link.name,
        "user": link.user_name,
        "vhost": vhost.name if vhost is not None else "",
        "type": "network",
    }
