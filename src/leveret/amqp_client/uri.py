"""Parse the address of a broker, in the form that RabbitMQ's clients and shovels use.

    amqp[s]://user:password@host:port/vhost?heartbeat=10&connection_timeout=30000

The query may hold `heartbeat` (seconds), `connection_timeout` (milliseconds), and for amqps
`cacertfile`, `certfile`, `keyfile`, `verify` (`verify_peer`, `verify_none`) and
`server_name_indication`. Certificates are verified unless `verify_none` is given. An address may
lack the host (`amqp://`, `amqp:///vhost`); the caller decides which broker that is.
"""

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit, urlunsplit

from leveret.errors import LeveretError

PORTS: Final = {"amqp": 5672, "amqps": 5671}
HEARTBEAT_S: Final = 60
CONNECT_TIMEOUT_MS: Final = 30_000
FILE_KEYS: Final = ("cacertfile", "certfile", "keyfile")  # of the query; files of this machine
_HIDDEN: Final = "******"


class AddressError(LeveretError):
    """The text is not a usable address; passwords are left out of the error text."""


@dataclass(frozen=True)
class AmqpUri:
    """The address of a broker, with user, password and vhost."""

    host: str  # empty if the address has no host
    port: int
    user: str
    password: str = field(repr=False)
    vhost: str
    tls: bool
    has_login: bool = False  # the address names user and password; the default is guest
    heartbeat_s: int = HEARTBEAT_S
    timeout_s: float = CONNECT_TIMEOUT_MS / 1000
    query: dict[str, str] = field(default_factory=dict, repr=False)

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings, None without TLS. Raise OSError for unreadable files."""
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=self.query.get("cacertfile"))
        if self.query.get("verify") == "verify_none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if "certfile" in self.query:
            context.load_cert_chain(self.query["certfile"], self.query.get("keyfile"))
        return context


def parse_amqp_uri(text: str, default_vhost: str) -> AmqpUri:
    """Parse an address. Raise AddressError.

    `default_vhost` is the vhost of an address without host and path. RabbitMQ: an address with a
    host and without a path means the vhost `/`.
    """
    parts, port = split_address(text)
    if parts.scheme not in PORTS:
        raise AddressError(f"{hide_secrets(text)} is not an amqp:// or amqps:// address")
    query = dict(parse_qsl(parts.query))
    heartbeat_s = _number(query, "heartbeat", HEARTBEAT_S)
    timeout_ms = _number(query, "connection_timeout", CONNECT_TIMEOUT_MS)
    vhost = "/" if parts.hostname else default_vhost
    return AmqpUri(
        host=parts.hostname or "",
        port=port or PORTS[parts.scheme],
        user=unquote(parts.username) if parts.username is not None else "guest",
        password=unquote(parts.password) if parts.password is not None else "guest",
        vhost=unquote(parts.path[1:]) if len(parts.path) > 1 else vhost,
        tls=parts.scheme == "amqps",
        has_login=parts.username is not None and parts.password is not None,
        heartbeat_s=min(heartbeat_s, 0xFFFF),
        timeout_s=max(timeout_ms, 1) / 1000,
        query=query,
    )


def split_address(text: str) -> tuple[SplitResult, int | None]:
    """Split an address into its parts and its port. Raise AddressError."""
    try:
        parts = urlsplit(text)
        return parts, parts.port
    except ValueError:
        raise AddressError(f"{hide_secrets(text)} is not an address") from None


def hide_secrets(text: str) -> str:
    """Return an address without its password and its query, for logs and errors."""
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


def _number(query: dict[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isdecimal() or len(text) > 9:
        raise AddressError(f"'{name}' in an address must be a number")
    return int(text)
