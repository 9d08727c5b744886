"""Run a node of a cluster as a process does: options, listeners, the node, its end."""

import asyncio
import logging
import ssl
import stat
from typing import Final

from leveret.clock import Clock
from leveret.cluster.handshake import SECRET_BYTES_MIN
from leveret.cluster.member import NodeSettings
from leveret.cluster.peers import Tls, parse_address
from leveret.cluster.relay import AMQP, AMQPS, HTTP, HTTPS
from leveret.config.settings import Settings
from leveret.errors import ConfigError
from leveret.http.framework.node import Listener
from leveret.listening import Networks, PortHints
from leveret.runtime.certificates import Certificates
from leveret.runtime.cluster_node import ClusterNode
from leveret.runtime.job_tokens import put_cluster_secret
from leveret.runtime.jobs import import_shards
from leveret.runtime.public_listeners import PublicListeners
from leveret.runtime.spare_memory import LOOK_S, SpareMemory
from leveret.runtime.start_faults import naming
from leveret.runtime.tracing import otlp_exporter
from leveret.storage.blocks import VERSION
from leveret.storage.disk import Disk, descriptors_max

log = logging.getLogger(__name__)

DESCRIPTORS_KEPT: Final = 256  # for files, other nodes, and the broker of a node that leads


class ClusteredNode:
    """A node of a cluster with its public listeners."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Make the node. Raises ConfigError."""
        self.settings = settings
        _check_parts_of_leader(settings)
        uses_tls = settings.amqps_port is not None or settings.https_port is not None
        self._certificates: Certificates | None = None
        if uses_tls or settings.cluster_tls:
            self._certificates = Certificates(settings)
        tls: Tls | None = None
        if settings.cluster_tls:
            assert self._certificates is not None
            tls = Tls(self._certificates.links, self._certificates.dialing)
        self.node = ClusterNode(
            settings, node_settings(settings), clock, Disk(settings.data), tls=tls
        )
        if self._certificates is not None:
            self.node.certificates = self._certificates.ends
        proxies = Networks(settings.amqp_trusted_proxies)
        files_max = descriptors_max()
        descriptors_end = files_max - min(files_max // 4, DESCRIPTORS_KEPT)
        rule = self._certificates.name_rule if self._certificates is not None else None
        self._listeners = PublicListeners(
            self.node.find_server,
            self.node.relays,
            descriptors_end,
            proxies,
            rule,
            self.node.relay_fault,
            PortHints(settings),
        )
        self.node.count_clients = self._listeners.relayed_count
        self.node.open_secret_file = open_secret_file(settings)
        self._memory = SpareMemory(self._received_bytes)
        self.node.on_dropped = self._memory.note_dropped
        self._look: asyncio.TimerHandle | None = None  # at the memory
        self.addresses: dict[str, tuple[str, int]] = {}  # bound addresses by service

    async def start(self) -> None:
        """Begin, and listen. Raises OSError and LeveretError."""
        address = parse_address(self.settings.cluster_listen)
        with naming("cluster_listen", address.host, "cluster_listen", address.port):
            await self.node.start(address.host, address.port)
        self._look_at_memory()
        settings = self.settings
        put_cluster_secret(settings.data, self.node.cluster.secret)
        certificates = self._certificates
        self._listen(AMQP, "amqp_port")
        self._listen(HTTP, "http_port")
        if certificates is not None:
            self._listen(AMQPS, "amqps_port", certificates.amqp)
            self._listen(HTTPS, "https_port", certificates.http)
        for service, bound in self.addresses.items():
            protocol = "amqp/ssl" if service == AMQPS else service  # RabbitMQ's name
            self.node.bound.append(Listener(protocol, *bound))

    def _listen(self, service: str, option: str, context: ssl.SSLContext | None = None) -> None:
        host, port = self.settings.host, getattr(self.settings, option)
        if port is not None:
            with naming("host", host, option, port):
                self.addresses[service] = self._listeners.listen(service, host, port, context)

    def _look_at_memory(self) -> None:
        self._memory.look()
        self._look = asyncio.get_running_loop().call_later(LOOK_S, self._look_at_memory)

    def _received_bytes(self) -> int:
        return sum(link.received_bytes for link in self.node.member.links.facts())

    async def serves(self) -> None:
        """Return when clients are served, by this node or through it."""
        await self.node.serves()

    def reload(self) -> None:
        """Read the certificates again, and the keys of tokens."""
        if self._certificates is not None:
            self._certificates.reload()
        if self.node.node is not None:
            self.node.node.reload()

    async def stop(self) -> None:
        """Hand the lead over, if this node leads, and stop."""
        if self._look is not None:
            self._look.cancel()
        await self.node.stop()
        await self._listeners.stop()


def _check_parts_of_leader(settings: Settings) -> None:
    """Raise ConfigError for an option that only a leader uses: it must not fail at an election."""
    if settings.jobs_postgres:
        import_shards(settings)
    if settings.otel_endpoint:
        otlp_exporter(settings.otel_endpoint, settings.node)


def node_settings(settings: Settings) -> NodeSettings:
    """Return the settings of the cluster's member. Raises ConfigError."""
    peers = {}
    for peer in settings.cluster_peers.split(","):
        name, _, text = peer.partition("=")
        try:
            peers[name] = parse_address(text)
        except ValueError as fault:
            raise ConfigError(f"cluster_peers: {fault}") from fault
    return NodeSettings(
        name=settings.node,
        address=str(peers[settings.node]),
        peers=peers,
        secret=_secret(settings),
        format_max=VERSION,
    )


def open_secret_file(settings: Settings) -> str:
    """Return the path of the secret file if other users may read it; else an empty text."""
    path = settings.cluster_secret_file
    if path is None or not path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        return ""
    log.warning(
        "other users may read the file %s with the secret of the cluster: run `chmod 600` on it",
        path,
    )
    return str(path)


def _secret(settings: Settings) -> bytes:
    path = settings.cluster_secret_file
    if path is None:
        return str(settings.cluster_secret).encode()
    try:
        secret = path.read_bytes().rstrip(b"\r\n")
    except OSError as fault:
        raise ConfigError(f"cluster_secret_file: {path}: {fault.strerror}") from fault
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(f"cluster_secret_file: {path} has less than {SECRET_BYTES_MIN} bytes")
    return secret
