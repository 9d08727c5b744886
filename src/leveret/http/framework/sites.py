"""Refuse requests that pages of other sites make a browser send.

Cross-site requests: a browser adds a stored login to a request, even if the page of another site
causes it. A request that may change something is refused (403) if the browser says that its page
belongs to another site: by `Sec-Fetch-Site`, or by an `Origin` other than the `Host`. Browsers send
`Sec-Fetch-Site` only over HTTPS and to this machine, so `Origin` counts without it.

DNS rebinding: a page of `evil.example` lets its own name point to 127.0.0.1. For the browser the
broker is then the site of that page, and no header except `Host` tells. The page knows no password,
but a broker trusts its own machine: the login guest/guest, the metrics. So a request of a local
client is refused (421) if its `Host` is a name that other people could own. It may be

- an IP address, or `localhost`;
- a name without a dot, or under a domain that public DNS does not have (`_PRIVATE`);
- the name of this machine, the setting `host`, or a name in the setting `http_allowed_hosts`.

A request that has one of these headers twice is refused (400): a proxy and the broker could read
different ones (RFC 9112, section 3.2).

Clients of other machines are not trusted without a password, so their `Host` is free. TLS needs no
check: a browser compares the name with the certificate.
"""

import socket
from functools import lru_cache
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from leveret.config.settings import Settings
from leveret.http.framework.clients import client_of, is_from_proxy

HOST_CHARS_MAX: Final = 300  # names in DNS are shorter; the rest of a longer one is ignored
ANY: Final = "*"
_READING: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_OWN_SITES: Final = frozenset((b"same-origin", b"none"))  # values of Sec-Fetch-Site
# Domains whose names nobody can register: RFC 6761, RFC 6762, RFC 8375, ICANN; `svc` is the domain
# of services in Kubernetes.
_PRIVATE: Final = (".localhost", ".local", ".internal", ".home.arpa", ".test", ".svc")
_PORTS: Final = {"http": ":80", "https": ":443"}
_HEADERS: Final = frozenset((b"host", b"origin", b"sec-fetch-site", b"x-forwarded-host"))
_CACHED_NAMES: Final = 256


class OwnNames:
    """The names by which clients may call this node."""

    def __init__(self, settings: Settings) -> None:
        given = {part.strip().lower() for part in settings.http_allowed_hosts.split(",")}
        self._allowed = frozenset(given - {""})
        machine = socket.gethostname().lower()
        self._own = frozenset((settings.host.lower(), machine, machine.partition(".")[0]))
        self.is_own = lru_cache(_CACHED_NAMES)(self._is_own)

    def _is_own(self, host: str) -> bool:
        """Return True if the value of a Host header names this node for certain."""
        name = _name_of(host)
        if ANY in self._allowed or self.is_allowed(host) or name in self._own:
            return True
        if "." not in name or name.endswith(_PRIVATE):
            return ":" not in name or _is_address(name)
        return _is_address(name)

    def is_allowed(self, host: str) -> bool:
        """Return True if the setting names a host, with its port or without one."""
        return host in self._allowed or _name_of(host) in self._allowed


def require_own_site(request: Request) -> None:
    """Answer 403 or 421 if the page of another site may have caused the request."""
    headers = [(name, value) for name, value in request.scope["headers"] if name in _HEADERS]
    found = dict(headers)
    if len(found) < len(headers):
        raise HTTPException(400, "a header that names the site occurs twice")
    host = found.get(b"host", b"")[:HOST_CHARS_MAX].decode("latin-1").lower()
    names: OwnNames = request.app.state.own_names
    if not names.is_own(host) and client_of(request).is_local and request.scope["scheme"] == "http":
        raise HTTPException(
            421,
            f"this node is not known as '{_name_of(host)}':"
            " if the name is yours, add it to http_allowed_hosts",
        )
    if request.method not in _READING and not _is_own_page(request, found, names, host):
        raise HTTPException(
            403,
            "the request was sent by a page of another site:"
            " if the site is yours, add its name to http_allowed_hosts",
        )


def _is_own_page(request: Request, found: dict[bytes, bytes], names: OwnNames, host: str) -> bool:
    """Return True unless a browser says that the page of another site sent the request."""
    site = found.get(b"sec-fetch-site")
    if b"origin" not in found:
        return site is None or site in _OWN_SITES
    scheme, _, sender = found[b"origin"].decode("latin-1").lower().partition("://")
    sender = _without_usual_port(sender, scheme)  # empty for the origin `null`
    if names.is_allowed(sender):
        return True
    if site is not None:
        return site in _OWN_SITES
    passed = found.get(b"x-forwarded-host")
    if passed is not None and is_from_proxy(request):
        host = passed.decode("latin-1").lower()
    return sender != "" and sender == _without_usual_port(host, scheme)


def _without_usual_port(host: str, scheme: str) -> str:
    return host.removesuffix(_PORTS.get(scheme, ":"))


def _name_of(host: str) -> str:
    """Return the name or address of a Host header, without the port and the dot of the root."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name = host.partition(":")[0] if host.count(":") == 1 else host
    return name.removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in name else socket.AF_INET, name)
    except OSError:
        return False
    return True
