"""Accept sockets for both fronts: bind, count clients, read PROXY headers, start TLS.

- `Acceptor`      accepts the sockets of one listener and connects their protocols
- `Admission`     the interface by which a front counts clients and refuses too many
- `Client`        the true address of a client
- `Relayed`       a client of another node
- `Networks`      a set of addresses and networks, such as the trusted proxies
- `NO_DESCRIPTORS`  the reason of a refusal for want of descriptors
- `PortHints`     says which port is right for a client of another protocol
- `Refusals`      logs refused clients without filling the log
"""

from leveret.listening.acceptor import Acceptor, Admission, bound_sockets
from leveret.listening.clients import Client, Relayed
from leveret.listening.networks import Networks
from leveret.listening.port_hints import AMQP, AMQPS, HTTP, HTTPS, PortHints
from leveret.listening.refusals import NO_DESCRIPTORS, Refusals

__all__ = [
    "AMQP",
    "AMQPS",
    "HTTP",
    "HTTPS",
    "NO_DESCRIPTORS",
    "Acceptor",
    "Admission",
    "Client",
    "Networks",
    "PortHints",
    "Refusals",
    "Relayed",
    "bound_sockets",
]
