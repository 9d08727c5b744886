"""Find the queues that a message would go to, without publishing it.

The vhost's own router is asked, so that the answer cannot differ from a publish. Only an exchange
that chooses at random may choose differently. Full queues and duplicates are not considered.
"""

from leveret.engine.commands.content import Content
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.target import Target
from leveret.engine.vhosts.vhost import Vhost


class RoutePreview:
    """The result of a routing."""

    def __init__(self) -> None:
        self.queues: list[str] = []
        self.exchanges: list[str] = []  # passed on the way, without the first
        self.held_by: list[str] = []  # delayed exchanges that would hold it
        self.alternate = False  # an alternate exchange was needed
        self.routed = False  # at least one queue or delayed exchange takes it


def preview_route(
    vhost: Vhost, exchange: Exchange, routing_key: str, content: Content
) -> RoutePreview:
    """Route a message without publishing it."""
    preview = RoutePreview()
    keys = content.address(exchange.name, routing_key).keys
    found: list[Target] = []
    preview.routed = vhost.router.route(exchange, keys, content.headers, found)
    preview.queues = [target.name for target in found]
    preview.held_by = [held.name for held in vhost.router.held]
    visited = [e for e in vhost.exchanges.values() if e.last_routing == exchange.last_routing]
    preview.exchanges = [e.name for e in visited if e is not exchange]
    for reached in visited:
        alternate = vhost.exchanges.get(reached.alternate) if reached.alternate else None
        if alternate is not None and alternate.last_routing == exchange.last_routing:
            if not _matches(reached, keys, content):
                preview.alternate = True
    return preview


def _matches(exchange: Exchange, keys: list[str], content: Content) -> bool:
    matched: list[Target] = []
    for key in keys if exchange.per_key else keys[:1]:
        exchange.match(key, content.headers, matched)
    return bool(matched)
