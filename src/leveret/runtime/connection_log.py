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
    facts: dict[str, object] = {"peer": connection.peer, "connection": connection.name}
    if connection.user is not None:
        facts["user"] = connection.user.name
    if connection.vhost is not None:
        facts["vhost"] = connection.vhost.name
    product = connection.client_properties.get("product")
    if event == OPENED and isinstance(product, str):
        facts["client"] = product[:CLIENT_CHARS_MAX]
    if why:
        facts["reason"] = why
    log.log(_LEVELS[event], event, extra={"facts": facts})
