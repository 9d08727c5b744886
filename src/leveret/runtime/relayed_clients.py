"""Clients that other nodes relay to this one.

A client may come before the node serves clients: right after the election, and while the directory
is recovered. It waits then. A refusal would make its node ask again, and that takes longer. At most
`WAITING_MAX` clients wait, because nothing has counted their descriptors yet; others are refused,
and come again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from leveret.cluster.errors import ClusterError
from leveret.cluster.relay import AMQPS, HTTPS, RelayHead, attach
from leveret.listening import Client, Relayed
from leveret.runtime.fronts import make_front
from leveret.runtime.node import Node
from leveret.runtime.public_listeners import LEADER_WAIT_S
from leveret.runtime.role_changes import RoleChanges

log = logging.getLogger(__name__)

WAITING_MAX: Final = 256


class RelayedClients:
    """Gives each client to a front when the node serves clients."""

    def __init__(
        self,
        changes: RoleChanges,
        maybe_node: Callable[[], Node | None],
        will_serve: Callable[[], bool],
    ) -> None:
        self._changes = changes
        self._maybe_node = maybe_node  # returns the broker, while this node serves clients
        self._will_serve = will_serve  # returns False if this node leads no more
        self._waiting: set[asyncio.Task[None]] = set()

    @property
    def has_room(self) -> bool:
        """True if a further client may wait."""
        return len(self._waiting) < WAITING_MAX

    def take(self, transport: asyncio.Transport, head: RelayHead, rest: bytes) -> None:
        """Take a client; see `leveret.cluster.relay.attach`."""
        task = asyncio.get_running_loop().create_task(self._take(transport, head, rest))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _take(self, transport: asyncio.Transport, head: RelayHead, rest: bytes) -> None:
        client = Client(head.client_host, head.client_port, head.is_local)
        server = head.server_host, head.server_port
        relayed = Relayed(client, server, head.service in (AMQPS, HTTPS))
        try:
            with contextlib.suppress(TimeoutError, ClusterError):
                async with asyncio.timeout(LEADER_WAIT_S):
                    node = await self._serving_node()
                    if node is not None and not transport.is_closing():
                        return attach(
                            transport, await make_front(node, head, client, relayed), rest
                        )
        except Exception:  # a bug: nobody else would close the connection
            log.exception("the connection of %s is closed because of a bug", client.host)
        transport.abort()

    async def _serving_node(self) -> Node | None:
        """Return the broker when it serves clients; None if this node will not serve them."""
        await self._changes.until(lambda: self._maybe_node() is not None or not self._will_serve())
        return self._maybe_node()

    def stop(self) -> None:
        """Take no client that waits."""
        for task in self._waiting:
            task.cancel()
