"""A TCP proxy in a thread that writes a header, such as that of the PROXY protocol, before all."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Final

HOST: Final = "127.0.0.1"
SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
READ_BYTES: Final = 65_536


def version_1(host: str, port: int = 4000) -> bytes:
    """Return the header of a client, in version 1."""
    kind, own = ("TCP6", "::1") if ":" in host else ("TCP4", "192.0.2.9")
    return f"PROXY {kind} {host} {own} {port} 5672\r\n".encode()


def version_2(host: str, port: int = 4000, extension: bytes = b"") -> bytes:
    """Return the header of a client, in version 2."""
    family, code = (socket.AF_INET6, 0x21) if ":" in host else (socket.AF_INET, 0x11)
    address = socket.inet_pton(family, host)
    rest = 2 * address + struct.pack(">HH", port, 5672) + extension
    return SIGNATURE + struct.pack(">BBH", 0x21, code, len(rest)) + rest


@contextlib.contextmanager
def header_proxy(target: tuple[str, int], header: bytes, host: str = HOST) -> Iterator[int]:
    """Run a proxy before a target, and yield its port. It connects from the address `host`."""
    with socket.create_server((HOST, 0)) as listening:
        threading.Thread(target=_serve, args=(listening, target, header, host), daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def _serve(listening: socket.socket, target: tuple[str, int], header: bytes, host: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            client = listening.accept()[0]
            threading.Thread(
                target=_carry, args=(client, target, header, host), daemon=True
            ).start()


def _carry(client: socket.socket, target: tuple[str, int], header: bytes, host: str) -> None:
    with client, socket.create_connection(target, source_address=(host, 0)) as broker:
        broker.sendall(header)
        back = threading.Thread(target=_pump, args=(broker, client), daemon=True)
        back.start()
        _pump(client, broker)
        back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(READ_BYTES):
            sink.sendall(data)
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
