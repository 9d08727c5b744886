"""The user directory: first start, logins, refusals, and deletion of users."""

import logging

import pytest

from leveret.auth import READ, Credentials, Refusal, User, UserDirectory, hash_password
from leveret.auth.audit import EVENTS_MAX, Audit
from leveret.auth.fair_queue import NETWORK_WAITING_MAX, Answer
from leveret.auth.hashes import NO_PASSWORD, quick_hash
from leveret.auth.login_counts import SOURCES_MAX, LoginCounts
from leveret.auth.login_throttle import PATIENT_MS, WAIT_MS_MIN, LoginThrottle
from leveret.auth.password_verifier import Work
from leveret.auth.user_directory import BUSY_RETRY_MS, NOTE_AGAIN_MS
from leveret.engine.broker import Broker
from leveret.engine.vhosts.register import Register
from leveret.errors import PreconditionFailedError
from leveret.runtime.logs import TextFormatter

FREE = 3
AMYS = hash_password("pw")


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


def test_guessing_is_throttled_but_not_a_known_password() -> None:
    stand = Stand()
    stand.directory.users.put("amy", AMYS, [])
    assert isinstance(stand.login("amy", "pw", "10.0.0.1"), User)
    for number in range(2 * FREE):
        stand.login("amy", f"guess{number}", "10.0.0.1")
    refused = stand.login("amy", "one more", "10.0.0.1")
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.retry_ms) == ("too many wrong passwords", WAIT_MS_MIN)
    assert isinstance(stand.login("amy", "pw", "10.0.0.1"), User)
    assert isinstance(stand.login("amy", "pw", "10.0.0.2"), User)
    stand.now_ms += WAIT_MS_MIN
    checked = stand.login("amy", "one more", "10.0.0.1")
    assert isinstance(checked, Refusal)
    assert (checked.reason, checked.retry_ms) == ("invalid credentials", 0)


def guess_all_the_time(stand: Stand, seconds: int) -> None:
    """Guess ten passwords of amy in each second, never one of them twice."""
    for _ in range(10 * seconds):
        stand.now_ms += 100
        stand.login("amy", f"guess{stand.now_ms}", "10.0.0.1")


def test_right_password_passes_at_its_second_attempt_while_others_guess() -> None:
    stand = Stand()
    stand.directory.users.put("amy", AMYS, [])
    guess_all_the_time(stand, 60)
    first = stand.login("amy", "pw", "10.0.0.1")
    assert isinstance(first, Refusal) and first.retry_ms > 0
    assert isinstance(stand.login("amy", "pw", "10.0.0.1"), Refusal)
    guess_all_the_time(stand, 5)
    assert isinstance(stand.login("amy", "pw", "10.0.0.1"), User)


def test_guesses_that_come_back_are_checked_once_a_second() -> None:
    stand = Stand()
    stand.directory.users.put("amy", AMYS, [])
    guess_all_the_time(stand, 60)
    for number in range(50):
        stand.login("amy", f"patient{number}", "10.0.0.1")
    stand.now_ms += PATIENT_MS
    outcomes = [stand.login("amy", f"patient{number}", "10.0.0.1") for number in range(50)]
    waits = [one.retry_ms for one in outcomes if isinstance(one, Refusal)]
    assert waits.count(0) == 1


def test_client_with_an_old_password_does_not_lock_out_its_address() -> None:
    stand = Stand()
    stand.directory.users.put("amy", AMYS, [])
    stand.directory.users.put("bob", AMYS, [])
    for _ in range(200):
        outcome = stand.login("amy", "the old one", "10.0.0.1")
        assert isinstance(outcome, Refusal)
        assert (outcome.reason, outcome.retry_ms) == ("invalid credentials", 0)
    assert isinstance(stand.login("amy", "pw", "10.0.0.1"), User)
    assert isinstance(stand.login("bob", "pw", "10.0.0.1"), User)


def test_repeated_refusal_is_counted_but_seldom_noted() -> None:
    stand = Stand()
    for _ in range(200):
        stand.login("amy", "the old one", "10.0.0.1")
    assert len(stand.directory.audit.recent(1_000)) == 2
    assert stand.directory.login_counts.by_protocol["amqp091"].failed == 200
    stand.now_ms += NOTE_AGAIN_MS
    stand.login("amy", "the old one", "10.0.0.1")
    assert len(stand.directory.audit.recent(1_000)) == 3


