"""Ports of the loopback interface for servers that tests and tools start."""

import socket
from typing import Final

HOST: Final = "127.0.0.1"


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.create_server((HOST, 0)) as probe:
        return int(probe.getsockname()[1])
