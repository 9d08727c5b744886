"""Logins: late decisions, remote addresses, throttling, and limits."""

from __future__ import annotations

import json

import pytest

from leveret.auth import (
    Authenticator,
    Credentials,
    Refusal,
    SingleUserAuthenticator,
    User,
    UserDirectory,
)
from leveret.auth.login_throttle import LoginThrottle
from leveret.auth.user import LoginCallback
from leveret.engine.broker import Broker
from tests.compat import wire
from tests.protocol.stage import (
    Peer,
    Stage,
    closes,
    method,
    opening,
    start_ok,
    tune_ok,
)

REFUSED = (
    "connection",
    403,
    "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."
    " For details see the broker logfile.",
)
TRY_AGAIN = (
    "connection",
    320,
    "CONNECTION_FORCED - too many logins, this one was not checked: try again later",
)
OPEN = method(0, "connection.open", virtual_host="/")


class Undecided(Authenticator):
    """An authenticator that decides when the test tells it to."""

    def __init__(self) -> None:
        fixed = SingleUserAuthenticator("", "")
        super().__init__(fixed.audit, fixed.quotas)
        self.asked: list[tuple[Credentials, LoginCallback]] = []

    def login(self, credentials: Credentials, then: LoginCallback) -> None:
        self.asked.append((credentials, then))

    def decide(self, stage: Stage, outcome: User | Refusal) -> None:
        _, then = self.asked.pop(0)
        stage.broker.begin_turn(stage.now_ms)
        then(outcome)
        stage.end_turn()


def directory(stage_time: list[Stage], failures_free: int = 3) -> UserDirectory:
    def now_ms() -> int:
        return stage_time[0].now_ms if stage_time else 1

    found = UserDirectory(Broker(1).register, now_ms, LoginThrottle(failures_free))
    found.load("guest", "guest")
    return found


def stage_of(failures_free: int = 3) -> tuple[Stage, UserDirectory]:
    time: list[Stage] = []
    authenticator = directory(time, failures_free)
    stage = Stage(authenticator=authenticator)
    time.append(stage)
    return stage, authenticator


def started(stage: Stage, host: str = "127.0.0.1") -> Peer:
    peer = stage.peer(host)
    peer.feed(wire.PROTOCOL_HEADER)
    peer.take()
    return peer


def test_what_comes_while_a_login_is_decided_waits_and_is_handled_after() -> None:
    authenticator = Undecided()
    stage = Stage(authenticator=authenticator)
    peer = started(stage)
    early = start_ok() + tune_ok() + OPEN + method(1, "channel.open")
    for at in range(len(early)):
        peer.feed(early[at : at + 1])
    assert peer.take() == []
    assert len(authenticator.asked) == 1
    authenticator.decide(stage, User("guest"))
    assert peer.names() == ["connection.tune", "connection.open-ok", "channel.open-ok"]
    assert peer.connection.received_bytes == len(wire.PROTOCOL_HEADER) + len(early)


def test_rest_of_the_same_read_waits_too() -> None:
    authenticator = Undecided()
    stage = Stage(authenticator=authenticator)
    peer = stage.peer()
    peer.feed(opening())
    assert peer.names() == ["connection.start"]
    authenticator.decide(stage, User("guest"))
    assert peer.names() == ["connection.tune", "connection.open-ok"]
    assert peer.connection.received_bytes == len(opening())


def test_late_refusal_is_a_refusal() -> None:
    authenticator = Undecided()
    stage = Stage(authenticator=authenticator)
    peer = started(stage)
    peer.feed(start_ok() + tune_ok() + OPEN)
    authenticator.decide(stage, Refusal("invalid credentials"))
    assert closes(peer.take()) == [REFUSED]
    stage.advance(stage.limits.refusal_ms)
    assert peer.hung_up()


def test_peer_that_is_gone_or_late_is_not_logged_in() -> None:
    authenticator = Undecided()
    stage = Stage(authenticator=authenticator)
    gone, late = started(stage), started(stage)
    gone.feed(start_ok())
    late.feed(start_ok())
    gone.lose()
    stage.advance(stage.limits.handshake_ms)
    assert late.hung_up()
    authenticator.decide(stage, User("guest"))
    authenticator.decide(stage, User("guest"))
    assert gone.take() == late.take() == []
    assert gone.connection.user is late.connection.user is None


