"""Where a message would go: a routing without a publish.

Asks the vhost's own router, so that the answer cannot differ from what a publish does; only an
exchange that chooses at random may choose another time. Whether a queue is full, or has had the
message before, is not looked at.
"""

from leveret.engine.commands.content import Content
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.target import Target
from leveret.engine.vhosts.vhost import Vhost


class Trial:
    """What a routing found."""

    def __init__(self) -> None:
        self.queues: list[str] = []
        self.exchanges: list[str] = []  # on the way, besides the first
        self.held_by: list[str] = []  # delayed exchanges that would keep it until its time
        self.alternate = False  # an alternate exchange was needed
        self.routed = False  # somebody takes it


def try_route(vhost: Vhost, exchange: Exchange, routing_key: str, content: Content) -> Trial:
    """Route a message that nobody publishes."""
    trial = Trial()
    keys = content.address(exchange.name, routing_key).keys
    found: list[Target] = []
    trial.routed = vhost.router.route(exchange, keys, content.headers, found)
    trial.queues = [target.name for target in found]
    trial.held_by = [held.name for held in vhost.router.held]
    visited = [e for e in vhost.exchanges.values() if e.last_routing == exchange.last_routing]
    trial.exchanges = [e.name for e in visited if e is not exchange]
    for reached in visited:
        alternate = vhost.exchanges.get(reached.alternate) if reached.alternate else None
        if alternate is not None and alternate.last_routing == exchange.last_routing:
            if not _matches(reached, keys, content):
                trial.alternate = True
    return trial


def _matches(exchange: Exchange, keys: list[str], content: Content) -> bool:
    matched: list[Target] = []
    for key in keys if exchange.per_key else keys[:1]:
        exchange.match(key, content.headers, matched)
    return bool(matched)
