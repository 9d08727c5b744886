"""The users and permissions of this node, and the decision about password logins.

`load` reads the register after it is recovered. Fronts call `login`. Users and permissions are
changed through `users`, `permissions` and `drop_user`, inside a turn of the engine. `on_change` is
called with the name of a user whose access may have changed, `on_gone` with the name of a deleted
user.

The first start makes the default user, who can be changed and deleted like any other.
"""

from collections.abc import Callable
from typing import Final

from leveret.addresses import network_of
from leveret.auth.audit import Audit
from leveret.auth.authenticator import (
    DEFAULT_NAME,
    DEFAULT_PASSWORD,
    Authenticator,
    is_remote_default_login,
)
from leveret.auth.hashes import hash_password, quick_hash
from leveret.auth.limits import USER_LIMIT, Quotas
from leveret.auth.login_counts import SOURCES_MAX, LoginCounts
from leveret.auth.login_throttle import LoginThrottle
from leveret.auth.password_verifier import PasswordVerifier, Question
from leveret.auth.permissions import Permissions
from leveret.auth.user import ADMINISTRATOR, Credentials, LoginCallback, Refusal, User
from leveret.auth.users import Users
from leveret.engine.vhosts.register import Register

HTTP: Final = "http"
DEFAULT_VHOST: Final = "/"
BUSY_RETRY_MS: Final = 5_000  # in this time the checks of one address are done
NOTE_AGAIN_MS: Final = 60_000  # between two entries in the audit log for a repeated refusal

_SEEDED: Final = "seeded"  # a kind of the register: the default user was made once
_SEED: Final = "default_user"
_EVERYTHING: Final = ".*"


class DirectoryUser(User):
    """A user of the directory. Each permission check looks into the directory again."""

    is_account = True

    def __init__(self, directory: "UserDirectory", name: str) -> None:
        super().__init__(name)
        self._directory = directory
        self._account = directory.users.get(name)

    def is_stale(self, now_ms: int) -> bool:
        return self._directory.users.get(self.name) is not self._account

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

    def may_every_topic(self, permission: str, vhost: str, exchange: str) -> bool:
        return self._directory.permissions.may_every_topic(self.name, permission, vhost, exchange)


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
        self._noted_ms: dict[tuple[str, str], int] = {}  # when a repeated refusal was noted
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

    def has_public_login(self) -> bool:
        """Return True if the user guest exists and has the public password."""
        guest = self.users.get(DEFAULT_NAME)
        return guest is not None and guest.password.matches(DEFAULT_PASSWORD)

    def login(self, credentials: Credentials, then: LoginCallback) -> None:
        account = self.users.get(credentials.name)
        if credentials.password is None:
            self._decide(credentials, account is not None, then)
            return
        kept = account.password if account is not None else None
        verifier = self.password_verifier
        question = verifier.question(credentials.name, kept, credentials.password)
        known = verifier.maybe_known(question)
        if known is not None:
            self._decide(credentials, known, then, is_repeated=True)
        elif self._may_guess(credentials, question, then):
            self._check(credentials, question, then)

    def _may_guess(self, credentials: Credentials, question: Question, then: LoginCallback) -> bool:
        """Count a guess before its hash is computed. Refuse it if there were too many."""
        if self.password_verifier.is_open(question):
            return True
        wait_ms = self.throttle.begin(
            credentials.host, credentials.name, self._now_ms(), question.digest
        )
        if wait_ms > 0:
            self._refuse_throttled(credentials, wait_ms, then)
        return wait_ms == 0

    def _check(self, credentials: Credentials, question: Question, then: LoginCallback) -> None:
        host, name = credentials.host, credentials.name

        def on_end(is_right: bool | None) -> None:
            if is_right is None:
                self.throttle.dropped(host, name)
            elif is_right:
                self.throttle.succeeded(host, name)
            else:
                self.throttle.failed(host, name, self._now_ms())

        def on_checked(is_right: bool | None) -> None:
            has_answer.append(True)
            credentials.on_abandoned = None
            account = self.users.get(name)
            if is_right is None:
                self._refuse_busy(credentials, then)
            elif (account.password if account is not None else None) is not question.kept:
                self.login(credentials, then)  # the password was changed during the check
            else:
                self._decide(credentials, is_right, then)

        has_answer: list[bool] = []
        network = network_of(host)
        withdraw = self.password_verifier.check(question, network, on_checked, on_end)
        if not has_answer:
            credentials.on_abandoned = withdraw

    def _decide(
        self,
        credentials: Credentials,
        is_right: bool,
        then: LoginCallback,
        *,
        is_repeated: bool = False,
    ) -> None:
        if not is_right or self.users.get(credentials.name) is None:
            refusal = Refusal("invalid credentials")
            self._count(credentials, succeeded=False)
            if not is_repeated or self._may_note_again(credentials):
                self._note(credentials, refusal.reason)
            then(refusal)
        elif is_remote_default_login(credentials):
            self._refuse(credentials, Refusal("the default password is for this machine"), then)
        else:
            self._admit(credentials, then)

    def _admit(self, credentials: Credentials, then: LoginCallback) -> None:
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
        refusal = Refusal("too many wrong passwords", wait_ms)
        self._count(credentials, succeeded=False)
        if self.throttle.is_first_report(credentials.host, credentials.name):
            self._note(credentials, refusal.reason)
        then(refusal)

    def _refuse_busy(self, credentials: Credentials, then: LoginCallback) -> None:
        refusal = Refusal("too many logins wait", BUSY_RETRY_MS, is_busy=True)
        self._count(credentials, succeeded=False)
        if self._may_note_again(credentials):
            self._note(credentials, refusal.reason)
        then(refusal)

    def _may_note_again(self, credentials: Credentials) -> bool:
        """Return True at most once in `NOTE_AGAIN_MS` for each source.

        A client with an old password tries for ever: it must not fill the audit log.
        """
        source = (network_of(credentials.host), credentials.name)
        now_ms = self._now_ms()
        noted_ms = self._noted_ms.pop(source, 0)
        may_note = now_ms - noted_ms >= NOTE_AGAIN_MS
        self._noted_ms[source] = now_ms if may_note else noted_ms
        if len(self._noted_ms) > SOURCES_MAX:
            del self._noted_ms[next(iter(self._noted_ms))]
        return may_note

    def _count(self, credentials: Credentials, *, succeeded: bool) -> None:
        self.login_counts.count(
            credentials.host, credentials.name, credentials.protocol, succeeded=succeeded
        )
        self.on_login(credentials, succeeded)

    def _note(self, credentials: Credentials, result: str) -> None:
        peer = credentials.host
        self.audit.note(credentials.name, peer, "login", credentials.protocol, result)

    def user(self, name: str) -> User | None:
        """Return a user without a login, for work that goes on after it; None if unknown."""
        return None if self.users.get(name) is None else DirectoryUser(self, name)

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
