"""Tokens as passwords of AMQP: logins, scopes, expiry, and renewal."""

from __future__ import annotations

from contextlib import closing

import jwt
import pika
import pytest
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from leveret.testing import ManualClock
from leveret.testing.broker import RunningBroker
from tests.oauth2.conftest import SECRET, Sign, connected


@pytest.mark.parametrize("name", ["", "anybody", "guest"])
def test_token_is_a_password_whatever_the_name(
    server: RunningBroker, sign: Sign, name: str
) -> None:
    with closing(connected(server, sign(), name)) as connection:
        (peer,) = server.node.amqp.protocols
        assert peer.user is not None
        assert peer.user.name == "hare"
        connection.channel().queue_declare("q")


def test_users_with_passwords_work_beside_tokens(server: RunningBroker) -> None:
    pika.BlockingConnection(pika.URLParameters(server.url)).close()
    with pytest.raises(ProbableAuthenticationError):
        connected(server, "guess", "guest")


def test_tokens_that_are_not_trusted_are_refused(
    server: RunningBroker, sign: Sign, clock: ManualClock
) -> None:
    now_s = clock.now_ms() // 1000
    claims = {"sub": "hare", "aud": "broker", "exp": now_s + 60, "scope": "broker.read:*/*"}
    for token in (
        sign(exp=now_s),
        sign(aud="another"),
        sign(key="another secret of thirty-two characters"),
        jwt.encode(claims, "", "none"),
        jwt.encode({**claims, "exp": None}, SECRET, "HS256"),
        sign()[:-1],
    ):
        with pytest.raises(ProbableAuthenticationError):
            connected(server, token)


def test_scopes_decide_what_is_allowed(server: RunningBroker, sign: Sign) -> None:
    scope = "broker.configure:%2F/mine-* broker.write:%2F/amq.default broker.read:%2F/mine-1"
    with closing(connected(server, sign(scope))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("mine-1")
        channel.queue_declare("mine-2")
        channel.basic_publish("", "mine-1", b"x")
        assert channel.basic_get("mine-1", auto_ack=True)[2] == b"x"
        with pytest.raises(ChannelClosedByBroker) as closed:
            channel.basic_get("mine-2")
        assert closed.value.reply_code == 403
        with pytest.raises(ChannelClosedByBroker) as closed:
            connection.channel().queue_declare("other")
        assert closed.value.reply_code == 403
        assert closed.value.reply_text == (
            "ACCESS_REFUSED - configure access to queue 'other' in vhost '/' refused for user"
            " 'hare'"
        )
        channel = connection.channel()
        channel.confirm_delivery()
        with pytest.raises(ChannelClosedByBroker):
            channel.basic_publish("amq.direct", "k", b"x")


def test_scopes_decide_over_routing_keys(server: RunningBroker, sign: Sign) -> None:
    with closing(connected(server, sign("broker.write:*/amq.topic/a.*"))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("amq.topic", "a.b", b"x")
        with pytest.raises(ChannelClosedByBroker) as closed:
            channel.basic_publish("amq.topic", "b.a", b"x")
        assert closed.value.reply_code == 403


def test_scopes_decide_over_vhosts(server: RunningBroker, sign: Sign) -> None:
    for scope in ("broker.read:other/*", "broker.tag:administrator", "", "another.read:*/*"):
        with pytest.raises((ProbableAccessDeniedError, ConnectionClosedByBroker)):
            connected(server, sign(scope))


def test_scopes_stand_in_other_claims_and_behind_aliases(server: RunningBroker, sign: Sign) -> None:
    scope = ["broker.read:*/*"]
    for changes in (
        {"scope": scope},
        {"scope": "reader"},
        {"scope": None, "roles": scope},
        {"scope": "openid", "realm": {"roles": {"broker": ["read:*/*"], "x": ["write:*/*"]}}},
    ):
        with closing(connected(server, sign(**changes))) as connection:
            with pytest.raises(ChannelClosedByBroker) as closed:
                connection.channel().basic_get("absent")
            assert closed.value.reply_code == 404
            with pytest.raises(ChannelClosedByBroker) as closed:
                connection.channel().queue_declare("new")
            assert closed.value.reply_code == 403


def test_end_of_the_token_ends_the_connection(
    server: RunningBroker, sign: Sign, clock: ManualClock
) -> None:
    connection = connected(server, sign())
    clock.advance(59.999)
    connection.channel().queue_declare("q")
    clock.advance(0.001)
    with pytest.raises(ConnectionClosedByBroker) as closed:
        connection.process_data_events(10)
    assert closed.value.reply_code == 320
    assert closed.value.reply_text == "CONNECTION_FORCED - credential expired"


def test_renewed_token_keeps_the_connection(
    server: RunningBroker, sign: Sign, clock: ManualClock
) -> None:
    connection = connected(server, sign())
    clock.advance(seconds=30)
    connection.update_secret(sign(), "the old one ends soon")
    clock.advance(seconds=59)
    connection.channel().queue_declare("q")
    clock.advance(seconds=1)
    with pytest.raises(ConnectionClosedByBroker, match="credential expired"):
        connection.process_data_events(10)


def test_renewed_token_that_allows_less(server: RunningBroker, sign: Sign) -> None:
    """Consumers that are no longer allowed are cancelled, the others stay; so do publishes."""
    with closing(connected(server, sign())) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        cancelled: list[str] = []
        channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
        for name in ("kept", "lost"):
            channel.queue_declare(name)
            channel.basic_consume(name, lambda *_: None, consumer_tag=name)
        channel.basic_publish("", "kept", b"x")
        connection.update_secret(sign("broker.read:*/kept broker.write:*/none"), "less")
        while not cancelled:
            connection.process_data_events(10)
        assert cancelled == ["lost"]
        assert channel.consumer_tags == ["kept"]
        with pytest.raises(ChannelClosedByBroker) as closed:
            channel.basic_publish("", "kept", b"x")
        assert closed.value.reply_code == 403


def test_renewal_that_is_refused_ends_the_connection(
    server: RunningBroker, sign: Sign, clock: ManualClock
) -> None:
    refused = "NOT_ALLOWED - New secret was refused by one of the backends"
    no_vhost = "NOT_ALLOWED - access to vhost '/' refused for user 'hare'"
    for secret, text in (
        ("no token", refused),
        (sign(exp=clock.now_ms() // 1000), refused),
        (sign(sub="fox"), refused),
        (sign("broker.read:other/*"), no_vhost),
    ):
        connection = connected(server, sign())
        with pytest.raises(ConnectionClosedByBroker) as closed:
            connection.update_secret(secret, "")
        assert (closed.value.reply_code, closed.value.reply_text) == (530, text)


def test_password_needs_no_renewal(server: RunningBroker, clock: ManualClock) -> None:
    with closing(pika.BlockingConnection(pika.URLParameters(server.url))) as connection:
        connection.update_secret("anything", "")
        clock.advance(minutes=60)
        connection.channel().queue_declare("q")


def test_logins_are_noted(server: RunningBroker, sign: Sign) -> None:
    connected(server, sign()).close()
    with pytest.raises(ProbableAuthenticationError):
        connected(server, sign(aud="another"), "fox")
    notes = [
        (event.user, event.action, event.result)
        for event in server.node.view.authenticator.audit.recent(10)
    ]
    assert ("oauth2:hare", "login", "ok") in notes
    assert ("fox", "login", "the token is for another audience") in notes
