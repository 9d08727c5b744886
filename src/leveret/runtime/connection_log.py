"""The log's lines of connections: who came, who went and why."""

import logging
from typing import Final

from leveret.amqp.link import CLOSED, GONE_EARLY, OPENED, Link

log = logging.getLogger("leveret.amqp")

CLIENT_CHARS_MAX: Final = 100  # of what a client calls itself
_LEVELS: Final = {
    OPENED: logging.INFO,
    CLOSED: logging.INFO,
    GONE_EARLY: logging.DEBUG,
}


def log_event(event: str, link: Link, why: str) -> None:
    """Something happened to a connection."""
    told: dict[str, object] = {"peer": link.peer, "connection": link.name}
    if link.user is not None:
        told["user"] = link.user.name
    if link.vhost is not None:
        told["vhost"] = link.vhost.name
    product = link.client_properties.get("product")
    if event == OPENED and isinstance(product, str):
        told["client"] = product[:CLIENT_CHARS_MAX]
    if why:
        told["reason"] = why
    log.log(_LEVELS[event], event, extra={"facts": told})
