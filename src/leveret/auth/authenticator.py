"""Who decides over logins: the interface that fronts ask.

`leveret.auth.user_directory.Directory` is the one that knows users; `SingleUserAuthenticator` knows
one, who may do everything, and serves where nothing is stored.
"""

from hmac import compare_digest

from leveret.auth.audit import Audit
from leveret.auth.limits import Quotas
from leveret.auth.user import ADMINISTRATOR, Credentials, LoginCallback, Refusal, User

DEFAULT_NAME = "guest"
DEFAULT_PASSWORD = "guest"


class Authenticator:
    """Decides over logins, and keeps account of who did what."""

    def __init__(self, audit: Audit, quotas: Quotas) -> None:
        self.audit = audit
        self.quotas = quotas

    def login(self, credentials: Credentials, then: LoginCallback) -> None:
        """Decide; `then` is told the user or the refusal, at once or in a later turn."""
        raise NotImplementedError

    def renew(self, user: User, secret: str) -> User | None:
        """The same user by new credentials; None where these are refused.

        RabbitMQ: a login that does not end by itself is not looked at again.
        """
        return user


class SingleUserAuthenticator(Authenticator):
    """One user with a password."""

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
    """Whether this is the password that everybody knows, used from another machine."""
    return (
        not credentials.is_loopback
        and credentials.name == DEFAULT_NAME
        and credentials.password == DEFAULT_PASSWORD
    )


def _no_time() -> int:
    return 0
