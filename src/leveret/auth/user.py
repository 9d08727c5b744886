"""The logged-in user, as the fronts see it, and the input and result of a login.

`may` checks a permission (`CONFIGURE`, `WRITE`, `READ`) on one exchange or queue of a vhost;
`may_topic` checks a routing key of a topic exchange. The answers change as soon as permissions
change. A front that caches an answer must ask again when it is told that the user's access changed.
"""

from collections.abc import Callable
from typing import Final

CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"

TOKEN_USER_PREFIX: Final = "oauth2:"  # begins the identity of a user who is known by a token only
NAME_LENGTH_MAX: Final = 255  # characters of a user's name

ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
# RabbitMQ: each of these tags gives access to the management API.
MANAGEMENT_TAGS: Final = frozenset(("management", "policymaker", MONITORING, ADMINISTRATOR))


class User:
    """An authenticated user who may do everything; subclasses restrict it."""

    expires_ms = 0  # when the login expires; 0: never
    is_account = False  # True if the user is in the directory, so that it outlives the login

    def __init__(self, name: str, tags: tuple[str, ...] = ()) -> None:
        self.name = name
        self._tags = tags

    @property
    def identity(self) -> str:
        """Return the name under which the user owns things and is counted and audited.

        It differs from `name` for users who are no users of this node.
        """
        return self.name

    @property
    def tags(self) -> tuple[str, ...]:
        return self._tags

    def is_stale(self, now_ms: int) -> bool:
        """Return True if the login must be repeated: the user was changed, or the token expired."""
        return 0 < self.expires_ms <= now_ms

    def may_open(self, vhost: str) -> bool:
        """Return True if the user may open a vhost."""
        return True

    def may(self, permission: str, vhost: str, what: str, name: str) -> bool:
        """Return True if the user has a permission on a queue or exchange."""
        return True

    def may_topic(self, permission: str, vhost: str, exchange: str, routing_key: str) -> bool:
        """Return True if the user may publish (`WRITE`) or bind (`READ`) with this key."""
        return True

    def may_every_topic(self, permission: str, vhost: str, exchange: str) -> bool:
        """Return True if `may_topic` allows every routing key."""
        return True

    def may_see(self, vhost: str) -> bool:
        """Return True if lists show the contents of a vhost to the user."""
        tags = self.tags
        return ADMINISTRATOR in tags or MONITORING in tags or self.may_open(vhost)

    def may_claim(self, name: str) -> bool:
        """Return True if the user may publish with this name as `user_id`."""
        return name == self.name or "impersonator" in self.tags


class Credentials:
    """The input of a login: name, password, and where the client comes from.

    A name that is too long for a user is cut, so that nothing that remembers failed logins grows by
    the names that strangers make up.
    """

    def __init__(
        self,
        name: str,
        password: str | None,
        *,
        host: str = "127.0.0.1",
        is_loopback: bool = True,
        protocol: str = "amqp091",
    ) -> None:
        self.name = name if len(name) <= NAME_LENGTH_MAX else name[:NAME_LENGTH_MAX] + "…"
        self.password = password  # None: a certificate has proved the name
        self.host = host  # address of the client, without the port
        self.is_loopback = is_loopback
        self.protocol = protocol  # "amqp091" or "http"
        self.on_abandoned: Callable[[], None] | None = None  # set while the login is decided

    def abandon(self) -> None:
        """Withdraw the login: the client is gone. Its callback may still be called."""
        withdraw, self.on_abandoned = self.on_abandoned, None
        if withdraw is not None:
            withdraw()


class Refusal:
    """A refused login. The reason is for the audit log; clients are not told."""

    def __init__(self, reason: str, retry_ms: int = 0, *, is_busy: bool = False) -> None:
        self.reason = reason
        # How long the client shall wait before it tries again; 0 if the credentials are wrong, else
        # they were not checked.
        self.retry_ms = retry_ms
        self.is_busy = is_busy  # too many logins wait, of any clients


# Called with the result of a login, at once or in a later turn of the engine.
LoginCallback = Callable[[User | Refusal], None]
