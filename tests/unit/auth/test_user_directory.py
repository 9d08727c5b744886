"""The user directory: first start, logins, refusals, and deletion of users."""

import logging

import pytest

from leveret.auth import READ, Credentials, Refusal, User, UserDirectory, hash_password
from leveret.auth.audit import EVENTS_MAX, Audit
from leveret.auth.hashes import NO_PASSWORD, quick_hash
from leveret.auth.login_counts import SOURCES_MAX, LoginCounts
from leveret.auth.login_throttle import WAIT_MS_MIN, LoginThrottle
from leveret.engine.broker import Broker
from leveret.engine.vhosts.register import Register
from leveret.errors import PreconditionFailedError

FREE = 3


class Stand:
    """A directory whose time stands still unless it is moved."""

    def __init__(self, register: Register | None = None, password: str = "guest") -> None:
        self.now_ms = 1_700_000_000_000
        self.register = register or Broker(1).register
        self.directory = UserDirectory(self.register, lambda: self.now_ms, LoginThrottle(FREE))
        self.directory.load("guest", password)

    def login(
        self, name: str, password: str | None, host: str = "127.0.0.1", protocol: str = "amqp091"
    ) -> User | Refusal:
        outcomes: list[User | Refusal] = []
        credentials = Credentials(
            name, password, host=host, is_loopback=host == "127.0.0.1", protocol=protocol
        )
        self.directory.login(credentials, outcomes.append)
        (outcome,) = outcomes
        return outcome


def test_first_start_makes_the_default_user_an_administrator() -> None:
    user = Stand().login("guest", "guest")
    assert isinstance(user, User)
    assert user.tags == ("administrator",)
    assert user.may_open("/")
    assert user.may(READ, "/", "queue", "any")


def test_users_stay_and_a_deleted_default_user_stays_away() -> None:
    stand = Stand()
    stand.directory.users.put("amy", hash_password("pw"), ["monitoring", "x"])
    stand.directory.drop_user("guest")
    again = Stand(stand.register)
    assert isinstance(again.login("guest", "guest"), Refusal)
    amy = again.login("amy", "pw")
    assert isinstance(amy, User)
    assert amy.tags == ("monitoring", "x")
    assert not amy.may_open("/")
    assert amy.may_see("/")


@pytest.mark.parametrize(
    ("name", "password"), [("guest", "wrong"), ("nobody", "guest"), ("", ""), ("guest", "")]
)
def test_wrong_credentials_are_refused(name: str, password: str) -> None:
    outcome = Stand().login(name, password)
    assert isinstance(outcome, Refusal)
    assert outcome.reason == "invalid credentials"


def test_public_password_is_for_this_machine_and_an_own_one_is_not() -> None:
    assert isinstance(Stand().login("guest", "guest", "10.0.0.1"), Refusal)
    assert isinstance(Stand(password="own").login("guest", "own", "10.0.0.1"), User)


def test_somebody_has_a_password_of_their_own() -> None:
    stand = Stand()
    assert not stand.directory.has_own_password()
    stand.directory.users.put("amy", NO_PASSWORD, [])
    assert not stand.directory.has_own_password()
    stand.directory.users.put("amy", quick_hash("pw"), [])
    assert stand.directory.has_own_password()
    assert Stand(password="own").directory.has_own_password()


def test_later_start_with_a_password_replaces_only_the_public_one() -> None:
    stand = Stand()
    again = Stand(stand.register, password="own")
    assert isinstance(again.login("guest", "own"), User)
    third = Stand(stand.register, password="another")
    assert isinstance(third.login("guest", "own"), User)
    assert isinstance(third.login("guest", "another"), Refusal)


def test_name_that_was_proved_otherwise_needs_no_password() -> None:
    stand = Stand()
    stand.directory.users.put("cert", NO_PASSWORD, [])
    assert isinstance(stand.login("cert", None), User)
    assert isinstance(stand.login("cert", ""), Refusal)
    assert isinstance(stand.login("other", None), Refusal)


def test_guessing_is_throttled_but_not_the_right_password_from_elsewhere() -> None:
    stand = Stand()
    stand.directory.users.put("amy", quick_hash("pw"), [])
    for number in range(FREE + 1):
        stand.login("amy", f"guess{number}", "10.0.0.1")
    refused = stand.login("amy", "pw", "10.0.0.1")
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.retry_ms) == ("too many failed logins", WAIT_MS_MIN)
    assert isinstance(stand.login("amy", "pw", "10.0.0.2"), User)
    stand.now_ms += WAIT_MS_MIN
    assert isinstance(stand.login("amy", "pw", "10.0.0.1"), User)


def test_deleting_a_user_takes_permissions_and_limits_along() -> None:
    stand = Stand()
    told: list[str] = []
    stand.directory.on_gone = told.append
    stand.directory.users.put("amy", quick_hash("pw"), ["administrator"])
    stand.directory.permissions.put("/", "amy", ".*", ".*", ".*")
    stand.register.put("user_limit", "amy", "{}")
    amy = stand.login("amy", "pw")
    assert isinstance(amy, User)
    assert stand.directory.drop_user("amy")
    assert not stand.directory.drop_user("amy")
    assert (amy.tags, amy.may_open("/"), told) == ((), False, ["amy"])
    assert stand.register.get("user_limit", "amy") is None
    assert isinstance(stand.login("amy", "pw"), Refusal)


@pytest.mark.parametrize("name", ["", "x" * 256, "\udcff"])
def test_bad_names_are_refused(name: str) -> None:
    stand = Stand()
    with pytest.raises(PreconditionFailedError):
        stand.directory.users.put(name, NO_PASSWORD, [])
    assert len(stand.directory.users.all()) == 1


def test_logins_are_counted_and_audited(caplog: pytest.LogCaptureFixture) -> None:
    stand = Stand()
    with caplog.at_level(logging.INFO, "leveret.audit"):
        stand.login("guest", "guest")
        stand.login("guest", "guest", protocol="http")
        stand.login('a"\nforged user="root"', "s3cret", "10.0.0.1")
    counts = stand.directory.login_counts.by_protocol["amqp091"]
    assert (counts.succeeded, counts.failed) == (1, 1)
    assert len(stand.directory.login_counts.by_source) == 3
    failed, succeeded = stand.directory.audit.recent(10)
    assert (succeeded.user, succeeded.action, succeeded.result) == ("guest", "login", "ok")
    assert (failed.peer, failed.result) == ("10.0.0.1", "invalid credentials")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert not any("\n" in line or "s3cret" in line for line in lines)


def test_what_strangers_send_takes_bounded_memory() -> None:
    attempts = LoginCounts()
    for number in range(SOURCES_MAX + 5):
        attempts.count("10.0.0.1", str(number), "http", succeeded=False)
    assert len(attempts.by_source) == SOURCES_MAX
    assert attempts.by_protocol["http"].failed == SOURCES_MAX + 5
    audit = Audit(lambda: 1)
    for number in range(EVENTS_MAX + 5):
        audit.note(str(number), "", "", "", "")
    assert [event.user for event in audit.recent(2)] == [str(EVENTS_MAX + 4), str(EVENTS_MAX + 3)]
    assert len(audit.recent(EVENTS_MAX * 2)) == EVENTS_MAX
