"""Note events of connections and channels. The broker publishes them at the end of the turn."""

from typing import Final

from mypy_extensions import i64

from leveret.amqp.connection_base import ConnectionBase
from leveret.engine.turns.events import facts_of, note_event
from leveret.wire.tables import Field

_TABLE: Final = ord("F")
_PROTOCOL: Final = "{0,9,1}"  # RabbitMQ


def tell_opened(connection: ConnectionBase) -> None:
    """Tell that a connection was opened."""
    facts = _connection_facts(connection)
    facts["protocol"] = _PROTOCOL
    facts["auth_mechanism"] = connection.mechanism
    facts["frame_max"] = int(connection.frame_max)
    facts["channel_max"] = int(connection.channel_max)
    facts["timeout"] = int(connection.heartbeat_s)
    facts["connected_at"] = int(connection.front.broker.turn.now_ms)
    headers = facts_of(facts)
    # The table as received: plain values cannot always be encoded as a field table again.
    headers["client_properties"] = Field(_TABLE, connection.client_table)
    note_event(connection.front.broker.turn, "connection.created", headers)


def tell_closed(connection: ConnectionBase) -> None:
    note_event(
        connection.front.broker.turn, "connection.closed", facts_of(_connection_facts(connection))
    )


def tell_channel(connection: ConnectionBase, number: i64, key: str) -> None:
    """Tell that a channel was opened or closed; `key` is the routing key of the event."""
    facts = _connection_facts(connection)
    facts["number"] = int(number)
    facts["connection"] = connection.name
    facts["name"] = f"{connection.name} ({number})"
    note_event(connection.front.broker.turn, key, facts_of(facts))


def _connection_facts(connection: ConnectionBase) -> dict[str, object]:
    vhost = connection.vhost
    return {
        "name": connection.name,
        "user": connection.user_name,
        "vhost": vhost.name if vhost is not None else "",
        "type": "network",
    }
