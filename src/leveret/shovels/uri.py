"""Addresses of brokers, as RabbitMQ's shovels write them.

    amqp[s]://user:password@host:port/vhost?heartbeat=10&connection_timeout=30000

Without a host (`amqp://`, `amqp:///vhost`) the address is this node itself. Of the query these are
understood: `heartbeat` (seconds), `connection_timeout` (milliseconds), and for amqps `cacertfile`,
`certfile`, `keyfile`, `verify` (`verify_peer`, `verify_none`), `server_name_indication`.
Certificates are verified unless `verify_none` says otherwise.
"""

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit, urlunsplit

from leveret.errors import PreconditionFailedError

PORTS: Final = {"amqp": 5672, "amqps": 5671}
HTTP_SCHEMES: Final = ("http", "https")
_HIDDEN: Final = "******"


@dataclass(frozen=True)
class AmqpUri:
    """A broker, and who logs in there."""

    host: str  # empty: this node
    port: int
    user: str
    password: str = field(repr=False)
    vhost: str
    tls: bool
    heartbeat_s: int = 60
    timeout_s: float = 30.0
    query: dict[str, str] = field(default_factory=dict, repr=False)

    def ssl_context(self) -> ssl.SSLContext | None:
        """How to secure the connection, if it is to be. Raises OSError for unreadable files."""
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=self.query.get("cacertfile"))
        if self.query.get("verify") == "verify_none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if "certfile" in self.query:
            context.load_cert_chain(self.query["certfile"], self.query.get("keyfile"))
        return context


def amqp_uri(text: str, vhost: str) -> AmqpUri:
    """The address in a text; `vhost` is what is meant where it names none."""
    parts, port = _split(text)
    if parts.scheme not in PORTS:
        raise PreconditionFailedError(f"{hidden(text)} is not an amqp:// or amqps:// address")
    query = dict(parse_qsl(parts.query))
    heartbeat_s = _number(query, "heartbeat", 60)
    timeout_ms = _number(query, "connection_timeout", 30_000)
    return AmqpUri(
        host=parts.hostname or "",
        port=port or PORTS[parts.scheme],
        user=unquote(parts.username) if parts.username is not None else "guest",
        password=unquote(parts.password) if parts.password is not None else "guest",
        vhost=unquote(parts.path[1:]) if len(parts.path) > 1 else _default_vhost(parts, vhost),
        tls=parts.scheme == "amqps",
        heartbeat_s=min(heartbeat_s, 0xFFFF),
        timeout_s=max(timeout_ms, 1) / 1000,
        query=query,
    )


def _default_vhost(parts: SplitResult, vhost: str) -> str:
    """RabbitMQ: `amqp://` is the vhost of the shovel, a broker elsewhere has its default one."""
    return "/" if parts.hostname else vhost


def http_uri(text: str) -> str:
    """An address for HTTP, checked."""
    parts, _ = _split(text)
    if parts.scheme not in HTTP_SCHEMES or not parts.hostname:
        raise PreconditionFailedError(f"{hidden(text)} is not an http:// or https:// address")
    return text


def _split(text: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(text)
        return parts, parts.port
    except ValueError:
        raise PreconditionFailedError(f"{hidden(text)} is not an address") from None


def _number(query: dict[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isdecimal() or len(text) > 9:
        raise PreconditionFailedError(f"'{name}' in an address must be a number")
    return int(text)


def hidden(text: str) -> str:
    """An address as it may be shown: without its password and its query."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "the address"
    place = parts.netloc
    if "@" in place:
        login, _, host = place.rpartition("@")
        name, has_password, _ = login.partition(":")
        place = f"{name}:{_HIDDEN}@{host}" if has_password else f"{name}@{host}"
    return urlunsplit((parts.scheme, place, parts.path, "", ""))
