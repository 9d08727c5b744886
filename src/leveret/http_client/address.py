"""The address of an HTTP server, as a connection and a request need it."""

import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Address:
    """The address of a server, and the login that its URL names."""

    host: str
    port: int
    tls: ssl.SSLContext | None  # None: plain HTTP
    host_header: str
    prefix: str  # path of the URL without a slash at its end: calls of an API are below it
    target: str  # path and query of the URL: the target of a request to the URL itself
    user: str | None
    password: str | None
    shown: str  # the URL without login, for messages


def parse_address(
    url: str, *, tls: ssl.SSLContext | None = None, default_port: int | None = None
) -> Address:
    """Return the address of an http:// or https:// URL; ValueError for any other text.

    A URL without a scheme is plain HTTP. `tls` replaces the default settings of https.
    """
    parts = urlsplit(url if "//" in url else f"http://{url}", scheme="http")
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{url!r} is not an http:// or https:// address")
    host_header = parts.netloc.rpartition("@")[2]
    return Address(
        host=parts.hostname,
        port=parts.port or default_port or _PORTS[parts.scheme],
        tls=(tls or ssl.create_default_context()) if parts.scheme == "https" else None,
        host_header=host_header,
        prefix=parts.path.rstrip("/"),
        target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        shown=f"{parts.scheme}://{host_header}{parts.path}",
    )
