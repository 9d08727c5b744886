"""A case about time is played again after a stall, and never because of its observation."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from tests.compat.brokers import Address
from tests.compat.case import PLAYS_MAX, Script, Topic, play
from tests.compat.cases import ALL
from tests.compat.client import Channel, Connection, Event, Method, NoAnswerError
from tests.compat.stage import Stage
from tests.proxy import Proxy, proxy

PREMISE_S = 3.0
STALL_S = 1.1  # more than a third of the premise


def _played(script: Script, address: Address, premise_s: float | None) -> tuple[str, ...]:
    topic = Topic("t")
    topic.add("c", "title", script, "right", premise_s=premise_s)
    return play(topic.cases[0], *address)


async def _behind_proxy(address: Address, stalls: list[bool]) -> tuple[str, ...]:
    """Plays a case on a line that stalls in some plays; its observation numbers the play."""
    loop = asyncio.get_running_loop()
    plays = 0

    async with proxy(address.port) as line:

        def script(_: Stage) -> str:
            nonlocal plays
            plays += 1
            if stalls[plays - 1]:
                _stall(loop, line)
            return f"play {plays}"

        there = Address(address.host, line.port)
        return await asyncio.to_thread(_played, script, there, PREMISE_S)


def _stall(loop: asyncio.AbstractEventLoop, line: Proxy) -> None:
    loop.call_soon_threadsafe(line.stall)
    time.sleep(STALL_S)
    loop.call_soon_threadsafe(line.flow)


def test_play_that_was_held_up_does_not_count(broker_process: Address) -> None:
    stalls = [True] + [False] * (PLAYS_MAX - 1)
    assert asyncio.run(_behind_proxy(broker_process, stalls)) != ("play 1",)


def test_machine_that_is_always_held_up_is_named(broker_process: Address) -> None:
    (text,) = asyncio.run(_behind_proxy(broker_process, [True] * PLAYS_MAX))
    assert text.startswith("not observed: in each play the broker was held up, for ")


def test_wrong_observation_is_no_reason_to_play_again(broker_process: Address) -> None:
    plays: list[Stage] = []

    def script(stage: Stage) -> str:
        plays.append(stage)
        return "wrong"

    for premise_s in (None, 3600.0):
        assert _played(script, broker_process, premise_s) == ("wrong",)
    assert len(plays) == 2


def test_situations_that_park_messages_do_not_disturb_each_other(broker_process: Address) -> None:
    cases = [case for case in ALL if case.id in ("retry/parked", "retry/parked-cycle")]
    side_by_side = cases * 4
    with ThreadPoolExecutor(len(side_by_side)) as pool:
        for _ in range(3):
            seen = list(pool.map(lambda case: play(case, *broker_process), side_by_side))
            assert seen == [case.expected for case in side_by_side]


class LateServer(Connection):
    """A connection on which a cancel comes between the next question and its answer."""

    def __init__(self) -> None:
        self._answers: list[Event] = []

    def send(self, channel: int, name: str, **fields: object) -> None:
        self._answers += [Method(channel, "basic.cancel", {}), Method(channel, f"{name}-ok", {})]

    def receive(self, channel: int, timeout_s: float | None = None) -> Event:
        if not self._answers:
            raise NoAnswerError
        return self._answers.pop(0)


def test_event_that_comes_during_a_round_trip_is_kept_once() -> None:
    channel = Channel(LateServer(), 1)
    assert not channel.idle(0)
    assert [event.name for event in channel.take() if isinstance(event, Method)] == ["basic.cancel"]
