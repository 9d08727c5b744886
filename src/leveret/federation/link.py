"""One federation link: a shovel from an upstream to a local exchange or queue.

A message that has come by `max-hops` links, or has been at this broker before, is acknowledged and
dropped. Each message that is passed on gets an entry in `x-received-from`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from leveret.amqp_client.client import Delivery
from leveret.amqp_client.uri import AmqpUri
from leveret.engine.exchanges.federation_upstream import RECEIVED_FROM, may_travel
from leveret.errors import NotFoundError
from leveret.federation.exchange_source import ExchangeSource, LocalExchange
from leveret.federation.queue_source import LocalQueue, QueueSource
from leveret.federation.travel import exchange_header, queue_header
from leveret.federation.upstreams import Upstream, shown_uri
from leveret.shovels.interfaces import ShovelSource, ShovelTarget
from leveret.shovels.local import LocalTarget
from leveret.shovels.local_node import LocalNode
from leveret.shovels.owner import Owner
from leveret.shovels.settings import ShovelSettings
from leveret.shovels.shovel import Shovel
from leveret.shovels.status import ShovelStatus
from leveret.shovels.targets import TargetCheck
from leveret.wire.properties import decode_properties
from leveret.wire.tables import Table, field_of

EXCHANGE: Final = "exchange"
QUEUE: Final = "queue"
_RECEIVED_FROM: Final = RECEIVED_FROM.encode()


class FederationLink(Shovel):
    """Carries messages from one upstream to one exchange or queue."""

    kind = "federation link"

    def __init__(
        self,
        settings: ShovelSettings,
        owner: Owner,
        node: LocalNode,
        node_name: str,
        now_ms: Callable[[], int],
        on_state: Callable[[ShovelStatus], None],
        *,
        upstream: Upstream,
        local: LocalExchange | LocalQueue,
    ) -> None:
        super().__init__(
            local.name, local.vhost, settings, owner, node, node_name, now_ms, on_state
        )
        self.upstream = upstream
        self.local = local
        self._entry: Table = {}  # the part of the `x-received-from` entry that all messages share
        self._upstream_vhost = ""

    def _make_ends(self) -> tuple[ShovelSource, ShovelTarget]:
        number = self._attempt % len(self.settings.src_uris)
        uri = self.settings.src_uris[number]
        name = f"Federation link (upstream: {self.upstream.name})"
        check = TargetCheck(self._node.targets, self._owner)
        self._entry = self._entry_of(self.upstream.uris[number])
        self._upstream_vhost = uri.vhost
        source = self._make_source(uri, name, check)
        return source, LocalTarget(self._node, self._owner, self.settings, self.vhost, name)

    def _make_source(self, uri: AmqpUri, name: str, check: TargetCheck) -> ShovelSource:
        local = self.local
        if isinstance(local, LocalExchange):
            return ExchangeSource(self.settings, uri, name, check, self.upstream, local)
        return QueueSource(self.settings, uri, name, check, self.upstream, local)

    def _entry_of(self, uri: str) -> Table:
        what = EXCHANGE if isinstance(self.local, LocalExchange) else QUEUE
        return {"uri": field_of(shown_uri(uri)), what: field_of(self.local.name)}

    def _begin_moving(self, source: ShovelSource) -> None:
        super()._begin_moving(source)
        self.on_local_change()  # a change while the source was opened has not reached it

    def on_delivery(self, delivery: Delivery) -> None:
        if isinstance(self.local, LocalExchange) and not self._may_pass(delivery):
            self._acked.append(delivery.tag)
            self._settle_soon()
            return
        super().on_delivery(delivery)

    def _may_pass(self, delivery: Delivery) -> bool:
        if _RECEIVED_FROM not in delivery.header:  # most messages: spare the decoding
            return True
        headers = decode_properties(delivery.header).headers or {}
        return may_travel(
            headers.get(RECEIVED_FROM), self.upstream.hops_max, self.local.cluster, self.vhost
        )

    def _changed(self, delivery: Delivery) -> Delivery:
        trusts = self.upstream.trusts_user_id
        if isinstance(self.local, LocalQueue):
            header = queue_header(delivery, self._entry, keeps_user_id=trusts)
            return replace(delivery, header=header)
        entry = {**self._entry, "vhost": field_of(self._upstream_vhost)}
        source = self._source
        if isinstance(source, ExchangeSource) and source.cluster:
            entry["cluster-name"] = field_of(source.cluster)
        return replace(delivery, header=exchange_header(delivery, entry, keeps_user_id=trusts))

    def on_local_change(self) -> None:
        """Follow the bindings of the exchange, or the consumers of the queue."""
        try:
            if isinstance(self._source, ExchangeSource):
                self._source.update_bindings()
            elif isinstance(self._source, QueueSource):
                self._source.regulate()
        except NotFoundError:
            return  # the exchange or queue was deleted just now, and the link ends soon
