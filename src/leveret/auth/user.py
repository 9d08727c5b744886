"""The logged-in user, as the fronts see it, and the input and result of a login.

`may` checks a permission (`CONFIGURE`, `WRITE`, `READ`) on one exchange or queue of a vhost;
`may_topic` checks a routing key of a topic exchange. The answers change as soon as permissions
change. A front that caches an answer must ask again when it is told that the user's access changed.
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
    """An authenticated user who may do everything; subclasses restrict it."""

    expires_ms = 0  # when the login expires; 0: never

    def __init__(self, name: str, tags: tuple[str, ...] = ()) -> None:
        self.name = name
        self._tags = tags

    @property
    def tags(self) -> tuple[str, ...]:
        return self._tags

    def may_open(self, vhost: str) -> bool:
        """Return True if the user may open a vhost."""
        return True

    def may(self, permission: str, vhost: str, what: str, name: str) -> bool:
        """Return True if the user has a permission on a queue or exchange."""
        return True

    def may_topic(self, permission: str, vhost: str, exchange: str, routing_key: str) -> bool:
        """Return True if the user may publish (`WRITE`) or bind (`READ`) with this key."""
        return True

    def may_see(self, vhost: str) -> bool:
        """Return True if lists show the contents of a vhost to the user."""
        tags = self.tags
        return ADMINISTRATOR in tags or MONITORING in tags or self.may_open(vhost)

    def may_impersonate(self) -> bool:
        """Return True if the user may publish with the user id of another."""
        return "impersonator" in self.tags


class Credentials:
    """The input of a login: name, password, and where the client comes from."""

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
        self.password = password  # None: a certificate has proved the name
        self.host = host  # address of the client, without the port
        self.is_loopback = is_loopback
        self.protocol = protocol  # "amqp091" or "http"


class Refusal:
    """A refused login. The reason is for the audit log; clients are not told."""

    def __init__(self, reason: str, retry_ms: int = 0) -> None:
        self.reason = reason
        self.retry_ms = retry_ms  # wait before the next try after too many failures; else 0


# Called with the result of a login, at once or in a later turn of the engine.
LoginCallback = Callable[[User | Refusal], None]


def is_loopback(host: str) -> bool:
    """Return True for a loopback address."""
    host = plain_host(host)
    return host.startswith("127.") or host in ("::1", "localhost")
