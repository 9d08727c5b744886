"""The true address of a client, and the node to which it has connected."""

from typing import NamedTuple


class Client(NamedTuple):
    """A client, as its socket or a trusted proxy describes it."""

    host: str
    port: int
    is_local: bool  # on this machine; False if a proxy does not name the client


class Relayed(NamedTuple):
    """A client of another node, which relays its bytes to this one."""

    client: Client
    server: tuple[str, int]  # the address of the other node that the client has connected to
    is_secured: bool  # the client uses TLS, which ends at the other node
