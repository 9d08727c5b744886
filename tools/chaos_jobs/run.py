"""One run: start servers, nodes, workers and producers; do harm; wait for the end; check.

Nodes are killed between the outages of the plan (`outages.py`), workers and clocks are harmed all
the time. While all servers work, the tables are watched for leases that ended and were not taken
back. After the last harm every job must be done within one lease and the slack of the plan.
"""

import asyncio
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncpg

from leveret.clock import Clock
from tools.chaos_jobs import actor, ledger, outages, stories
from tools.chaos_jobs.harm import Harm
from tools.chaos_jobs.node import SECRET, Node
from tools.services import Postgres, RedisServer

READY_S: Final = 60.0
STILL_S: Final = 60.0  # at the end: so long nothing was done any more
BURST_S: Final = 1.0  # from the burst of jobs to its outage: some of them are prefetched by then
TURN_S: Final = 0.05  # between two looks at what is due
STORIES: Final = 3  # jobs whose events are told
_LEFT: Final = "SELECT count(*) FROM items"
ACTOR: Final = Path(actor.__file__)


@dataclass(frozen=True)
class Plan:
    """How long and how hard."""

    seconds: float = 600.0
    nodes: int = 2
    workers: int = 50
    producers: int = 4
    node_kills: int = 50
    worker_kills_s: float = 1.0  # between two
    pause_s: float = 0.02  # of a producer
    rushers: int = 4  # workers of the busy topics
    pile: int = 1  # calls for 50 jobs of each busy topic, twice a second
    burst: int = 10  # the same, shortly before each outage
    lease_s: float = 3.0
    long_lease_s: float = 8.0  # of every other dequeue: so long that Redis may note the acks
    # Beyond its lease, after which a job is stuck. Prefetching adds 7.5 s. Leases wait for 10 s for
    # the acks of a node that was killed or is frozen.
    slack_s: float = 20.0
    seed: int = 1
    clock_steps_s: float = 5.0  # between two steps of a node's clock; 0: none
    clock_off_s: float = 50.0  # by how much a clock is wrong at most; a minute is allowed
    databases: int = 2
    shards: int = 2  # databases that nodes are given at first
    has_fresh_topics: bool = False  # a new one each second
    books: str = ""  # where the files of a run are kept; empty: nowhere
    outages: str = ",".join(outages.KINDS)  # kinds; empty: none


