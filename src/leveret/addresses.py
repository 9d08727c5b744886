"""Addresses to listen on, and those of peers.

`::` stands for every address of the machine, IPv4's included, as it does for RabbitMQ and most
servers. Event loops restrict a socket of IPv6 to its own kind, so the one for `::` is made here.
Its IPv4 peers come by addresses such as `::ffff:10.0.0.7`; whoever shows or compares a host takes
the plain form, which is the same by whatever socket a peer came.
"""

import socket
from typing import Final

_MAPPED: Final = "::ffff:"  # RFC 4291, 2.5.5.2: an IPv4 address inside of IPv6


def maybe_dual_stack_socket(host: str, port: int, backlog: int) -> socket.socket | None:
    """A socket that listens to both kinds of clients, where `host` asks for it; else None.

    None also where the system cannot: `::` is IPv6 alone then. Raises OSError.
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
    """The host of a peer: IPv4 as IPv4."""
    return host.removeprefix(_MAPPED)
