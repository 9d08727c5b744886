"""The true client of a request: the peer of its socket, or the client behind trusted proxies.

A trusted proxy (setting `http_trusted_proxies`) names the client in `X-Forwarded-For` or
`Forwarded`. Each proxy appends the address that it got the request from, so the list is read from
its end: the first address that is not a trusted proxy is the client. All addresses before it were
written by the client and prove nothing. If both headers are there and disagree, one of them may
come from the client; then the client is unknown.

A client is local if it is on this machine and nothing says that the request was forwarded. Without
the setting, a proxy on this machine would make everybody local.
"""

from typing import Final

from starlette.requests import Request

from leveret.addresses import is_loopback, plain_host
from leveret.listening import Client, Networks

_CLIENT: Final = "leveret.client"  # key in a scope: the client, if it was asked for before
_FOR: Final = b"x-forwarded-for"
_FORWARDED: Final = b"forwarded"
# Headers that proxies add. Browsers and other clients do not send them by themselves.
FORWARDING: Final = frozenset(
    (_FOR, _FORWARDED, b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"via")
)


def client_of(request: Request) -> Client:
    """Return the client that sent the request."""
    known: Client | None = request.scope.get(_CLIENT)
    if known is None:
        known = request.scope[_CLIENT] = _client(request)
    return known


def is_from_proxy(request: Request) -> bool:
    """Return True if a trusted proxy passed the request on."""
    proxies: Networks = request.app.state.proxies
    return proxies.has(_peer(request).host)


def _client(request: Request) -> Client:
    peer = _peer(request)
    given = [pair for pair in request.scope["headers"] if pair[0] in FORWARDING]
    if not given:
        return peer
    unnamed = peer._replace(is_local=False)
    proxies: Networks = request.app.state.proxies
    if not proxies.has(peer.host):
        return unnamed
    lists = [hops for hops in (_hops_for(given), _hops_forwarded(given)) if hops]
    found = {_last_untrusted(hops, proxies) for hops in lists}
    host = found.pop() if len(found) == 1 else None
    if host is None:
        return unnamed
    return Client(host, 0, peer.is_local and is_loopback(host))


def _peer(request: Request) -> Client:
    if request.client is None:
        return Client("127.0.0.1", 0, True)
    host = plain_host(request.client.host)
    return Client(host, request.client.port, is_loopback(host))


def _last_untrusted(hops: list[str | None], proxies: Networks) -> str | None:
    """Return the last address that is not a proxy; None if an unknown one comes after it."""
    for hop in reversed(hops):
        if hop is None or not proxies.has(hop):
            return hop
    return hops[0]


def _hops_for(headers: list[tuple[bytes, bytes]]) -> list[str | None]:
    lines = [value.decode("latin-1") for name, value in headers if name == _FOR]
    return [_address(text) for text in ",".join(lines).split(",") if text.strip()]


def _hops_forwarded(headers: list[tuple[bytes, bytes]]) -> list[str | None]:
    """RFC 7239: elements with commas between them, each with pairs such as `for="[::1]:80"`."""
    lines = [value.decode("latin-1") for name, value in headers if name == _FORWARDED]
    hops: list[str | None] = []
    for element in ",".join(lines).split(","):
        pairs = (pair.strip().partition("=") for pair in element.split(";"))
        nodes = [value.strip('"') for name, _, value in pairs if name.lower() == "for"]
        if nodes:
            hops.append(_address(nodes[0]))
        elif element.strip():
            hops.append(None)
    return hops


def _address(text: str) -> str | None:
    """Return an address without its port; None if the text is not an address."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    text = plain_host(text)
    return text if _ANY.has(text) else None


_ANY: Final = Networks("0.0.0.0/0,::/0")
