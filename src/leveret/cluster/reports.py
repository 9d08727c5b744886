"""Reports of the other nodes about their machines, which the leader keeps.

A node that follows sends a report every few seconds, and at once to a new leader. The answer is the
state of the cluster in one word: the leader knows most. What is in a report, and which states there
are, belongs to the owner of the member, which makes and reads them.
A report that is not renewed is forgotten, so that no old figure passes for a new one.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from leveret.cluster.errors import ClusterError
from leveret.cluster.forming import REPORT
from leveret.cluster.links import Links
from leveret.cluster.peers import Answer
from leveret.cluster.raft.members import MEMBERS_MAX

REPORT_S: Final = 5.0  # between two reports, as RabbitMQ collects its figures
FRESH_S: Final = 3 * REPORT_S  # then a report is forgotten
REPORT_BYTES_MAX: Final = 4096


class Reports:
    """The newest reports of all other nodes, and the next report of this one."""

    def __init__(self, links: Links, loop: asyncio.AbstractEventLoop) -> None:
        self.make: Callable[[], bytes] | None = None  # called in a thread; None: send no reports
        self.find_state: Callable[[], str] = str  # returns the state of the cluster
        self._links = links
        self._loop = loop
        self._newest: dict[str, tuple[float, bytes]] = {}  # time of arrival and report, by name
        self._leader = ""  # the node to which the last report went
        self._sent_s = 0.0
        self._told = (0.0, "", "")  # when a leader told a state, its name, and the state
        self._task: asyncio.Task[None] | None = None

    def on_tick(self, leader: str) -> None:
        """Send a report to the node that leads, if it is time; empty: no other node leads."""
        now_s = self._loop.time()
        is_due = leader != self._leader or now_s - self._sent_s >= REPORT_S
        if self.make is None or not is_due or not self._links.can_talk(leader):
            return
        self.stop()
        self._leader = leader
        self._sent_s = now_s
        self._task = self._loop.create_task(self._send(leader, self.make))

    async def _send(self, leader: str, make: Callable[[], bytes]) -> None:
        report = await self._loop.run_in_executor(None, make)
        with contextlib.suppress(ClusterError):  # the next report comes soon
            state = await self._links.request(leader, REPORT, report, REPORT_S)
            self._told = self._loop.time(), leader, state

    def told_state(self, leader: str) -> str:
        """Return the state that a leader has told; empty if it has not done so lately."""
        told_s, teller, state = self._told
        return state if teller == leader and self._loop.time() - told_s <= FRESH_S else ""

    def stop(self) -> None:
        """Give up the report that is under way."""
        if self._task is not None:
            self._task.cancel()

    def on_report(self, peer: str, report: bytes, answer: Answer) -> None:
        """Keep the report of another node."""
        is_known = peer in self._newest or len(self._newest) < MEMBERS_MAX
        if len(report) > REPORT_BYTES_MAX or not is_known:
            answer(False, "the report is too long, or there are too many nodes")
            return
        self._newest[peer] = self._loop.time(), report
        answer(True, self.find_state())

    def newest(self, name: str) -> bytes:
        """Return the report of another node; empty if it has not sent one lately."""
        arrived_s, report = self._newest.get(name, (0.0, b""))
        if self._loop.time() - arrived_s > FRESH_S:
            self._newest.pop(name, None)
            return b""
        return report

    def age_s(self, name: str) -> float:
        """Return the time since the newest report of a node came."""
        return self._loop.time() - self._newest[name][0] if name in self._newest else 0.0
