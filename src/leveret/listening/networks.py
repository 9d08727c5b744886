"""Sets of addresses, such as the proxies that a setting trusts."""

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from leveret.addresses import plain_host


class Networks:
    """Addresses and networks from a setting such as `10.0.0.7,192.168.0.0/16,::1`."""

    def __init__(self, text: str) -> None:
        """Raise ValueError if a part of the text is neither an address nor a network."""
        parts = [part.strip() for part in text.split(",")]
        self._networks: list[IPv4Network | IPv6Network] = [
            ip_network(part, strict=False) for part in parts if part
        ]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def has(self, host: str) -> bool:
        """Return True if an address belongs to one of the networks."""
        if not self._networks:
            return False
        try:
            address = ip_address(plain_host(host).partition("%")[0])
        except ValueError:
            return False
        return any(address in network for network in self._networks)
