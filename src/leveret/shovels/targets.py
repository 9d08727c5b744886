"""Check which hosts a link may connect to, by their resolved addresses.

A link of an administrator may connect to every address. A link of another user may connect to
public addresses, and to hosts and networks of the setting `shovel_allowed_targets`. All others are
refused, because services there often trust their neighbours: the loopback, link-local and private
networks, carrier-grade NAT, and the addresses of this machine itself.

The host name is resolved once for a connection, and the connection goes to a checked address. A
name that resolves to another address a moment later (DNS rebinding) gains nothing.

An address may name files with certificates and keys. Only links of administrators may use them.
"""

import asyncio
import ipaddress
import re
import socket
from typing import Final

from leveret.amqp_client.uri import FILE_KEYS, AmqpUri
from leveret.errors import AccessRefusedError, ConfigError, PreconditionFailedError
from leveret.shovels.owner import Owner

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,253})")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_IPV4_BITS: Final = 0xFFFFFFFF
_ANY_PORT: Final = 9  # nothing is sent to it


class TargetRules:
    """The hosts and networks that links of all users may connect to."""

    def __init__(self, allowed: str) -> None:
        """Parse hosts and networks, separated by commas. Raise ConfigError."""
        self._names: set[str] = set()
        self._networks: list[IpNetwork] = []
        for entry in (part.strip() for part in allowed.split(",")):
            if entry:
                self._add(entry)

    def _add(self, entry: str) -> None:
        try:
            self._networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
        except ValueError:
            if _HOST_NAME.fullmatch(entry) is None:
                raise ConfigError(
                    f"shovel_allowed_targets: {entry!r} is neither a host nor a network"
                ) from None
            self._names.add(entry.lower())

    def allows(self, host: str, address: str) -> bool:
        """Return True if links of all users may connect to this address of a host."""
        found = ipaddress.ip_address(address.partition("%")[0])
        if host.lower() in self._names or self._is_listed(found):
            return True
        inner = _embedded(found)
        if inner != found and self._is_listed(inner):
            return True
        return is_public(found) and not is_own(address)

    def _is_listed(self, address: IpAddress) -> bool:
        return any(address in network for network in self._networks)


class TargetCheck:
    """Resolves and checks the hosts of one link."""

    def __init__(self, rules: TargetRules, owner: Owner) -> None:
        self._rules = rules
        self._owner = owner
        self._used: set[tuple[str, str]] = set()  # host and address

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the allowed addresses of a host. Raise AccessRefusedError if there is none."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError:
            raise PreconditionFailedError(f"'{host}' is not the name of a host") from None
        addresses = list(dict.fromkeys(str(row[4][0]) for row in found))
        allowed = [address for address in addresses if self._is_allowed(host, address)]
        if not allowed:
            self._refuse(host)
        self._used.update((host, address) for address in allowed)
        return allowed

    def require_files(self, uri: AmqpUri) -> None:
        """Raise AccessRefusedError if an address names files that the owner may not use.

        Keys and certificates on the disk of the node belong to its operator.
        """
        if any(name in uri.query for name in FILE_KEYS) and not self._owner.is_administrator():
            raise AccessRefusedError(
                f"user '{self._owner.name}' may not use files of the broker: only an administrator"
                f" can set an address with {', '.join(FILE_KEYS)}"
            )

    def require(self, uri: AmqpUri | None = None) -> None:
        """Raise AccessRefusedError if the owner may no longer use a resolved address."""
        self._owner.user()
        if uri is not None:
            self.require_files(uri)
        for host, address in self._used:
            if not self._is_allowed(host, address):
                self._refuse(host)

    def _is_allowed(self, host: str, address: str) -> bool:
        return self._owner.is_administrator() or self._rules.allows(host, address)

    def _refuse(self, host: str) -> None:
        raise AccessRefusedError(
            f"user '{self._owner.name}' may not connect to '{host}', which is not a public address:"
            " an administrator can set the shovel, or allow the host in shovel_allowed_targets"
        )


def is_public(address: IpAddress) -> bool:
    """Return True for an address of the public internet."""
    inner = _embedded(address)
    return inner.is_global and not inner.is_multicast


def is_own(address: str) -> bool:
    """Return True if this machine has the address.

    A machine that connects to one of its own addresses uses the same address as its own end.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _ANY_PORT))  # sends nothing
            own = str(probe.getsockname()[0])
    except OSError:
        return False
    return ipaddress.ip_address(own.partition("%")[0]) == ipaddress.ip_address(
        address.partition("%")[0]
    )


def _embedded(address: IpAddress) -> IpAddress:
    """Return the IPv4 address that an IPv6 address leads to, else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & _IPV4_BITS)
    return address