def test_peer_that_sends_on_and_on_before_it_is_known_is_hung_up_on() -> None:
    stage = Stage(authenticator=Undecided())
    peer = started(stage)
    peer.feed(start_ok())
    for _ in range(17):
        peer.feed(bytes(4096))
    assert peer.hung_up()


def test_guest_with_the_public_password_is_refused_from_elsewhere() -> None:
    stage, _ = stage_of()
    peer = started(stage, "192.0.2.7")
    peer.feed(start_ok())
    assert closes(peer.take()) == [REFUSED]
    near = stage.opened()
    assert not near.hung_up()


def test_guess_too_many_is_told_later_to_try_again() -> None:
    stage, authenticator = stage_of(2)

    def guess(password: str) -> Peer:
        peer = started(stage)
        peer.feed(start_ok(response=f"\x00guest\x00{password}".encode()))
        return peer

    for number in range(4):
        assert closes(guess(f"wrong{number}").take()) == [REFUSED]
    throttled = guess("one more")
    assert throttled.take() == []
    assert authenticator.audit.recent(1)[0].result == "too many wrong passwords"
    right = started(stage)
    right.feed(start_ok())
    assert right.names() == ["connection.tune"]
    stage.advance(stage.limits.refusal_ms)
    assert closes(throttled.take()) == [TRY_AGAIN]
    assert throttled.hung_up()
    assert closes(guess("one more").take()) == [REFUSED]


def test_login_of_a_peer_that_is_gone_is_abandoned() -> None:
    authenticator = Undecided()
    stage = Stage(authenticator=authenticator)
    peer, other = started(stage), started(stage)
    peer.feed(start_ok())
    other.feed(start_ok())
    told: list[str] = []
    authenticator.asked[0][0].on_abandoned = lambda: told.append("gone")
    authenticator.asked[1][0].on_abandoned = lambda: told.append("wrong")
    peer.lose()
    assert told == ["gone"]
    peer.lose()
    assert told == ["gone"]
    authenticator.decide(stage, User("guest"))
    authenticator.decide(stage, User("guest"))
    other.lose()
    assert told == ["gone"]


def test_unknown_vhost_and_one_without_permission_are_told_apart_as_rabbitmq_does() -> None:
    stage, _ = stage_of()
    stage.broker.add_vhost("closed")
    for vhost, text in (
        ("nope", "NOT_ALLOWED - vhost nope not found"),
        ("closed", "NOT_ALLOWED - access to vhost 'closed' refused for user 'guest'"),
    ):
        peer = started(stage)
        peer.feed(start_ok() + tune_ok() + method(0, "connection.open", virtual_host=vhost))
        assert closes(peer.take()) == [("connection", 530, text)]


def limited(kind: str, key: str, **limits: int) -> Stage:
    stage, authenticator = stage_of()
    spelled = {name.replace("_", "-"): value for name, value in limits.items()}
    authenticator._register.put(kind, key, json.dumps(spelled))
    return stage


@pytest.mark.parametrize(
    ("kind", "key", "text"),
    [
        (
            "user_limit",
            "guest",
            "NOT_ALLOWED - connection refused for user 'guest': user connection limit (2)"
            " is reached",
        ),
        (
            "vhost_limit",
            "/",
            "NOT_ALLOWED - access to vhost '/' refused for user 'guest':"
            " connection limit (2) is reached",
        ),
    ],
)
def test_connection_beyond_a_limit_is_refused(kind: str, key: str, text: str) -> None:
    stage = limited(kind, key, max_connections=2)
    first, _ = stage.opened(), stage.opened()
    third = stage.peer()
    third.feed(opening())
    assert closes(third.take()) == [("connection", 530, text)]
    first.send(0, "connection.close", reply_code=200, reply_text="")
    fourth = stage.peer()
    fourth.feed(opening())
    assert fourth.names()[-1] == "connection.open-ok"
    fourth.lose()
    stage.opened()


def test_channel_beyond_a_users_limit_closes_the_connection() -> None:
    stage = limited("user_limit", "guest", max_channels=2)
    first, second = stage.opened(), stage.opened()
    first.open_channel(1)
    second.open_channel(1)
    text = (
        "NOT_ALLOWED - number of channels opened for user 'guest' has reached "
        "the maximum allowed user limit of (2)"
    )
    assert closes(second.send(2, "channel.open")) == [("connection", 530, text)]
    third = stage.opened()
    third.open_channel(1)
    third.send(1, "channel.close", reply_code=200, reply_text="")
    third.open_channel(2)
    third.lose()
    first.open_channel(2)