class Late:
    """The hashing thread, which works when the test says so."""

    def __init__(self, directory: UserDirectory) -> None:
        self.work: list[tuple[Work, Answer]] = []
        self.outcomes: list[User | Refusal] = []
        self._directory = directory
        directory.password_verifier.run_in_thread = self.put

    def put(self, work: Work, told: Answer) -> None:
        self.work.append((work, told))

    def ask(self, name: str, password: str, host: str = "10.0.0.1") -> Credentials:
        credentials = Credentials(name, password, host=host, is_loopback=False)
        self._directory.login(credentials, self.outcomes.append)
        return credentials

    def do_all(self) -> None:
        while self.work:
            work, told = self.work.pop(0)
            told(work())


def test_guesses_count_before_they_are_checked() -> None:
    stand = Stand()
    late = Late(stand.directory)
    for number in range(50):
        late.ask("amy", f"guess{number}")
    refusals = [one for one in late.outcomes if isinstance(one, Refusal)]
    assert len(refusals) == 50 - FREE
    assert all(one.retry_ms > 0 for one in refusals)


def test_full_line_is_no_wrong_password() -> None:
    stand = Stand()
    late = Late(stand.directory)
    for number in range(NETWORK_WAITING_MAX + 1):
        late.ask(f"user{number}", "x")
    assert late.outcomes == []
    late.ask("amy", "pw")
    (refusal,) = late.outcomes
    assert isinstance(refusal, Refusal)
    assert refusal.is_busy
    assert refusal.retry_ms == BUSY_RETRY_MS


def test_abandoned_logins_are_forgotten() -> None:
    stand = Stand()
    stand.directory.users.put("amy", AMYS, [])
    late = Late(stand.directory)
    waiting = [late.ask(f"user{number}", "x") for number in range(NETWORK_WAITING_MAX + 1)]
    for credentials in waiting[1:]:
        credentials.abandon()
    late.ask("amy", "pw")
    late.do_all()
    refused, admitted = late.outcomes
    assert isinstance(refused, Refusal)
    assert isinstance(admitted, User)


def test_password_that_changes_during_the_check_is_checked_again() -> None:
    stand = Stand()
    stand.directory.users.put("amy", AMYS, [])
    late = Late(stand.directory)
    late.ask("amy", "pw")
    stand.directory.users.put("amy", hash_password("new"), [])
    late.do_all()
    (outcome,) = late.outcomes
    assert isinstance(outcome, Refusal)


def test_made_up_names_are_cut() -> None:
    stand = Stand()
    stand.login("x" * 60_000, "pw", "10.0.0.1")
    (event,) = stand.directory.audit.recent(10)
    (source,) = stand.directory.login_counts.by_source
    assert event.user == source[1] == "x" * 255 + "…"


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
    lines = [TextFormatter().format(record) for record in caplog.records]
    assert len(lines) == 2
    assert not any("\n" in line or "s3cret" in line for line in lines)
    assert "msg=audit action=login user=guest peer=" in lines[0]
    assert 'user="a\\"\\nforged user=\\"root\\""' in lines[1]


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


BAD_ENTRIES = [
    "no json",
    "[]",
    "{}",
    '{"password_hash": 5, "hashing_algorithm": "scrypt", "tags": []}',
    '{"password_hash": "AAAA", "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": []}',
    '{"password_hash": "", "hashing_algorithm": "x", "tags": [5]}',
    '{"password_hash": "", "hashing_algorithm": "x", "tags": null}',
]


@pytest.mark.parametrize("entry", BAD_ENTRIES)
def test_user_with_an_entry_that_cannot_be_read_stops_no_start(entry: str) -> None:
    stand = Stand()
    stand.directory.users.put("amy", AMYS, ["monitoring"])
    broker = Broker(1)
    for kind in stand.register.kinds():
        for key, value in stand.register.entries(kind).items():
            broker.register.put(kind, key, value)
    broker.register.put("user", "broken", entry)
    again = Stand(broker.register)
    assert broker.turn.fault_count == 1
    assert broker.turn.faults[0].startswith("loading the user broken failed")
    assert isinstance(again.login("broken", ""), Refusal)
    assert isinstance(again.login("amy", "pw"), User)
    assert again.register.get("user", "broken") == entry
    assert again.directory.drop_user("broken")
    assert again.register.get("user", "broken") is None


@pytest.mark.parametrize("entry", ["no json", "[]", "{}", '{"read": "(", "write": "("}'])
def test_permission_that_cannot_be_read_allows_nothing(entry: str) -> None:
    broker = Broker(1)
    broker.register.put("permission", '["/", "amy"]', entry)
    broker.register.put("permission", "no json", entry)
    broker.register.put("topic_permission", '["/", "amy", "logs"]', entry)
    directory = Stand(broker.register).directory
    directory.users.put("amy", AMYS, [])
    amy = directory.user("amy")
    assert amy is not None
    assert not amy.may_open("/")
    assert not amy.may_topic(READ, "/", "logs", "any")
    assert amy.may_topic(READ, "/", "other", "any")
    assert broker.turn.fault_count == 3
