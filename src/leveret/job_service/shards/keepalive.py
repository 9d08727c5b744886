"""Connections that rest: how the node keeps them open, and notices that the network has lost them.

A firewall may drop a connection that rests, and tell neither end. So the system asks the other end
for a sign of life, which also keeps the connection open, and closes it if no sign comes. A node may
use a connection before the system has noticed. Then it waits for the first sign of life for
`SIGN_S` only, and connects anew.
"""

import socket
from typing import Any, Final

REST_S: Final = 10.0  # without an answer, after which a connection counts as rested
SIGN_S: Final = 0.25  # for which a rested connection may be silent before the node connects anew
_RETRY_S: Final = 3
_RETRIES: Final = 3
# macOS names the first option in another way.
_IDLE: Final = getattr(socket, "TCP_KEEPIDLE", None) or getattr(socket, "TCP_KEEPALIVE", None)
TCP_OPTIONS: Final[dict[int, int]] = {
    option: value
    for option, value in (
        (_IDLE, round(REST_S)),
        (getattr(socket, "TCP_KEEPINTVL", None), _RETRY_S),
        (getattr(socket, "TCP_KEEPCNT", None), _RETRIES),
    )
    if option is not None
}


def keep_alive(transport: Any) -> None:
    """Let the system ask the other end of a TCP connection for signs of life."""
    found: Any = transport.get_extra_info("socket")
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in TCP_OPTIONS.items():
        found.setsockopt(socket.IPPROTO_TCP, option, value)
