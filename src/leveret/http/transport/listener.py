"""A socket that the HTTP front answers on."""

import socket
import ssl
from dataclasses import dataclass


@dataclass(frozen=True)
class Listener:
    """A bound socket, and how it is secured."""

    socket: socket.socket
    context: ssl.SSLContext | None = None
    handshake_s: float | None = None  # within which a client must have agreed on TLS
