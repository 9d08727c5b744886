"""A socket that the HTTP front answers on."""

import socket
import ssl
from dataclasses import dataclass


@dataclass(frozen=True)
class Listener:
    """A bound socket, with its TLS settings if it has TLS."""

    socket: socket.socket
    context: ssl.SSLContext | None = None
    handshake_s: float | None = None  # limit of the TLS handshake, in seconds
