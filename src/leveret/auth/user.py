"""Who is logged in, as fronts see them, and what a login is made of.

Permissions are asked by kind (`CONFIGURE`, `WRITE`, `READ`) for one exchange or queue in a vhost;
`may_topic` asks for a routing key of a topic exchange. The answers follow every change at once:
a front that keeps one asks again when it is told that the user's access changed.
"""

from collections.abc import Callable
from typing import Final

from leveret.addresses import plain_host

CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"

ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"


class User:
    """An authenticated user. This one may do everything."""

    expires_ms = 0  # when the login ends by itself; 0 = never

    def __init__(self, name: str, tags: tuple[str, ...] = ()) -> None:
        self.name = name
        self._tags = tags

    @property
    def tags(self) -> tuple[str, ...]:
        return self._tags

    def may_open(self, vhost: str) -> bool:
        """Whether the user may work in a vhost at all."""
        return True

    def may(self, permission: str, vhost: str, what: str, name: str) -> bool:
        """Whether the user may configure, write to or read from a queue or exchange."""
        return True

    def may_topic(self, permission: str, vhost: str, exchange: str, routing_key: str) -> bool:
        """Whether the user may publish (`WRITE`) or bind (`READ`) with a key there."""
        return True

    def may_see(self, vhost: str) -> bool:
        """Whether lists show the user what is in a vhost."""
        tags = self.tags
        return ADMINISTRATOR in tags or MONITORING in tags or self.may_open(vhost)

    def may_impersonate(self) -> bool:
        """Whether the user may publish in the name of another."""
        return "impersonator" in self.tags


class Credentials:
    """What a peer logs in with, and where it comes from."""

    def __init__(
        self,
        name: str,
        password: str | None,
        *,
        host: str = "127.0.0.1",
        is_loopback: bool = True,
        protocol: str = "amqp091",
    ) -> None:
        self.name = name
        self.password = password  # None: the peer has proved its name by other means
        self.host = host  # the address it comes from, without the port
        self.is_loopback = is_loopback
        self.protocol = protocol  # "amqp091" or "http"


class Refusal:
    """A login that failed. The reason is for logs and operators; peers are told little."""

    def __init__(self, reason: str, retry_ms: int = 0) -> None:
        self.reason = reason
        self.retry_ms = retry_ms  # not 0: too many failures, and when it is worth trying again


# Told how a login ended: at once, or in a later turn of the engine.
LoginCallback = Callable[[User | Refusal], None]


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine itself."""
    host = plain_host(host)
    return host.startswith("127.") or host in ("::1", "localhost")
