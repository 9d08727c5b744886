"""The AMQP connections and channels, as the HTTP front sees them.

The two fronts do not import each other; this module describes one to the other. Every answer is
read at the call; nothing is cached.
"""

from collections.abc import Sequence

from leveret.amqp.channel import Channel
from leveret.amqp.connection import Connection
from leveret.amqp.connection_state import RUNNING, STATE_NAMES
from leveret.amqp.server import AmqpServer
from leveret.engine.insight.totals import add_session
from leveret.engine.turns.retired_counts import TrafficCounts
from leveret.engine.turns.session import Outlet, Session
from leveret.http.framework.node import ChannelSnapshot, ConnectionSnapshot


class ConnectionsView:
    """The connections of one AMQP server."""

    def __init__(self, server: AmqpServer) -> None:
        self._server = server

    def outlets(self) -> Sequence[Outlet]:
        return list(self._server.protocols)

    def owner(self, outlet: Outlet) -> tuple[str, str]:
        assert isinstance(outlet, Connection)
        vhost = outlet.vhost
        user = outlet.user.identity if outlet.user is not None else ""
        return user, vhost.name if vhost is not None else ""

    def client_name(self, outlet: Outlet) -> str:
        assert isinstance(outlet, Connection)
        name = outlet.client_properties.get("connection_name")
        return name if isinstance(name, str) else ""

    def snapshot(self, outlet: Outlet) -> ConnectionSnapshot | None:
        connection = self._live(outlet)
        if connection is None:
            return None
        peer, _, own = connection.name.partition(" -> ")
        peer_host, peer_port = _split(peer)
        host, port = _split(own)
        return ConnectionSnapshot(
            name=connection.name,
            state=_state(connection),
            user=connection.user.name if connection.user is not None else "",
            vhost=connection.vhost.name if connection.vhost is not None else "",
            peer_host=peer_host,
            peer_port=peer_port,
            host=host,
            port=port,
            mechanism=connection.mechanism,
            frame_max=connection.frame_max,
            channel_max=connection.channel_max,
            heartbeat_s=connection.heartbeat_s,
            connected_ms=connection.connected_ms,
            heartbeat_ms=connection.heartbeat_ms,
            channels=len(connection.channels),
            received_bytes=connection.received_bytes,
            received_count=connection.received_count,
            sent_bytes=connection.sent_bytes,
            sent_count=connection.sent_count,
            pending_bytes=self._server.protocols[connection].unsent_bytes(),
            client_properties=connection.client_properties,
            tls=connection.tls.facts() if connection.tls is not None else {},
        )

    def sessions(self, outlet: Outlet) -> Sequence[Session]:
        connection = self._live(outlet)
        return [] if connection is None else list(connection.channels.values())

    def channel_snapshot(self, session: Session) -> ChannelSnapshot:
        assert isinstance(session, Channel)
        delivered = session.retired_no_ack
        for consumer in session.consumers.values():
            if consumer.no_ack:
                delivered += consumer.delivered
        if session.reply_consumer is not None:
            delivered += session.reply_consumer.delivered
        return ChannelSnapshot(
            state="closing" if session.is_closing else "running",
            transactional=session.transactional,
            publishes_uncommitted=len(session.tx_publishes),
            acks_uncommitted=sum(len(settle.messages) for settle in session.tx_settles),
            delivered_no_ack=delivered,
        )

    def add_counts(self, counts: TrafficCounts, vhost: str) -> None:
        for connection in self._server.protocols:
            if connection.vhost is None or connection.vhost.name != vhost:
                continue
            if not connection.is_released:
                counts.received_bytes += connection.received_bytes
                counts.sent_bytes += connection.sent_bytes
            for channel in connection.channels.values():
                if not channel.closed:
                    add_session(counts, channel)

    def close(self, outlet: Outlet, reason: str) -> None:
        connection = self._live(outlet)
        if connection is not None:
            self._server.close(connection, reason)

    def _live(self, outlet: Outlet) -> Connection | None:
        is_live = isinstance(outlet, Connection) and outlet in self._server.protocols
        return outlet if is_live and isinstance(outlet, Connection) else None


def _state(connection: Connection) -> str:
    """Return the state. RabbitMQ: a running connection that may not publish now is `blocked`."""
    if connection.is_blocked and connection.state == RUNNING:
        return "blocked"
    return STATE_NAMES[connection.state]


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]") or address, int(port) if port.isdigit() else 0
