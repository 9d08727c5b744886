"""Listen on IPv4 and IPv6 at once, and normalise addresses of peers.

`::` means every address of the machine, IPv4 included, as in RabbitMQ and most servers. Event loops
restrict an IPv6 socket to IPv6, so this module makes the socket for `::`. On that socket IPv4 peers
have addresses like `::ffff:10.0.0.7`. Code that shows or compares hosts uses `plain_host`, which
returns the same text for a peer on either kind of socket.
"""

import socket
from typing import Final

_MAPPED: Final = "::ffff:"  # RFC 4291, 2.5.5.2: an IPv4 address in IPv6 form


def maybe_dual_stack_socket(host: str, port: int, backlog: int) -> socket.socket | None:
    """Return a listening socket for IPv4 and IPv6 if `host` is `::`, else None.

    Also None if the system cannot do it; then `::` means IPv6 alone. Raises OSError.
    """
    try:
        is_any = not any(socket.inet_pton(socket.AF_INET6, host))
    except OSError:  # a name, or IPv4
        return None
    if not is_any or not socket.has_dualstack_ipv6():
        return None
    bound = socket.create_server(
        (host, port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True
    )
    bound.setblocking(False)
    return bound


def plain_host(host: str) -> str:
    """Return the host of a peer, with IPv4 addresses in their usual form."""
    return host.removeprefix(_MAPPED)
