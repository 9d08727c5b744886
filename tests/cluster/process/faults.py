"""Faults of a cluster of three nodes, and how long the recovery from each takes.

A round causes a fault, waits for its effects, heals it, and waits for the recovery. Publishers and
a consumer run in every round; at its end everything is consumed and counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from tests.cluster.process.clients import Consumer, Publisher
from tests.cluster.process.cluster import Cluster
from tests.cluster.process.ledger import Ledger

WITHIN_S: Final = 30.0  # for all that has no bound of its own
PUBLISHERS: Final = 2
PROBE: Final = 90
CONSUMER: Final = 100
MEANWHILE: Final = 40  # confirms while a node is away
# Snapshots so often that those who were away need them; links that are given up soon.
WORDS: Final = ("--snapshot-every", "200", "--trailing", "20", "--silent-s", "2")


@dataclass(frozen=True)
class Bounds:
    """How long a cluster may take; in seconds."""

    election_s: float  # from a fault to a new leader
    resume_s: float  # from healing to a confirm


PROMISED: Final = Bounds(election_s=5.0, resume_s=10.0)
# In the suite, where a machine that also compiles and runs other tests can stand still for seconds:
# there a cluster that does not get over a fault at all must be told from one that had to wait.
# `python -m tests.cluster.process` holds what is promised.
PATIENT: Final = Bounds(election_s=4 * PROMISED.election_s, resume_s=2 * PROMISED.resume_s)


@dataclass
class Figures:
    """What one round was like; times in seconds, None where there was nothing to measure."""

    fault: str
    election_s: float | None = None  # from the fault to a new leader
    writing_s: float | None = None  # from the fault to the confirm of what was sent after it
    resumed_s: float | None = None  # the same from healing on
    caught_up_s: float | None = None  # from healing until every node has everything
    is_disturbed: bool = False  # another leader, where there was no need for one
    confirmed: int = 0
    repeats: int = 0
    lost: int = 0

    def broken(self, bounds: Bounds) -> list[str]:
        """What of this round must not be."""
        found = []
        if self.lost:
            found.append(f"{self.fault}: {self.lost} confirmed messages lost")
        if self.election_s is not None and self.election_s > bounds.election_s:
            found.append(f"{self.fault}: no leader for {self.election_s:.1f} s")
        if self.resumed_s is None or self.resumed_s > bounds.resume_s:
            took = "none" if self.resumed_s is None else f"the first after {self.resumed_s:.1f} s"
            found.append(f"{self.fault}: of the writes since healing, {took}")
        return found


class Round:
    """One fault, from strike to count."""

    def __init__(self, cluster: Cluster, load: Load, fault: str) -> None:
        self.cluster = cluster
        self.load = load
        self.figures = Figures(fault)
        leader = cluster.leader()
        assert leader is not None
        assert leader.role is not None
        self.leader = leader.number
        self.term = leader.role.term
        self.followers = [number for number in cluster.members if number != self.leader]
        self.follower = self.followers[0]
        self._struck_s = time.monotonic()

    async def elected(self) -> None:
        self.figures.election_s = await self.cluster.elected(
            self.term, PATIENT.election_s, self.leader
        )

    async def writing(self) -> None:
        """Writes go on, or begin again, while the fault is there."""
        await self.load.probe(PATIENT.election_s + PATIENT.resume_s)
        self.figures.writing_s = time.monotonic() - self._struck_s

    async def meanwhile(self) -> None:
        """Something happens that the node which is away will have to catch up with."""
        await self.load.ledger.until_confirmed(MEANWHILE, WITHIN_S)

    async def asks_for_votes(self, number: int) -> None:
        """A node that hears of no leader has noticed, and has raised no term."""
        member = self.cluster.members[number]
        await self.cluster.until(
            lambda: member.role is not None and member.role.name == "pre-candidate", WITHIN_S
        )

    async def given_up(self, by: int, whom: int) -> None:
        """A node has closed its links to another one that is silent."""
        async with asyncio.timeout(WITHIN_S):
            while whom in (await self.cluster.status(by))["connected"]:  # noqa: ASYNC110 - a process
                await asyncio.sleep(0.05)

    def leads_on(self) -> None:
        """Nobody should have disturbed the leader; a machine that stands still for a second may."""
        leader = self.cluster.leader()
        found = (leader.number, leader.role.term) if leader and leader.role else (0, 0)
        self.figures.is_disturbed |= found != (self.leader, self.term)

    async def healed(self) -> None:
        begun_s = time.monotonic()
        self.figures.resumed_s = await self.load.probe(PATIENT.resume_s)
        await self.cluster.caught_up(list(self.cluster.members), WITHIN_S)
        self.figures.caught_up_s = time.monotonic() - begun_s

    async def counted(self) -> Figures:
        await self.load.drained()
        ledger = self.load.ledger
        self.figures.confirmed = ledger.confirmed_count
        self.figures.repeats = ledger.repeats
        self.figures.lost = ledger.lost()
        assert (await self.cluster.read())["messages"] == 0
        return self.figures


async def kill_leader(found: Round) -> None:
    await found.cluster.kill(found.leader)
    await found.elected()
    await found.writing()
    await found.meanwhile()
    await found.cluster.start(found.leader)
    await found.healed()


async def kill_follower(found: Round) -> None:
    await found.cluster.kill(found.follower)
    await found.writing()
    await found.meanwhile()
    found.leads_on()
    await found.cluster.start(found.follower)
    await found.healed()


async def terminate_leader(found: Round) -> None:
    """It stops cleanly, in the middle of what it writes."""
    await found.cluster.terminate(found.leader)
    await found.elected()
    await found.writing()
    await found.meanwhile()
    await found.cluster.start(found.leader)
    await found.healed()


async def stop_leader(found: Round) -> None:
    found.cluster.stop(found.leader)
    await found.elected()
    await found.writing()
    await found.meanwhile()
    found.cluster.cont(found.leader)
    await found.healed()


async def stop_follower(found: Round) -> None:
    found.cluster.stop(found.follower)
    await found.writing()
    await found.given_up(found.leader, found.follower)
    found.leads_on()
    found.cluster.cont(found.follower)
    await found.healed()


async def isolate_leader(found: Round) -> None:
    found.cluster.isolate(found.leader)
    await found.elected()
    await found.writing()
    await found.meanwhile()
    found.cluster.heal()
    await found.healed()


async def isolate_follower(found: Round) -> None:
    found.cluster.isolate(found.follower)
    await found.writing()
    await found.asks_for_votes(found.follower)
    found.leads_on()
    found.cluster.heal()
    await found.healed()
    found.leads_on()


async def isolate_leader_long(found: Round) -> None:
    """Until both sides have closed their links: then they have to find each other again."""
    found.cluster.isolate(found.leader)
    await found.elected()
    await found.writing()
    for follower in found.followers:
        await found.given_up(found.leader, follower)
        await found.given_up(follower, found.leader)
    found.cluster.heal()
    await found.healed()


async def mute_leader(found: Round) -> None:
    """It hears the others, and they do not hear it."""
    for follower in found.followers:
        found.cluster.cut(found.leader, follower)
    await found.elected()
    await found.writing()
    found.cluster.heal()
    await found.healed()


async def deafen_leader(found: Round) -> None:
    """They hear it, and it does not hear them: it must not go on leading."""
    for follower in found.followers:
        found.cluster.cut(follower, found.leader)
    await found.elected()
    await found.writing()
    found.cluster.heal()
    await found.healed()


async def part_one_pair(found: Round) -> None:
    """The leader and one follower lose each other; the third node sees both."""
    found.cluster.cut(found.leader, found.follower)
    found.cluster.cut(found.follower, found.leader)
    await found.writing()
    await found.asks_for_votes(found.follower)
    found.leads_on()
    found.cluster.heal()
    await found.healed()


async def kill_everyone(found: Round) -> None:
    numbers = list(found.cluster.members)
    async with asyncio.TaskGroup() as group:
        for number in numbers:
            group.create_task(found.cluster.kill(number))
    async with asyncio.TaskGroup() as group:
        for number in numbers:
            group.create_task(found.cluster.start(number))
    found.figures.election_s = await found.cluster.elected(found.term, PATIENT.election_s)
    await found.healed()


FAULTS: Final[dict[str, Callable[[Round], Awaitable[None]]]] = {
    "kill the leader": kill_leader,
    "kill a follower": kill_follower,
    "terminate the leader": terminate_leader,
    "stop the leader": stop_leader,
    "stop a follower": stop_follower,
    "isolate the leader": isolate_leader,
    "isolate it for long": isolate_leader_long,
    "isolate a follower": isolate_follower,
    "mute the leader": mute_leader,
    "deafen the leader": deafen_leader,
    "part one pair": part_one_pair,
    "kill everyone": kill_everyone,
}


class Load:
    """Publishers and a consumer that go on, whatever happens."""

    def __init__(self, cluster: Cluster) -> None:
        self.ledger = Ledger()
        ports = cluster.ports
        self._publishers = [
            Publisher(ports, number, self.ledger) for number in range(1, PUBLISHERS + 1)
        ]
        self._probe = Publisher(ports, PROBE, self.ledger)
        self._consumer = Consumer(ports, CONSUMER, self.ledger)
        self._tasks: list[asyncio.Task[None]] = []
        self._producing: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        clients = [*self._publishers, self._probe, self._consumer]
        work = [client.run() for client in clients] + [self._consumer.settle()]
        self._tasks = [loop.create_task(coroutine) for coroutine in work]

    def produce(self) -> None:
        loop = asyncio.get_running_loop()
        self._producing = [loop.create_task(one.produce()) for one in self._publishers]

    async def probe(self, within_s: float) -> float:
        """How long a message takes from here to its confirm."""
        begun_s = time.monotonic()
        async with asyncio.timeout(within_s):
            await self._probe.publish()
        return time.monotonic() - begun_s

    async def drained(self) -> None:
        """Publish no more; wait until all is confirmed and consumed, and look at it."""
        for task in self._producing:
            task.cancel()
        async with asyncio.timeout(WITHIN_S):
            for publisher in [*self._publishers, self._probe]:
                await publisher.drain()
            await self._consumer.drain()
        self.ledger.check()

    async def stop(self) -> None:
        tasks = [*self._producing, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def play(cluster: Cluster, load: Load, fault: str) -> Figures:
    """One round."""
    load.produce()
    await load.probe(WITHIN_S)
    await cluster.caught_up(list(cluster.members), WITHIN_S)
    found = Round(cluster, load, fault)
    await FAULTS[fault](found)
    return await found.counted()


@asynccontextmanager
async def loaded(cluster: Cluster) -> AsyncIterator[Load]:
    load = Load(cluster)
    load.start()
    try:
        yield load
    finally:
        await load.stop()
