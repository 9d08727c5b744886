"""Who may connect, and what they may do.

`Authority` is the interface that fronts ask; `FixedAuthority` knows one user, who may do
everything. Users, hashed passwords, permission patterns and tokens will implement the same
interface.

Permissions are asked by kind (`CONFIGURE`, `WRITE`, `READ`) for one exchange or queue in a vhost.
"""

from hmac import compare_digest
from typing import Final

CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"


class User:
    """An authenticated user. This one may do everything."""

    expires_ms = 0  # when the login ends by itself; 0 = never

    def __init__(self, name: str, tags: tuple[str, ...] = ()) -> None:
        self.name = name
        self.tags = tags

    def may_open(self, vhost: str) -> bool:
        """Whether the user may work in a vhost at all."""
        return True

    def may(self, permission: str, vhost: str, what: str, name: str) -> bool:
        """Whether the user may configure, write to or read from a queue or exchange."""
        return True

    def may_impersonate(self) -> bool:
        """Whether the user may publish in the name of another."""
        return "impersonator" in self.tags


class Authority:
    """Who decides over logins."""

    def login(self, name: str, password: str, *, is_loopback: bool) -> User | None:
        """The user, if the credentials are right and may be used from there."""
        raise NotImplementedError

    def login_certified(self, name: str, *, is_loopback: bool) -> User | None:
        """The user whom a verified certificate names, if there is such a one."""
        return None

    def login_bearer(self, token: str) -> User | None:
        """The user of a token that came without a name."""
        return None

    def renew(self, user: User, secret: str) -> User | None:
        """The same user with new credentials; None where these are refused.

        A login that does not end by itself stays as it is, as in RabbitMQ.
        """
        return user


class FixedAuthority(Authority):
    """One user with a password. The default `guest` may come from loopback only."""

    def __init__(self, name: str, password: str) -> None:
        self._name = name
        self._password = password

    def login(self, name: str, password: str, *, is_loopback: bool) -> User | None:
        is_same = compare_digest(name.encode(), self._name.encode())
        is_right = compare_digest(password.encode(), self._password.encode())
        if not (is_same and is_right):
            return None
        if name == "guest" and not is_loopback:
            return None
        return User(name, ("administrator",))

    def login_certified(self, name: str, *, is_loopback: bool) -> User | None:
        if name != self._name or (name == "guest" and not is_loopback):
            return None
        return User(name, ("administrator",))
