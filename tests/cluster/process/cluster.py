"""Runs processes of `tests.cluster.process.node` with a proxy in every link, and knows the leader.

Every node reports changes of its roles to a watcher, so that tests need not poll. A link can be cut
in one direction or both: bytes wait in the proxy, and no side is told, as on a network that drops
packets.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.proxy import Proxy, Way, proxy
from tools.ports import HOST, free_port

START_S: Final = 30.0
ANSWER_S: Final = 30.0
_READY: Final = re.compile(rb"ready client=(\d+) listen=(\d+)")

Told = dict[str, Any]


@dataclass
class Role:
    """What a node has said of itself last."""

    term: int
    name: str
    leader: int


class Member:
    """One process, which comes and goes on the same data."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.data = folder / f"node-{number}"
        self.log = folder / f"node-{number}.log"
        self.listen = free_port()
        self.client = free_port()
        self.process: asyncio.subprocess.Process | None = None
        self.is_stopped = False
        self.roles: dict[int, Role] = {}  # by group
        self.watch: asyncio.Task[None] | None = None

    @property
    def role(self) -> Role | None:
        """In the first group."""
        return self.roles.get(1)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)


class Cluster:
    """Some nodes and the links between them."""

    def __init__(self, folder: Path, words: list[str], *, direct: bool = False) -> None:
        self._folder = folder
        self._words = words
        self._is_direct = direct  # without proxies
        self._stack = AsyncExitStack()
        self._news = asyncio.Event()
        self.members: dict[int, Member] = {}
        self.proxies: dict[tuple[int, int], Proxy] = {}  # by who dials and who listens
        self.ports: dict[int, int] = {}  # for clients

    # Life

    async def add(self, number: int) -> Member:
        """A node that is to be; its links to all others go through proxies."""
        member = Member(number, self._folder)
        for other in [] if self._is_direct else self.members.values():
            high, low = sorted((member, other), key=lambda one: -one.number)
            line = await self._stack.enter_async_context(proxy(low.listen))
            self.proxies[high.number, low.number] = line
        self.members[number] = member
        self.ports[number] = member.client
        return member

    async def start(self, number: int, *words: str) -> None:
        """Start a node, and wait until it listens."""
        member = self.members[number]
        log = await asyncio.to_thread(member.log.open, "ab")
        with log:
            member.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.cluster.process.node"),
                *("--node", str(number), "--data", str(member.data)),
                *("--listen", str(member.listen), "--client", str(member.client)),
                *self._peer_words(number),
                *(*self._words, *words),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        assert member.process.stdout is not None
        async with asyncio.timeout(START_S):
            line = await member.process.stdout.readline()
        assert _READY.match(line), f"node {number} does not start: {member.log.read_text()}"
        member.watch = asyncio.get_running_loop().create_task(self._watch(member))

    def _peer_words(self, number: int) -> list[str]:
        words = []
        for other in self.members.values():
            if other.number != number:
                line = self.proxies.get((number, other.number))
                # The one that is dialed never dials itself, so its address is of no use.
                port = other.listen if line is None else line.port
                words += ["--peer", f"{other.number}={HOST}:{port}"]
        return words

    async def kill(self, number: int) -> None:
        """As kill -9 does."""
        await self._end(self.members[number], signal.SIGKILL)

    async def terminate(self, number: int) -> None:
        """Stop it as users do: it ends without a fault, and nothing of it outlives the stop."""
        member = self.members[number]
        code = await self._end(member, signal.SIGTERM)
        told = member.log.read_text()
        assert (code, "Traceback" in told) == (0, False), told

    async def _end(self, member: Member, number: signal.Signals) -> int:
        process, member.process = member.process, None
        assert process is not None
        if member.is_stopped and number != signal.SIGKILL:
            process.send_signal(signal.SIGCONT)
        member.is_stopped = False
        process.send_signal(number)
        async with asyncio.timeout(START_S):
            code = await process.wait()
        if member.watch is not None:
            member.watch.cancel()
        member.roles = {}
        return code

    def stop(self, number: int) -> None:
        """SIGSTOP: it stands still, and its sockets stay."""
        self.members[number].signal(signal.SIGSTOP)
        self.members[number].is_stopped = True
        self.members[number].roles = {}

    def cont(self, number: int) -> None:
        self.members[number].signal(signal.SIGCONT)
        self.members[number].is_stopped = False

    async def close(self) -> None:
        for member in self.members.values():
            if member.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    await self._end(member, signal.SIGKILL)
        await self._stack.aclose()

    # Links

    def cut(self, source: int, target: int) -> None:
        """Nothing passes from one node to another any more."""
        high, low = max(source, target), min(source, target)
        self.proxies[high, low].stall([Way.OUT if source == high else Way.BACK])

    def isolate(self, number: int) -> None:
        for pair, line in self.proxies.items():
            if number in pair:
                line.stall()

    def heal(self) -> None:
        for line in self.proxies.values():
            line.flow()

    # Roles

    async def _watch(self, member: Member) -> None:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(HOST, member.client)
            try:
                writer.write(b'{"do": "watch"}\n')
                while line := await reader.readline():
                    told = json.loads(line)
                    if not member.is_stopped:
                        member.roles[told["group"]] = Role(*told["role"])
                        self._news.set()
            finally:
                writer.close()

    async def until(self, condition: Callable[[], bool], within_s: float) -> float:
        """Wait for news that make it true; how long that took."""
        begun_s = time.monotonic()
        async with asyncio.timeout(within_s):
            while not condition():
                self._news.clear()
                await self._news.wait()
        return time.monotonic() - begun_s

    def leader(self, group: int = 1) -> Member | None:
        """Who leads, of those that are up, in the latest term."""
        found: Member | None = None
        term = 0
        for member in self.members.values():
            role = member.roles.get(group)
            if role is not None and role.name == "leader" and role.term > term:
                found, term = member, role.term
        return found

    async def elected(self, above: int, within_s: float, but: int = 0) -> float:
        """Wait for a leader of a later term, other than one; how long that took."""

        def is_there() -> bool:
            found = self.leader()
            if found is None or found.role is None or found.number == but:
                return False
            return found.role.term > above

        return await self.until(is_there, within_s)

    # Asking

    async def ask(self, number: int, request: Told) -> Told:
        """One request and its answer, over a connection of its own."""
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(HOST, self.ports[number])
            try:
                writer.write(json.dumps(request).encode() + b"\n")
                answer: Told = json.loads(await reader.readline())
            finally:
                writer.close()
        return answer

    async def status(self, number: int, group: int = 1) -> Told:
        return await self.ask(number, {"do": "status", "group": group})

    async def change(self, change: str, *arguments: int, within_s: float = 30.0) -> None:
        """A change of the members, a handover, or a snapshot; asked again while it is refused."""
        async with asyncio.timeout(within_s):
            while True:
                leader = self.leader()
                if leader is not None:
                    request = {"do": "change", "change": change, "arguments": arguments}
                    answer = await self.ask(leader.number, request)
                    if "answer" in answer:
                        return
                await asyncio.sleep(0.05)  # it says when it can: not yet

    async def caught_up(self, numbers: list[int], within_s: float) -> float:
        """Wait until these have applied all that the leader has committed now."""
        begun_s = time.monotonic()
        async with asyncio.timeout(within_s):
            goal = (await self.read())["commit"]
            for number in numbers:
                while (await self.status(number))["answer"]["applied"] < goal:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.02)
        return time.monotonic() - begun_s

    async def read(self) -> Told:
        """The state of the group, as of now, from its leader."""
        while True:
            leader = self.leader()
            if leader is not None:
                answer = await self.ask(leader.number, {"do": "read"})
                if "answer" in answer:
                    found: Told = answer["answer"]
                    return found
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running(
    folder: Path, *words: str, size: int = 3, direct: bool = False
) -> AsyncIterator[Cluster]:
    """Nodes 1 to `size`, up and with a leader."""
    voters = ",".join(str(number) for number in range(1, size + 1))
    cluster = Cluster(folder, ["--voters", voters, *words], direct=direct)
    try:
        for number in range(1, size + 1):
            await cluster.add(number)
        async with asyncio.TaskGroup() as group:
            for number in cluster.members:
                group.create_task(cluster.start(number))
        await cluster.elected(0, START_S)
        yield cluster
    finally:
        await cluster.close()
