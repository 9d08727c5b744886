"""The interface that decides about logins.

`leveret.auth.user_directory.UserDirectory` implements it with the users of the node.
`SingleUserAuthenticator` knows one user, who may do everything, and stores nothing.
"""

from hmac import compare_digest

from leveret.auth.audit import Audit
from leveret.auth.limits import Quotas
from leveret.auth.user import ADMINISTRATOR, Credentials, LoginCallback, Refusal, User

DEFAULT_NAME = "guest"
DEFAULT_PASSWORD = "guest"


class Authenticator:
    """Decides about logins; holds the audit log and the quotas."""

    def __init__(self, audit: Audit, quotas: Quotas) -> None:
        self.audit = audit
        self.quotas = quotas

    def login(self, credentials: Credentials, then: LoginCallback) -> None:
        """Decide about a login and call `then` with the result, at once or in a later turn."""
        raise NotImplementedError

    def renew(self, user: User, secret: str) -> User | None:
        """Return the user with new credentials, or None if these are refused.

        RabbitMQ: credentials that do not expire are not checked again.
        """
        return user


class SingleUserAuthenticator(Authenticator):
    """Knows one user, who may do everything."""

    def __init__(self, name: str, password: str) -> None:
        super().__init__(Audit(_no_time), Quotas(None))
        self._name = name
        self._password = password

    def login(self, credentials: Credentials, then: LoginCallback) -> None:
        is_same = compare_digest(credentials.name.encode(), self._name.encode())
        password = self._password if credentials.password is None else credentials.password
        sent = password.encode("utf-8", "surrogateescape")
        is_right = compare_digest(sent, self._password.encode())
        if not (is_same and is_right) or is_remote_default_login(credentials):
            then(Refusal("invalid credentials"))
        else:
            then(User(credentials.name, (ADMINISTRATOR,)))


def is_remote_default_login(credentials: Credentials) -> bool:
    """Return True for the public default login from another machine."""
    return (
        not credentials.is_loopback
        and credentials.name == DEFAULT_NAME
        and credentials.password == DEFAULT_PASSWORD
    )


def _no_time() -> int:
    return 0
