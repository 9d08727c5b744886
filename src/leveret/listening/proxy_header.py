"""The header of the PROXY protocol, versions 1 and 2, which names the client of a TCP proxy.

A proxy sends the header before all other bytes of a connection, also before TLS:

    version 1    PROXY TCP4 192.0.2.1 198.51.100.7 56324 5672 CR LF      at most 107 bytes
                 PROXY UNKNOWN … CR LF
    version 2    signature:12 version-and-command:u8 family:u8 length:u16 addresses and extensions

The socket is read byte by byte up to the end of the header, because bytes after it belong to TLS or
AMQP. The caller sets the deadline.
"""

import asyncio
import socket
from ipaddress import ip_address
from typing import Final

from leveret.listening.clients import Client

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
LINE_BYTES_MAX: Final = 107  # length of a header of version 1, by its specification
ADDRESSES_BYTES_MAX: Final = 2048  # length of addresses and (ignored) extensions in version 2
_LOCAL: Final = 0x20  # version 2, command LOCAL: the proxy itself, for example a health check
_PROXY: Final = 0x21
_ADDRESS_BYTES: Final = {0x11: 4, 0x21: 16}  # by family: TCP over IPv4, TCP over IPv6


class ProxyHeaderError(Exception):
    """The connection does not begin with a valid PROXY header."""


async def read_proxy_header(sock: socket.socket, proxy: Client) -> Client:
    """Return the client behind the proxy. Raise ProxyHeaderError.

    If the header does not name the client, the address is that of the proxy and the client is not
    local. A client is local if both its address and that of the proxy are loopback addresses.
    """
    start = await _read(sock, len(SIGNATURE))
    if start == SIGNATURE:
        return await _read_version_2(sock, proxy)
    if start.startswith(b"PROXY "):
        return await _read_version_1(sock, start, proxy)
    raise ProxyHeaderError("the connection does not begin with a PROXY header")


async def _read_version_1(sock: socket.socket, line: bytes, proxy: Client) -> Client:
    while not line.endswith(b"\r\n"):
        if len(line) >= LINE_BYTES_MAX:
            raise ProxyHeaderError("the PROXY header is too long")
        line += await _read(sock, 1)
    words = line[:-2].decode("latin-1").split(" ")
    if words[1] == "UNKNOWN":
        return _unnamed(proxy)
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise ProxyHeaderError("the PROXY header does not have six words")
    port = words[4]
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ProxyHeaderError("the PROXY header has an invalid port")
    return _client(words[2], 4 if words[1] == "TCP4" else 6, int(port), proxy)


async def _read_version_2(sock: socket.socket, proxy: Client) -> Client:
    command, family, high, low = await _read(sock, 4)
    length = high << 8 | low
    if length > ADDRESSES_BYTES_MAX:
        raise ProxyHeaderError("the PROXY header is too long")
    data = await _read(sock, length)
    if command not in (_LOCAL, _PROXY):
        raise ProxyHeaderError("the PROXY header has an unknown version or command")
    size = _ADDRESS_BYTES.get(family)
    if command == _LOCAL or size is None:
        return _unnamed(proxy)
    if length < 2 * size + 4:
        raise ProxyHeaderError("the PROXY header is too short")
    port = int.from_bytes(data[2 * size : 2 * size + 2], "big")
    kind = socket.AF_INET if size == 4 else socket.AF_INET6
    return _client(socket.inet_ntop(kind, data[:size]), 4 if size == 4 else 6, port, proxy)


def _client(host: str, version: int, port: int, proxy: Client) -> Client:
    try:
        address = ip_address(host)
    except ValueError:
        raise ProxyHeaderError("the PROXY header has an invalid address") from None
    if address.version != version:
        raise ProxyHeaderError("the PROXY header has an address of another family")
    mapped = address.ipv4_mapped if address.version == 6 else None
    found = address if mapped is None else mapped
    return Client(str(found), port, proxy.is_local and found.is_loopback)


def _unnamed(proxy: Client) -> Client:
    return proxy._replace(is_local=False)


async def _read(sock: socket.socket, size: int) -> bytes:
    """Return exactly this number of bytes."""
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < size:
        piece = await loop.sock_recv(sock, size - len(data))
        if not piece:
            raise ProxyHeaderError("the connection ended within the PROXY header")
        data += piece
    return data
