"""One run: start servers, nodes, workers and producers; kill; wait for the end; check.

During the run the tables are watched for leases that ended and were not taken back. After the last
kill every job must be done within one lease and the slack of the plan.
"""

import asyncio
import os
import random
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
from tools.chaos_jobs import actor, ledger
from tools.ports import free_port
from tools.services import Postgres, RedisServer

READY_S: Final = 60.0
STILL_S: Final = 60.0  # at the end: so long nothing was done any more
_LEFT: Final = "SELECT count(*) FROM items"
SECRET: Final = "a secret of the chaos run, long enough"
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
    lease_s: float = 3.0
    long_lease_s: float = 9.0  # of every other dequeue: so long that Redis may note the acks
    slack_s: float = 10.0  # beyond its lease, after which a job is stuck; prefetching adds 7.5 s
    seed: int = 1
    clock_steps_s: float = 5.0  # between two steps of a node's clock; 0: none
    clock_off_s: float = 50.0  # by how much a clock is wrong at most; a minute is allowed
    databases: int = 2
    shards: int = 2  # databases that nodes are given at first
    has_fresh_topics: bool = False  # a new one each second


class Node:
    """A `leveret serve` on its own directory and port, killed and started again."""

    def __init__(self, folder: Path, redis_url: str, dsns: list[str]) -> None:
        self._folder = folder
        self.port = free_port()
        self._redis_url = redis_url
        self._flags: list[str] = []
        self._offset = folder.parent / f"{folder.name}.offset"
        self.set_clock(0)
        self.give(dsns)
        self._process: subprocess.Popen[bytes] | None = None

    def give(self, dsns: list[str]) -> None:
        """The shards, from the next start on."""
        shards = [word for dsn in dsns for word in ("--jobs-postgres", dsn)]
        own = ["--data", str(self._folder), "--amqp-port", "0", "--http-port", str(self.port)]
        jobs = ["--jobs-redis", self._redis_url, *shards, "--jobs-token-secret", SECRET]
        self._flags = own + jobs

    def set_clock(self, off_ms: int) -> None:
        """Set the wall clock of the node wrong by so much, at once."""
        draft = self._offset.with_suffix(".draft")
        draft.write_text(str(off_ms))
        draft.replace(self._offset)

    def start(self) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
        node = [sys.executable, "-m", "tools.chaos_jobs.skewed_node", str(self._offset)]
        command = [*node, "serve", *self._flags]
        with (self._folder.parent / f"{self._folder.name}.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=clean)
        assert self._process.stdout is not None
        if not self._process.stdout.readline().startswith(b"leveret ready"):
            raise RuntimeError(f"a node did not start: see {self._folder}.log")

    def end(self, number: int) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(READY_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        return code

    def close(self) -> None:
        if self._process is not None:
            self.end(signal.SIGKILL)


class Run:
    """Everything that lives during a run."""

    def __init__(self, plan: Plan, folder: Path, stack: ExitStack, say: Callable[[str], None]):
        self._plan = plan
        self._folder = folder
        self._say = say
        self._chance = random.Random(plan.seed)
        self._postgres = stack.enter_context(_server(Postgres))
        self._redis = stack.enter_context(_server(RedisServer))
        self._dsns = stack.enter_context(self._postgres.databases(plan.databases))
        self.nodes = []
        for number in range(plan.nodes):
            (folder / f"node{number}").mkdir()
            node = Node(folder / f"node{number}", self._redis.url, self._dsns[: plan.shards])
            stack.callback(node.close)
            self.nodes.append(node)
        self._books = folder / "books"
        self._books.mkdir()
        self._over = folder / "over"
        self._workers: list[subprocess.Popen[bytes]] = []
        self._producers: list[subprocess.Popen[bytes]] = []
        self._started = 0
        self._begun_s = time.monotonic()
        stack.callback(self._end_actors)

    def go(self) -> ledger.Account:
        for node in self.nodes:
            node.start()
        token = _token()
        self._producers = [self._actor("produce", token) for _ in range(self._plan.producers)]
        self._workers = [self._actor("work", token) for _ in range(self._plan.workers)]
        late = self._kill_for(token)
        self._over.touch()
        for producer in self._producers:
            producer.wait(READY_S)
        late = max(late, self._drain())
        codes = [node.end(signal.SIGTERM) for node in self.nodes]
        self._end_actors()
        account = ledger.balance(ledger.read(self._books))
        if late > self._plan.slack_s:
            account.faults.append(f"a job was stuck for {late:.1f} s beyond its lease")
        if any(codes):
            account.faults.append(f"nodes ended with {codes}")
        left = self._ask(_LEFT)
        if left:
            account.faults.append(f"{left} jobs are left in the tables")
        self._say(f"longest beyond its lease {late:.2f} s; exits {codes}")
        return account

    def _actor(self, role: str, token: str) -> subprocess.Popen[bytes]:
        self._started += 1
        book = self._books / f"{role}{self._started}"
        ports = [str(node.port) for node in self.nodes]
        plan = self._plan
        options = [f"pause={plan.pause_s}", f"lease={plan.lease_s}", f"over={self._over}"]
        options.append(f"long={plan.long_lease_s}")
        if plan.has_fresh_topics:
            options.append(f"fresh={self._begun_s}")
        command = [sys.executable, "-S", "-E", str(ACTOR), role, str(book), token]
        return subprocess.Popen([*command, *ports, *options])

    def _kill_for(self, token: str) -> float:
        """Kill until the time is over; for how long a lease was over at worst."""
        plan, late = self._plan, 0.0
        begin = time.monotonic()
        next_worker, kills = begin + plan.worker_kills_s, 0
        next_step = begin + (plan.clock_steps_s or plan.seconds)
        every_s = plan.seconds / (plan.node_kills + 1)
        while (now := time.monotonic()) < begin + plan.seconds:
            if now >= next_worker:
                next_worker += plan.worker_kills_s
                self._replace_worker(token)
                late = max(late, self._late_s())
            if now >= next_step:
                next_step += plan.clock_steps_s
                most_ms = round(plan.clock_off_s * 1000)
                self._chance.choice(self.nodes).set_clock(self._chance.randint(-most_ms, most_ms))
            if kills < plan.node_kills and now >= begin + every_s * (kills + 1):
                kills += 1
                node = self._chance.choice(self.nodes)
                node.end(signal.SIGKILL)
                time.sleep(self._chance.random() * 0.3)
                node.start()
                if kills % 10 == 0:
                    self._say(f"{kills} kills of nodes")
            time.sleep(0.05)
        return late

    def _replace_worker(self, token: str) -> None:
        place = self._chance.randrange(len(self._workers))
        self._workers[place].kill()
        self._workers[place].wait()
        self._workers[place] = self._actor("work", token)

    def _late_s(self) -> float:
        """Return how long ago the oldest lease ended that is not taken back yet."""
        return float(
            self._ask(
                "SELECT coalesce(max(extract(epoch FROM now() - lease_expires_at)), 0)"
                " FROM items WHERE status IN ('leased', 'processing')"
            )
        )

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
