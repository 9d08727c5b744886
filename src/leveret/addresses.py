"""Listen on IPv4 and IPv6 at once, and normalise and compare addresses of peers.

`::` means every address of the machine, IPv4 included, as in RabbitMQ and most servers. Event loops
restrict an IPv6 socket to IPv6, so this module makes the socket for `::`. On that socket IPv4 peers
have addresses like `::ffff:10.0.0.7`. Code that shows or compares hosts uses `plain_host`, which
returns the same text for a peer on either kind of socket.
"""

import socket
from typing import Final

_MAPPED: Final = "::ffff:"  # RFC 4291, 2.5.5.2: an IPv4 address in IPv6 form
_MAPPED_BYTES: Final = bytes(10) + b"\xff\xff"


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


def is_loopback(host: str) -> bool:
    """Return True for a loopback address."""
    host = plain_host(host)
    return host.startswith("127.") or host in ("::1", "localhost")


def network_of(host: str) -> str:
    """Return the network by which a client is counted.

    It is the address for IPv4, and the /64 network for IPv6, because the owner of the network can
    use every address in it.
    """
    if ":" not in host:
        return host
    try:
        address = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except OSError:
        return host
    if address.startswith(_MAPPED_BYTES):
        return ".".join(str(part) for part in address[-4:])
    return address[:8].hex(":", 2)


def shown_address(name: tuple[object, ...] | None) -> str:
    """Return a socket address as host:port. IPv6 addresses have two more fields."""
    if not name:
        return "?"
    host = plain_host(str(name[0]))
    return f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"
