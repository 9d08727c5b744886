"""The addresses of the nodes of a broker: connect to the one that answers.

The node that answered last is tried first, then the others in their order. So a bus stays with its
node, and after the loss of a node it is at the next one without a pause.
"""

from collections.abc import Sequence

from leveret.bus.connections.connection import BrokerConnection, require_address
from leveret.bus.errors import LoginRefusedError, NotConnectedError
from leveret.bus.settings import BusSettings
from leveret.errors import ConfigError


class BrokerAddresses:
    """One address, or one for each node of a cluster."""

    def __init__(self, urls: str | Sequence[str]) -> None:
        """Raise ConfigError if one of them is not the address of a broker."""
        self._urls = (urls,) if isinstance(urls, str) else tuple(urls)
        if not self._urls:
            raise ConfigError("a bus needs the address of a broker")
        for url in self._urls:
            require_address(url)
        self._first = 0  # the address that answered last

    @property
    def present(self) -> str:
        """The address that answered last."""
        return self._urls[self._first]

    async def open(self, name: str, settings: BusSettings) -> BrokerConnection:
        """Connect to the first node that answers.

        Raise LoginRefusedError if every node refuses the login, otherwise NotConnectedError.
        """
        faults: list[NotConnectedError] = []
        count = len(self._urls)
        for index in (*range(self._first, count), *range(self._first)):
            try:
                opened = await BrokerConnection.open(self._urls[index], name, settings)
            except NotConnectedError as fault:
                faults.append(fault)
            else:
                self._first = index
                return opened
        is_refused = all(isinstance(each, LoginRefusedError) for each in faults)
        kind = LoginRefusedError if is_refused else NotConnectedError
        raise kind("; ".join(map(str, faults))) from faults[-1]
