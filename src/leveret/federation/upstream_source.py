"""The upstream end of a link: the part that exchange links and queue links share."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from leveret.amqp_client.uri import AmqpUri
from leveret.errors import PreconditionFailedError
from leveret.federation.upstreams import Upstream
from leveret.shovels.remote import RemoteSource
from leveret.shovels.settings import ShovelSettings
from leveret.shovels.targets import TargetCheck


@dataclass(frozen=True)
class LocalObject:
    """The federated exchange or queue of this node."""

    cluster: str  # name of this cluster
    vhost: str
    name: str


Local = TypeVar("Local", bound=LocalObject)


class UpstreamSource(RemoteSource, Generic[Local]):
    """Consumes from the upstream for a local exchange or queue."""

    def __init__(
        self,
        settings: ShovelSettings,
        uri: AmqpUri,
        name: str,
        check: TargetCheck,
        upstream: Upstream,
        local: Local,
    ) -> None:
        super().__init__(settings, uri, name, check)
        self._upstream = upstream
        self._local = local

    def _upstream_cluster(self) -> str:
        """Return the name of the cluster that the link is connected to; empty if it sends none."""
        field = self._client.server_properties.get("cluster_name")
        return field.value if field is not None and isinstance(field.value, str) else ""

    def _require_other_cluster(self) -> None:
        """Raise PreconditionFailedError if both clusters have the same name, which headers use."""
        local = self._local
        if local.cluster == self._upstream_cluster() and local.vhost == self._uri.vhost:
            raise PreconditionFailedError(
                f"the upstream's cluster is named '{local.cluster}' like this one:"
                " give one of them another name with PUT /api/cluster-name"
            )
