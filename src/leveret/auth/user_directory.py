"""The users and permissions of this node, and the decision about password logins.

`load` reads the register after it is recovered. Fronts call `login`. Users and permissions are
changed through `users`, `permissions` and `drop_user`, inside a turn of the engine. `on_change` is
called with the name of a user whose access may have changed, `on_gone` with the name of a deleted
user.

The first start makes the default user, who can be changed and deleted like any other.
"""

from collections.abc import Callable
from typing import Final

from leveret.auth.audit import Audit
from leveret.auth.authenticator import (
    DEFAULT_NAME,
    DEFAULT_PASSWORD,
    Authenticator,
    is_remote_default_login,
)
from leveret.auth.hashes import hash_password, quick_hash
from leveret.auth.limits import USER_LIMIT, Quotas
from leveret.auth.login_counts import LoginCounts
from leveret.auth.login_throttle import LoginThrottle
from leveret.auth.password_verifier import PasswordVerifier
from leveret.auth.permissions import Permissions
from leveret.auth.user import ADMINISTRATOR, Credentials, LoginCallback, Refusal, User
from leveret.auth.users import Users
from leveret.engine.vhosts.register import Register

HTTP: Final = "http"
DEFAULT_VHOST: Final = "/"

_SEEDED: Final = "seeded"  # a kind of the register: the default user was made once
_SEED: Final = "default_user"
_EVERYTHING: Final = ".*"


class DirectoryUser(User):
    """A user of the directory. Each permission check looks into the directory again."""

    def __init__(self, directory: "UserDirectory", name: str) -> None:
        super().__init__(name)
        self._directory = directory

    @property
    def tags(self) -> tuple[str, ...]:
        account = self._directory.users.get(self.name)
        return account.tags if account is not None else ()

    def may_open(self, vhost: str) -> bool:
        return self._directory.permissions.may_open(self.name, vhost)

    def may(self, permission: str, vhost: str, what: str, name: str) -> bool:
        return self._directory.permissions.may(self.name, permission, vhost, name)

    def may_topic(self, permission: str, vhost: str, exchange: str, routing_key: str) -> bool:
        return self._directory.permissions.may_topic(
            self.name, permission, vhost, exchange, routing_key
        )


class UserDirectory(Authenticator):
    """The users and permissions of a node."""

    def __init__(
        self, register: Register, now_ms: Callable[[], int], throttle: LoginThrottle | None = None
    ) -> None:
        super().__init__(Audit(now_ms), Quotas(register))
        self._register = register
        self._now_ms = now_ms
        self.users = Users(register, self._changed)
        self.permissions = Permissions(register, self._changed)
        self.password_verifier = PasswordVerifier()
        self.throttle = throttle or LoginThrottle()
        self.login_counts = LoginCounts()
        self.on_change: Callable[[str], None] = _ignore
        self.on_gone: Callable[[str], None] = _ignore
        self.on_login: Callable[[Credentials, bool], None] = _ignore_login

    def load(self, default_user: str, default_password: str) -> None:
        """Read the register. Make the default user unless an earlier start has made it."""
        self.users.load()
        self.permissions.load()
        if self._register.get(_SEEDED, _SEED) is None:
            self._register.put(_SEEDED, _SEED, default_user)
            self._seed(default_user, default_password)
        elif default_password != DEFAULT_PASSWORD and not self.has_own_password():
            self._seed(default_user, default_password)

    def _seed(self, name: str, password: str) -> None:
        is_public = name == DEFAULT_NAME and password == DEFAULT_PASSWORD
        kept = quick_hash(password) if is_public else hash_password(password)
        self.users.put(name, kept, (ADMINISTRATOR,))
        self.permissions.put(DEFAULT_VHOST, name, _EVERYTHING, _EVERYTHING, _EVERYTHING)

    def has_own_password(self) -> bool:
        """Return True if any user has a password other than the public default."""
        for account in self.users.all():
            is_public = account.name == DEFAULT_NAME and account.password.matches(DEFAULT_PASSWORD)
            if account.password.text and not is_public:
                return True
        return False

    def login(self, credentials: Credentials, then: LoginCallback) -> None:
        wait_ms = self.throttle.wait_ms(credentials.host, credentials.name, self._now_ms())
        if wait_ms > 0:
            self._refuse_throttled(credentials, wait_ms, then)
            return
        account = self.users.get(credentials.name)
        if credentials.password is None:
            self._decide(credentials, account is not None, then)
            return

        def on_checked(is_right: bool) -> None:
            self._decide(credentials, is_right, then)

        kept = account.password if account is not None else None
        self.password_verifier.check(credentials.name, kept, credentials.password, on_checked)

    def _decide(self, credentials: Credentials, is_right: bool, then: LoginCallback) -> None:
        if not is_right or self.users.get(credentials.name) is None:
            self.throttle.failed(credentials.host, credentials.name, self._now_ms())
            self._refuse(credentials, Refusal("invalid credentials"), then)
        elif is_remote_default_login(credentials):
            self._refuse(credentials, Refusal("the default password is for this machine"), then)
        else:
            self._admit(credentials, then)

    def _admit(self, credentials: Credentials, then: LoginCallback) -> None:
        self.throttle.succeeded(credentials.host, credentials.name)
        self._count(credentials, succeeded=True)
        if (
            credentials.protocol != HTTP
        ):  # over HTTP each request logs in: too many for the audit log
            self._note(credentials, "ok")
        then(DirectoryUser(self, credentials.name))

    def _refuse(self, credentials: Credentials, refusal: Refusal, then: LoginCallback) -> None:
        self._count(credentials, succeeded=False)
        self._note(credentials, refusal.reason)
        then(refusal)

    def _refuse_throttled(
        self, credentials: Credentials, wait_ms: int, then: LoginCallback
    ) -> None:
        refusal = Refusal("too many failed logins", wait_ms)
        self._count(credentials, succeeded=False)
        if self.throttle.is_first_report(credentials.host, credentials.name):
            self._note(credentials, refusal.reason)
        then(refusal)

    def _count(self, credentials: Credentials, *, succeeded: bool) -> None:
        self.login_counts.count(
            credentials.host, credentials.name, credentials.protocol, succeeded=succeeded
        )
        self.on_login(credentials, succeeded)

    def _note(self, credentials: Credentials, result: str) -> None:
        peer = credentials.host
        self.audit.note(credentials.name, peer, "login", credentials.protocol, result)

    def drop_user(self, name: str) -> bool:
        """Delete a user with permissions and limits. Return False if there is no such user."""
        if not self.users.drop(name):
            return False
        self.permissions.drop_user(name)
        self._register.drop(USER_LIMIT, name)
        self.on_gone(name)
        return True

    def _changed(self, name: str) -> None:
        self.on_change(name)


def _ignore(name: str) -> None:
    """Do nothing: the default callback."""


def _ignore_login(credentials: Credentials, succeeded: bool) -> None:
    """Do nothing: the default callback."""
