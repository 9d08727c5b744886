"""Log when connections open and close, and why."""

import logging
from typing import Final

from leveret.amqp.connection_base import CLOSED, GONE_EARLY, OPENED, ConnectionBase

log = logging.getLogger("leveret.amqp")

CLIENT_CHARS_MAX: Final = 100  # of the product name that a client sends
_LEVELS: Final = {
    OPENED: logging.INFO,
    CLOSED: logging.INFO,
    GONE_EARLY: logging.DEBUG,
}


def log_event(event: str, connection: ConnectionBase, why: str) -> None:
    """Log an event of a connection."""
    told: dict[str, object] = {"peer": connection.peer, "connection": connection.name}
    if connection.user is not None:
        told["user"] = connection.user.name
    if connection.vhost is not None:
        told["vhost"] = connection.vhost.name
    product = connection.client_properties.get("product")
    if event == OPENED and isinstance(product, str):
        told["client"] = product[:CLIENT_CHARS_MAX]
    if why:
        told["reason"] = why
    log.log(_LEVELS[event], event, extra={"facts": told})
