"""Say which port a client should use that speaks another protocol than the port it has reached.

Its first bytes tell the protocol. The texts are few, because they name only protocols, options and
the ports in the settings: `Refusals` logs each of them at most once a minute. A client of HTTP or
Redis gets the text as an answer too. The other protocols have no place for it.
"""

import re
from typing import Final, NamedTuple, Protocol

AMQP: Final = "amqp"
AMQPS: Final = "amqps"
HTTP: Final = "http"
HTTPS: Final = "https"
FIRST_BYTES: Final = 16  # of a client: enough to recognise a protocol

_TLS: Final = "TLS"
_HTTP_REQUEST: Final = re.compile(rb"(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|CONNECT|TRACE|PRI) ")
_REDIS_REQUEST: Final = re.compile(rb"\*[1-9][0-9]{0,5}\r\n|(PING|INFO)\r\n|(AUTH|HELLO) ", re.I)
# The codes of a start, of a request for TLS, and of one for GSSAPI, after the length.
_POSTGRES_START: Final = re.compile(rb"\x00\x00..(\x00\x03\x00\x00|\x04\xd2\x16[\x2f\x30])", re.S)
_MQTT_CONNECT: Final = re.compile(rb"\x10.{1,6}MQ(TT|Is)", re.S)
_PLAIN: Final = {AMQPS: AMQP, HTTPS: HTTP}
_SECURED: Final = {AMQP: AMQPS, HTTP: HTTPS}


class Refusal(NamedTuple):
    """Why a client is refused, and the answer in its protocol; empty if that has none."""

    reason: str
    answer: bytes = b""


class PortSettings(Protocol):
    """The ports in the settings of a node. None: there is no such port. 0: it is picked."""

    @property
    def amqp_port(self) -> int: ...

    @property
    def amqps_port(self) -> int | None: ...

    @property
    def http_port(self) -> int: ...

    @property
    def https_port(self) -> int | None: ...


class PortHints:
    """The ports of a node by their service: amqp, amqps, http, https."""

    def __init__(self, settings: PortSettings | None = None) -> None:
        self._ports: dict[str, int | None] = {AMQP: 0, HTTP: 0}
        if settings is not None:
            self._ports = {
                AMQP: settings.amqp_port,
                AMQPS: settings.amqps_port,
                HTTP: settings.http_port,
                HTTPS: settings.https_port,
            }

    def maybe_refusal(self, service: str, first: bytes) -> Refusal | None:
        """Return why a client with these first bytes is refused; None if they are not known.

        On a port with TLS, the first bytes are those inside TLS.
        """
        spoken = _protocol_of(first)
        if spoken == "AMQP" and service in (AMQP, AMQPS):
            return Refusal("the client speaks another version of AMQP: use AMQP 0-9-1")
        if not spoken or spoken == _PLAIN.get(service, service).upper():
            return None
        advice = self._advice(spoken, service, is_secured=service in _PLAIN)
        return _refusal(spoken, f"on {self._port(service)}{advice}")

    def without_tls(self, service: str, first: bytes) -> Refusal:
        """Return why a client of a port with TLS is refused that does not begin TLS."""
        spoken = _protocol_of(first)
        if spoken == _PLAIN[service].upper():
            advice = f"turn TLS on in the client, or connect it to {self._port(_PLAIN[service])}"
            return _refusal(spoken, f"without TLS on {self._port(service)}: {advice}")
        if spoken:
            advice = self._advice(spoken, service, is_secured=False)
            return _refusal(spoken, f"on {self._port(service)}{advice}")
        return Refusal(f"the client does not speak TLS on {self._port(service)}")

    def _advice(self, spoken: str, service: str, *, is_secured: bool) -> str:
        wanted = {"AMQP": AMQP, "HTTP": HTTP, _TLS: service}.get(spoken)
        if wanted is None:
            return f" of Leveret: give it the address of a server for {spoken}"
        secured = _SECURED.get(wanted, wanted)
        if spoken == _TLS and self._ports.get(secured) is None:
            return f": turn TLS off in the client, or set {secured}_port and tls_cert"
        if spoken == _TLS or (is_secured and self._ports.get(secured) is not None):
            wanted = secured
        return f": connect it to {self._port(wanted)}"

    def _port(self, service: str) -> str:
        port = self._ports.get(service)
        return f"{service}_port {port}" if port else f"{service}_port"


def _protocol_of(first: bytes) -> str:
    """Return the protocol of a client; empty if it is not known."""
    if first.startswith(b"\x16\x03"):
        return _TLS
    if first.startswith(b"AMQP"):
        return "AMQP"
    if _HTTP_REQUEST.match(first):
        return "HTTP"
    if _REDIS_REQUEST.match(first):
        return "Redis"
    if _POSTGRES_START.match(first):
        return "PostgreSQL"
    if _MQTT_CONNECT.match(first):
        return "MQTT"
    return ""


def _refusal(spoken: str, rest: str) -> Refusal:
    reason = f"the client speaks {spoken} {rest}"
    if spoken == "HTTP":
        body = f"{reason}\n".encode()
        head = (
            "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return Refusal(reason, head.encode() + body)
    if spoken == "Redis":
        return Refusal(reason, f"-ERR {reason}\r\n".encode())
    return Refusal(reason)
