"""Heartbeats: sent after half an interval without output; three silent intervals end it."""

from __future__ import annotations

import pytest

from tests.compat import wire
from tests.compat.client import Heartbeat
from tests.protocol.stage import Peer, Stage, method, tune_ok

BEAT = wire.frame(wire.HEARTBEAT, 0, b"")


def beating(heartbeat_s: int) -> tuple[Stage, Peer]:
    stage = Stage()
    return stage, stage.opened(tune_ok(heartbeat_s=heartbeat_s))


def beats_within(stage: Stage, peer: Peer, ms: int, step_ms: int = 50) -> list[int]:
    """When heartbeats came, in milliseconds from now."""
    found: list[int] = []
    for at in range(step_ms, ms + 1, step_ms):
        stage.advance(step_ms)
        found.extend(at for event in peer.take() if event == Heartbeat(0))
    return found


@pytest.mark.parametrize("interval_s", [1, 2, 10])
def test_silent_peer_gets_a_beat_every_half_interval_and_is_cut_after_three(
    interval_s: int,
) -> None:
    stage, peer = beating(interval_s)
    half_ms = interval_s * 500
    assert beats_within(stage, peer, half_ms * 6 - 50) == [half_ms * n for n in range(1, 6)]
    assert not peer.hung_up()
    stage.advance(50)
    assert peer.hung_up()
    assert peer.take() == []


def test_any_byte_counts_as_a_sign_of_life() -> None:
    stage, peer = beating(1)
    declare = method(1, "channel.open")
    for octet in declare:
        stage.advance(2900)
        peer.feed(bytes((octet,)))
    assert not peer.hung_up()
    assert "channel.open-ok" in peer.names()


def test_peer_that_beats_is_kept() -> None:
    stage, peer = beating(2)
    for _ in range(30):
        stage.advance(1000)
        peer.feed(BEAT)
    assert not peer.hung_up()
    assert set(peer.names()) == {"heartbeat"}


def test_output_takes_the_place_of_a_beat() -> None:
    stage, peer = beating(2)
    for number in range(1, 20):
        stage.advance(900)
        peer.feed(method(number, "channel.open"))
    assert set(peer.names()) == {"channel.open-ok"}


def test_interval_of_zero_means_none() -> None:
    stage, peer = beating(0)
    stage.advance(24 * 3600 * 1000)
    assert not peer.hung_up()
    assert peer.take() == []
    assert stage.next_due_ms() == -1


def test_longest_interval_is_held() -> None:
    stage, peer = beating(65535)
    stage.advance(65535 * 3000 - 1)
    assert not peer.hung_up()
    stage.advance(1)
    assert peer.hung_up()


def test_peer_that_the_broker_does_not_read_from_is_not_cut() -> None:
    """The broker does not read from a publisher during an alarm, so silence proves nothing."""
    stage, peer = beating(1)
    peer.connection.is_held = True
    stage.advance(60_000)
    assert not peer.hung_up()
    peer.connection.is_held = False
    stage.advance(3_000)
    assert peer.hung_up()


def stand_still(stage: Stage, ms: int) -> None:
    """Let the node stand still for a while: all timers that became due run late."""
    stage.now_ms += ms
    stage.broker.on_pulse(stage.now_ms)
    stage.end_turn()


def test_peer_is_not_cut_because_the_node_stood_still() -> None:
    stage, peer = beating(1)
    stage.advance(700)
    stand_still(stage, 3_600_000)
    assert not peer.hung_up()
    peer.feed(BEAT)  # it waited in the buffer of the socket
    stage.advance(2_900)
    assert not peer.hung_up()


def test_dead_peer_is_found_after_the_node_stood_still() -> None:
    stage, peer = beating(1)
    stage.advance(700)
    stand_still(stage, 60_000)
    stage.advance(1_000)
    stand_still(stage, 60_000)
    assert not peer.hung_up()
    stage.advance(1_500)
    assert peer.hung_up()


def test_nothing_waits_for_time_after_the_connection_is_gone() -> None:
    stage, peer = beating(10)
    peer.lose()
    assert stage.next_due_ms() == -1


@pytest.mark.parametrize("interval_s", [1, 60])
def test_heartbeat_does_not_end_the_deadline_of_a_close(interval_s: int) -> None:
    stage, peer = beating(interval_s)
    peer.send(0, "queue.declare")
    stage.advance(stage.limits.close_ms)
    assert peer.hung_up()
