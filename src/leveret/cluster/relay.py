"""A relay connection: one client's bytes between the node that it chose and the leader.

    head = size:u32 service:u8 flags:u8 host port:u32 host port:u32 version cipher name*
           client's host and port, then those of the server that it connected to; version and cipher
           of TLS; the names of the client's certificate, in the order of `CertificateNames`.
           Texts: size:u32 and that many bytes of UTF-8. Flags: 1 the client is local; 2 the node
           verifies certificates.

The handshake of `RELAY` comes first. The head follows it, and then the client's bytes, unchanged in
both directions. The receiving node attaches the protocol of the service to the connection.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, cast

from librt.strings import BytesWriter

from leveret.cluster.raft.fields import Reader, write_bytes, write_u32
from leveret.errors import FieldSyntaxError, FrameError

AMQP: Final = "amqp"
AMQPS: Final = "amqps"
HTTP: Final = "http"
HTTPS: Final = "https"
SERVICES: Final = (AMQP, AMQPS, HTTP, HTTPS)

HEAD_BYTES_MAX: Final = 64 * 1024
_SIZE_BYTES: Final = 4
_HOST_BYTES_MAX: Final = 255
_TEXT_BYTES_MAX: Final = 255
_PORT_MAX: Final = 65_535
_IS_LOCAL: Final = 1
_VERIFIES: Final = 2
NAME_BYTES_MAX: Final = 8 * 1024  # of one name in a certificate


@dataclass(frozen=True)
class CertificateNames:
    """The names in a client's certificate that the relaying node has verified."""

    login_name: str = ""  # the user that the certificate names, by the rule of the relaying node
    subject: str = ""
    issuer: str = ""
    validity: str = ""
    serial_number: str = ""

    def texts(self) -> tuple[str, ...]:
        return self.login_name, self.subject, self.issuer, self.validity, self.serial_number

    def is_too_long(self) -> bool:
        """Return True if a relay head has no room for one of the names."""
        return any(len(text.encode()) > NAME_BYTES_MAX for text in self.texts())


@dataclass(frozen=True)
class RelayHead:
    """Facts about a relayed client that the leader cannot see itself."""

    service: str
    client_host: str
    client_port: int
    server_host: str
    server_port: int
    is_local: bool = False  # the client is on the machine of the node that relays
    tls_version: str = ""  # empty: no TLS
    tls_cipher: str = ""
    verifies: bool = False  # the relaying node verifies certificates: EXTERNAL is possible
    names: CertificateNames = CertificateNames()  # empty: the client showed no certificate

    def encode(self) -> bytes:
        writer = BytesWriter()
        writer.append(SERVICES.index(self.service))
        writer.append(self.is_local * _IS_LOCAL | self.verifies * _VERIFIES)
        for host, port in (
            (self.client_host, self.client_port),
            (self.server_host, self.server_port),
        ):
            write_bytes(writer, host.encode())
            write_u32(writer, port)
        write_bytes(writer, self.tls_version.encode())
        write_bytes(writer, self.tls_cipher.encode())
        for text in self.names.texts():
            write_bytes(writer, text.encode())
        body = writer.getvalue()
        if len(body) > HEAD_BYTES_MAX:
            raise FrameError(f"a relay head of {len(body)} bytes, more than {HEAD_BYTES_MAX}")
        return len(body).to_bytes(_SIZE_BYTES, "big") + body


def take_head(data: bytes) -> tuple[RelayHead, bytes] | None:
    """Return the head at the beginning of bytes and the bytes behind it; None if it is not whole.

    Raise a `ProtocolError` if there is no head, or if it is too large.
    """
    if len(data) < _SIZE_BYTES:
        return None
    size = int.from_bytes(data[:_SIZE_BYTES], "big")
    if size > HEAD_BYTES_MAX:
        raise FrameError(f"a relay head of {size} bytes")
    end = _SIZE_BYTES + size
    if len(data) < end:
        return None
    return _decode(Reader(data, _SIZE_BYTES, end)), data[end:]


def _decode(reader: Reader) -> RelayHead:
    service = reader.u8()
    if service >= len(SERVICES):
        raise FieldSyntaxError(f"a relay for service {service}")
    flags = reader.u8()
    client = _read_text(reader, _HOST_BYTES_MAX), _read_port(reader)
    server = _read_text(reader, _HOST_BYTES_MAX), _read_port(reader)
    version = _read_text(reader, _TEXT_BYTES_MAX)
    cipher = _read_text(reader, _TEXT_BYTES_MAX)
    names = [_read_text(reader, NAME_BYTES_MAX) for _ in CertificateNames().texts()]
    reader.require_end()
    return RelayHead(
        SERVICES[service],
        *client,
        *server,
        is_local=bool(flags & _IS_LOCAL),
        tls_version=version,
        tls_cipher=cipher,
        verifies=bool(flags & _VERIFIES),
        names=CertificateNames(*names),
    )


def _read_port(reader: Reader) -> int:
    port = int(reader.u32())
    if port > _PORT_MAX:
        raise FieldSyntaxError(f"port {port}")
    return port


def _read_text(reader: Reader, bytes_max: int) -> str:
    try:
        return reader.sized_within(bytes_max).decode()
    except UnicodeDecodeError:
        raise FieldSyntaxError("a text that is not UTF-8") from None


def attach(
    transport: asyncio.Transport,
    protocol: asyncio.BaseProtocol,
    rest: bytes,
    *,
    has_ended: bool = False,
) -> None:
    """Give a connection to the protocol of a service, with the bytes that came already.

    The connection may be paused. From now on it is read. `has_ended`: the peer has ended its side,
    so nothing more can come.
    """
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    if not has_ended and not transport.is_closing() and not transport.is_reading():
        transport.resume_reading()
    # Compiled protocols have the methods of asyncio's classes without inheriting from them.
    if hasattr(protocol, "get_buffer"):
        _fill(transport, cast(asyncio.BufferedProtocol, protocol), rest)
    elif rest and not transport.is_closing():
        cast(asyncio.Protocol, protocol).data_received(rest)
    if has_ended and not transport.is_closing():
        if not cast(asyncio.Protocol, protocol).eof_received():
            transport.close()


def _fill(transport: asyncio.Transport, protocol: asyncio.BufferedProtocol, rest: bytes) -> None:
    while rest and not transport.is_closing():
        buffer = memoryview(protocol.get_buffer(len(rest)))
        size = min(len(buffer), len(rest))
        buffer[:size] = rest[:size]
        rest = rest[size:]
        protocol.buffer_updated(size)