class Run:
    """Everything that lives during a run."""

    def __init__(self, plan: Plan, folder: Path, stack: ExitStack, say: Callable[[str], None]):
        self._plan = plan
        self._folder = folder
        self._say = say
        # Each draws for itself, so that a seed repeats it whenever the others draw.
        self._killed = random.Random(f"{plan.seed} kills")
        self._replaced = random.Random(f"{plan.seed} workers")
        self._stepped = random.Random(f"{plan.seed} clocks")
        kinds = plan.outages.split(",") if plan.outages else []
        self.outages = outages.planned(
            plan.seed,
            plan.seconds,
            kinds,
            shards=plan.shards,
            nodes=plan.nodes,
            lease_s=plan.long_lease_s,
        )
        # To be frozen alone, a database needs a server of its own.
        apart = [1] * plan.databases if kinds else [plan.databases]
        servers = [stack.enter_context(_server(Postgres)) for _ in apart]
        redis = stack.enter_context(_server(RedisServer))
        self._dsns = [
            dsn
            for server, count in zip(servers, apart, strict=True)
            for dsn in stack.enter_context(server.databases(count))
        ]
        self._books = folder / "books"
        self._books.mkdir()
        self.nodes = []
        for number in range(plan.nodes):
            (folder / f"node{number}").mkdir()
            dsns, book = self._dsns[: plan.shards], self._books / f"node{number}"
            node = Node(folder / f"node{number}", redis.url, dsns, book)
            stack.callback(node.close)
            self.nodes.append(node)
        self._harm = Harm(self._books / "harm", servers, redis, self.nodes)
        stack.callback(self._harm.close)
        self._over = folder / "over"
        self._burst = folder / "burst"
        self._burst.touch()
        self._roles: list[tuple[str, int]] = []  # and numbers, of the workers
        self._workers: list[subprocess.Popen[bytes]] = []
        self._producers: list[subprocess.Popen[bytes]] = []
        self._started = 0
        self._begun_s = time.monotonic()
        self._well_since_s = 0.0  # since when no outage is under way
        self._next_worker_s = self._next_step_s = 0.0  # times of the next kill and clock
        stack.callback(self._end_actors)

    def go(self) -> ledger.Account:
        for node in self.nodes:
            node.start()
        token = _token()
        plan = self._plan
        self._producers = [self._actor("produce", token) for _ in range(plan.producers)]
        self._roles = [("work", n) for n in range(plan.workers)]
        if plan.rushers:
            self._producers.append(self._actor("pile", token))
            self._roles += [("rush", n) for n in range(plan.rushers)]
        self._workers = [self._actor(role, token, number) for role, number in self._roles]
        late = self._kill_for(token)
        self._over.touch()
        for producer in self._producers:
            producer.wait(READY_S)
        late = max(late, self._drain())
        codes = [node.end(signal.SIGTERM) for node in self.nodes]
        self._end_actors()
        if plan.books:
            shutil.copytree(self._folder, plan.books, ignore=_ignore_data)
        events = ledger.read(self._books)
        account = ledger.balance(events)
        account.outages = stories.outages_of(events)
        account.stories = [stories.story(events, id) for id in account.wrong[:STORIES]]
        if late > self._plan.slack_s:
            account.faults.append(f"a job was stuck for {late:.1f} s beyond its lease")
        if any(codes):
            account.faults.append(f"nodes ended with {codes}")
        left = self._ask(_LEFT)
        if left:
            account.faults.append(f"{left} jobs are left in the tables")
        self._say(f"longest beyond its lease {late:.2f} s; exits {codes}")
        return account

    def _actor(self, role: str, token: str, number: int = 0) -> subprocess.Popen[bytes]:
        self._started += 1
        book = self._books / f"{role}{self._started}"
        ports = [str(node.port) for node in self.nodes]
        plan = self._plan
        options = [f"pause={plan.pause_s}", f"lease={plan.lease_s}", f"over={self._over}"]
        options += [f"long={plan.long_lease_s}", f"number={number}", f"pile={plan.pile}"]
        options += [f"many={plan.burst}", f"burst={self._burst}"]
        if plan.has_fresh_topics:
            options.append(f"fresh={self._begun_s}")
        command = [sys.executable, "-S", "-E", str(ACTOR), role, str(book), token]
        return subprocess.Popen([*command, *ports, *options])

    def _kill_for(self, token: str) -> float:
        """Do harm until the time is over; for how long a lease was over at worst."""
        plan, late = self._plan, 0.0
        self._harm.note("begin")
        begin = time.monotonic()
        self._next_worker_s = begin + plan.worker_kills_s
        self._next_step_s = begin + (plan.clock_steps_s or float("inf"))
        every_s = plan.seconds / (plan.node_kills + 1)
        left, kills = list(self.outages), 0
        while (now := time.monotonic()) < begin + plan.seconds:
            if self._harm_until(token, now + TURN_S):
                late = max(late, self._late_s())
            if left and now >= begin + left[0].begin_s - outages.CALM_S:
                self._carry_out(token, left.pop(0), begin)
            elif kills < plan.node_kills and now >= begin + every_s * (kills + 1):
                kills += 1
                self._kill_node()
                if kills % 10 == 0:
                    self._say(f"{kills} kills of nodes")
        return late

    def _harm_until(self, token: str, at_s: float) -> bool:
        """Wait; kill workers and set clocks when it is time. Return whether a worker was killed."""
        is_killed = False
        while (now := time.monotonic()) < at_s:
            if now >= self._next_worker_s:
                self._next_worker_s += self._plan.worker_kills_s
                self._replace_worker(token)
                is_killed = True
            if now >= self._next_step_s:
                self._next_step_s += self._plan.clock_steps_s
                self._step_clock()
            time.sleep(max(min(at_s - time.monotonic(), TURN_S), 0.0))
        return is_killed

    def _carry_out(self, token: str, outage: outages.Outage, begin_s: float) -> None:
        """Do the harm of an outage, with times of calm before and after it."""
        late_s = time.monotonic() + outages.CALM_S - begin_s - outage.begin_s
        begin_s += max(late_s, 0.0)  # a node was killed just now
        self._harm_until(token, begin_s + outage.begin_s - BURST_S)
        self._burst.write_text(str(outage.begin_s))
        self._harm_until(token, begin_s + outage.begin_s)
        length_s = outage.end_s - outage.begin_s
        self._harm.note("outage", what=f"{outage.kind} for {length_s:.1f} s")
        for step in outage.steps:
            self._harm_until(token, begin_s + step.at_s)
            self._harm.carry_out(step)
        for node in self.nodes:
            node.wait_until_ready()
        self._well_since_s = time.monotonic()
        self._harm_until(token, self._well_since_s + outages.CALM_S)

    def _kill_node(self) -> None:
        number = self._killed.randrange(len(self.nodes))
        self._harm.note("fault", what=f"kill node {number}")
        self.nodes[number].end(signal.SIGKILL)
        time.sleep(self._killed.random() * 0.3)
        self.nodes[number].start()

    def _step_clock(self) -> None:
        number = self._stepped.randrange(len(self.nodes))
        most_ms = round(self._plan.clock_off_s * 1000)
        off_ms = self._stepped.randint(-most_ms, most_ms)
        self._harm.note("fault", what=f"set the clock of node {number} wrong by {off_ms} ms")
        self.nodes[number].set_clock(off_ms)

    def _replace_worker(self, token: str) -> None:
        place = self._replaced.randrange(len(self._workers))
        self._workers[place].kill()
        self._workers[place].wait()
        role, number = self._roles[place]
        self._workers[place] = self._actor(role, token, number)

    def _late_s(self) -> float:
        """Return how long ago the oldest lease ended that is not taken back yet.

        Only the time counts in which it could have been taken back.
        """
        late_s = self._ask(
            "SELECT coalesce(max(extract(epoch FROM now() - lease_expires_at)), 0)"
            " FROM items WHERE status IN ('leased', 'processing')"
        )
        return min(late_s, time.monotonic() - self._well_since_s)

    def _drain(self) -> float:
        """Wait until all is done, or nothing is; for how long a lease was over at worst."""
        late, fewest, since = 0.0, float("inf"), time.monotonic()
        while (left := self._ask(_LEFT)) and time.monotonic() < since + STILL_S:
            if left < fewest:
                fewest, since = left, time.monotonic()
            late = max(late, self._late_s())
            time.sleep(0.1)
        return late

    def _ask(self, sql: str) -> float:
        """The sum of what the shards answer."""

        async def ask() -> float:
            total = 0.0
            for dsn in self._dsns:
                connection = await asyncpg.connect(dsn, timeout=READY_S)
                total += float(await connection.fetchval(sql))
                await connection.close()
            return total

        return asyncio.run(ask())

    def _end_actors(self) -> None:
        for process in (*self._workers, *self._producers):
            process.kill()
            process.wait()


def _ignore_data(folder: str, names: list[str]) -> list[str]:
    """Return the directories of the nodes, which are not copied."""
    return [name for name in names if (Path(folder) / name / "jobs").is_dir()]


@contextmanager
def _server(kind: type[Any]) -> Iterator[Any]:
    server = kind()
    try:
        server.start()
        yield server
    finally:
        server.remove()


def _token() -> str:
    from leveret.runtime.job_tokens import make_token

    return str(make_token(SECRET, [actor.NAMESPACE], "chaos", Clock().now_ms(), 24 * 3600))


def run(plan: Plan, say: Callable[[str], None]) -> ledger.Account:
    """Run a plan; what the books say."""
    with tempfile.TemporaryDirectory(prefix="leveret-chaos-") as name, ExitStack() as stack:
        return Run(plan, Path(name), stack, say).go()
