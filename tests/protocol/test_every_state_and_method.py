"""Test every method and frame in every state of a connection and a channel.

`outcomes` has the expected results. After each input the test checks that the rest of the
connection still works.
"""

from __future__ import annotations

import pytest

from tests.compat import wire
from tests.compat.client import Method, Preamble
from tests.protocol.outcomes import CHANNEL, CONNECTION, INPUTS, ids, outcome
from tests.protocol.stage import Event, Peer, Stage, method, name_of, start_ok, tune_ok

REFUSAL_MS = 3_000
CLOSE_MS = 10_000


def pairs(tables: dict[str, dict[str, str]]) -> list[tuple[str, str, str]]:
    return [
        (state, name, outcome(table, name)) for state, table in tables.items() for name in INPUTS
    ]


def test_the_tables_name_only_inputs_that_exist() -> None:
    for table in (*CONNECTION.values(), *CHANNEL.values()):
        assert set(table) - {"*"} <= set(INPUTS)


def connection_in(stage: Stage, state: str) -> Peer:
    """A peer whose connection is in the given state."""
    peer = stage.peer()
    steps = {
        "awaiting header": b"",
        "starting": wire.PROTOCOL_HEADER,
        "tuning": start_ok(),
        "opening": tune_ok(),
        "running": method(0, "connection.open", virtual_host="/"),
        "closing": method(0, "queue.declare"),
        "closed": method(0, "connection.close-ok"),
    }
    for name, data in steps.items():
        peer.feed(data)
        if name == state:
            break
    peer.take()
    return peer


def channel_in(stage: Stage, state: str) -> Peer:
    """A peer whose channel 1 is in the given state; channel 2 is open."""
    peer = stage.opened()
    peer.open_channel(2)
    peer.send(2, "queue.declare", queue="q")
    peer.send(2, "exchange.declare", exchange="x", type="direct")
    if state != "not open":
        peer.open_channel(1)
    publish = method(1, "basic.publish", routing_key="q")
    header = wire.frame(wire.HEADER, 1, wire.header(3, {}))
    peer.feed(
        {
            "not open": b"",
            "open": b"",
            "expecting header": publish,
            "expecting body": publish + header,
            "closing after an error": method(1, "queue.purge", queue="nope"),
            "in confirm mode": method(1, "confirm.select"),
            "in tx mode": method(1, "tx.select"),
            "closed": method(1, "channel.close"),
        }[state]
    )
    peer.take()
    return peer


def described(event: Event) -> str:
    """A close by level, code and ids; anything else by its name."""
    if isinstance(event, Preamble):
        assert event.data == wire.PROTOCOL_HEADER
        return "protocol header"
    name = name_of(event)
    level, _, what = name.partition(".")
    if what != "close":
        return name
    assert isinstance(event, Method)
    fields = event.fields
    return f"{level} {fields['reply_code']} {fields['class_id']}.{fields['method_id']}"


def with_ids(expected: str, name: str) -> str:
    """The outcome with the ids of the method sent, where it is a close that has none."""
    words = expected.split()
    if words[0] in ("channel", "connection") and len(words) == 2:
        return f"{expected} {ids(name)}"
    return expected


def seen(peer: Peer, channel: int, name: str) -> str:
    """Send an input and return the outcome, in the words of the table."""
    kind, payload = INPUTS[name]
    was_up = not peer.hung_up()
    peer.feed(wire.frame(kind, channel, payload))
    events = peer.take()
    found = [described(event) for event in events]
    for event in events:
        if isinstance(event, Method):
            assert event.channel == (0 if event.name == "connection.close" else channel)
    if was_up and peer.hung_up():
        found.append("hang up")
    return ", ".join(found) or "nothing"


@pytest.mark.parametrize(("state", "name", "expected"), pairs(CONNECTION))
def test_method_on_channel_0_is_answered_by_the_state_of_the_connection(
    state: str, name: str, expected: str
) -> None:
    stage = Stage()
    peer = connection_in(stage, state)
    found = seen(peer, 0, name)
    if expected == "hang up later":
        assert found == "nothing"
        stage.advance(REFUSAL_MS - 1)
        assert not peer.hung_up()
        stage.advance(1)
        assert peer.hung_up()
        return
    assert found == with_ids(expected, name)
    if found.startswith("connection 5"):
        check_closing(peer)
    elif found == "nothing" and state == "running":
        peer.open_channel(1)


def check_closing(peer: Peer) -> None:
    """Check that a closing connection ignores everything except close-ok, which ends it."""
    assert not peer.hung_up()
    assert peer.send(1, "channel.open") == []
    assert peer.send(0, "connection.close-ok") == []
    assert peer.hung_up()


@pytest.mark.parametrize(("state", "name", "expected"), pairs(CHANNEL))
def test_method_on_a_channel_is_answered_by_the_state_of_the_channel(
    state: str, name: str, expected: str
) -> None:
    peer = channel_in(Stage(), state)
    found = seen(peer, 1, name)
    assert found == with_ids(expected, name)
    if found.startswith("connection 5"):
        check_closing(peer)
        return
    assert names(peer.send(2, "channel.flow", active=True)) == ["channel.flow-ok"]
    if found.startswith("channel 4"):
        assert peer.send(1, "queue.declare", queue="other") == []
        assert peer.send(1, "channel.close-ok") == []
        peer.open_channel(1)


def names(events: list[Event]) -> list[str]:
    return [name_of(event) for event in events]


def test_close_that_is_not_answered_ends_after_a_while() -> None:
    stage = Stage()
    peer = connection_in(stage, "closing")
    stage.advance(CLOSE_MS - 1)
    assert not peer.hung_up()
    stage.advance(1)
    assert peer.hung_up()


def test_channel_told_to_close_may_be_opened_again_after_the_answer() -> None:
    peer = channel_in(Stage(), "closing after an error")
    peer.send(1, "channel.close-ok")
    peer.open_channel(1)


def test_closes_that_cross_are_both_answered() -> None:
    peer = channel_in(Stage(), "closing after an error")
    assert names(peer.send(1, "channel.close")) == ["channel.close-ok"]
    assert names(peer.send(1, "channel.close-ok")) == []
    peer.open_channel(1)


def test_error_leaves_other_connections_alone() -> None:
    stage = Stage()
    other = stage.opened()
    other.open_channel(1)
    for name in INPUTS:
        peer = stage.opened()
        kind, payload = INPUTS[name]
        peer.feed(wire.frame(kind, 1, payload))
        peer.lose()
        assert names(other.send(1, "channel.flow", active=True)) == ["channel.flow-ok"]
    assert other.take() == []
