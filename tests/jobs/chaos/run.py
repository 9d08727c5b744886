"""One run: nodes and workers are killed for a while, then every job must end."""

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import IO, Final

from leveret.jobs import CallError, Client, NewJob, TopicSettings
from tests.jobs.chaos.ledger import Ledger, LedgerServer
from tests.jobs.chaos.worker import KINDS, LEASE_S, NAMESPACE, TOPIC
from tools.benchmark_jobs.servers import token_of
from tools.ports import HOST, free_port

ANSWER_S: Final = 60.0
STUCK_S: Final = 60.0  # in which no job was done; all of them may take longer on a busy machine
NODE_KILLS_MIN: Final = 2
WORKER_KILLS_MIN: Final = 5
JOBS_MIN: Final = 101
BATCH: Final = 10
WAITING_MAX: Final = 300  # jobs: producers must not be faster than the workers of a busy machine
RETRIES_MAX: Final = 1_000
PAUSE_S: Final = 0.02  # of a producer, between two batches


@dataclass
class Outcome:
    """The figures of a run."""

    jobs_told: int = 0  # ids that producers were told
    jobs_done: int = 0
    node_kills: int = 0
    worker_kills: int = 0
    repeated: int = 0  # jobs that were handed out more than once
    refused: int = 0  # by the ledger, for their token
    rest_s: float = 0.0  # until nothing was left, after the last kill
    faults: list[str] = field(default_factory=list)


class Node:
    """A node that comes back on the same port."""

    def __init__(self, data: Path, log: IO[str]) -> None:
        self._data = data
        self._log = log
        self._port = free_port()
        self.url = f"http://{HOST}:{self._port}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        words = ["--data", str(self._data), "--amqp-port", "0", "--http-port", str(self._port)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "leveret", "serve", *words],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=_environment(),
        )
        assert self._process.stdout is not None
        if not self._process.stdout.readline().startswith("leveret ready"):
            raise RuntimeError("the node did not start")

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


class Workers:
    """Processes that are killed and replaced."""

    def __init__(self, url: str, token: str, port: int, log: IO[str]) -> None:
        self._words = (url, token, str(port))
        self._log = log
        self._processes: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def start(self) -> None:
        kind = KINDS[self._started % len(KINDS)]
        self._started += 1
        command = [sys.executable, "-m", "tests.jobs.chaos.worker", *self._words, kind]
        self._processes.append(
            subprocess.Popen(command, stderr=self._log, env=_environment(), cwd=_ROOT)
        )

    def kill(self, index: int) -> None:
        process = self._processes.pop(index % len(self._processes))
        process.kill()
        process.wait()

    def end(self) -> None:
        while self._processes:
            self.kill(0)


class Producer(threading.Thread):
    """Puts in jobs, with keys and without; `told` has the ids of answers, and when they came."""

    def __init__(self, name: str, url: str, token: str, ledger: Ledger) -> None:
        super().__init__(name=name, daemon=True)
        self._ledger = ledger
        self.told: dict[int, float] = {}
        self.stopping = threading.Event()
        self._client = Client(url, token=token, namespace=NAMESPACE, timeout_s=5)

    def run(self) -> None:
        number = 0
        while not self.stopping.wait(PAUSE_S):
            if self._ledger.waiting() > WAITING_MAX:
                continue
            number += 1
            has_keys = number % 2 == 0
            keys = [f"{self.name}-{number}-{each}" for each in range(BATCH)]
            self._put_in([_job(key, has_keys) for key in keys], has_keys)
        self._client.close()

    def _put_in(self, jobs: list[NewJob], has_keys: bool) -> None:
        """With keys until there is an answer; without them a lost answer is not known of."""
        while not self.stopping.is_set():
            with suppress(CallError):
                ids = self._client.enqueue_many(jobs).ids
                self._ledger.on_put_in(len(ids))
                self.told.update(dict.fromkeys(ids, time.monotonic()))
                return
            if not has_keys:
                return
            time.sleep(PAUSE_S)


def _job(key: str, has_key: bool) -> NewJob:
    shown = key if has_key else ""
    return NewJob(topic=TOPIC, payload={"key": shown}, idempotency_key=key if has_key else None)


def run(
    data: Path,
    log: IO[str],
    rng: Random,
    *,
    seconds: float,
    workers: int = 4,
    worker_kill_s: float = 0.7,
    node_kill_s: float = 2.5,
) -> Outcome:
    """Kill for so many seconds, then wait for rest."""
    outcome = Outcome()
    node = Node(data, log)
    node.start()
    token = token_of(data, NAMESPACE)
    with Client(node.url, token=token, namespace=NAMESPACE, timeout_s=ANSWER_S) as client:
        # A job whose workers are killed again and again would be dead, and rightly so.
        client.set_settings(TOPIC, TopicSettings(retries_max=RETRIES_MAX))
    server = LedgerServer()
    crew = Workers(node.url, token, server.port, log)
    producers = [Producer(f"p{number}", node.url, token, server.ledger) for number in range(2)]
    try:
        for _ in range(workers):
            crew.start()
        for producer in producers:
            producer.start()
        _kill(node, crew, producers, outcome, rng, seconds, worker_kill_s, node_kill_s)
        for producer in producers:
            producer.stopping.set()
            producer.join()
        told = {id: at_s for producer in producers for id, at_s in producer.told.items()}
        _rest(node, token, server.ledger, told, outcome)
    finally:
        crew.end()
        node.kill()
        server.close()
    _account(server.ledger, told, outcome)
    return outcome


def _kill(
    node: Node,
    crew: Workers,
    producers: list[Producer],
    outcome: Outcome,
    rng: Random,
    seconds: float,
    worker_kill_s: float,
    node_kill_s: float,
) -> None:
    until_s = time.monotonic() + seconds
    node_s = time.monotonic() + node_kill_s
    # On a busy machine a node may take that long to start: some kills and jobs there must be.
    while (
        time.monotonic() < until_s
        or outcome.node_kills < NODE_KILLS_MIN
        or outcome.worker_kills < WORKER_KILLS_MIN
        or sum(len(producer.told) for producer in producers) < JOBS_MIN
    ):
        time.sleep(worker_kill_s * rng.uniform(0.5, 1.5))
        crew.kill(rng.randrange(1 << 16))
        crew.start()
        outcome.worker_kills += 1
        if time.monotonic() > node_s:
            node.kill()
            node.start()
            outcome.node_kills += 1
            node_s = time.monotonic() + node_kill_s * rng.uniform(0.5, 1.5)


def _rest(node: Node, token: str, ledger: Ledger, told: dict[int, float], outcome: Outcome) -> None:
    """Wait until the service has nothing left and the ledger has all that producers were told."""
    began_s = moved_s = time.monotonic()
    fewest: int | None = None
    with Client(node.url, token=token, namespace=NAMESPACE, timeout_s=ANSWER_S) as client:
        while True:
            topics = client.stats(namespace=NAMESPACE)
            left = sum((t.ready or 0) + (t.leased or 0) + (t.scheduled or 0) for t in topics)
            if left == 0:
                break
            if fewest is None or left < fewest:
                fewest, moved_s = left, time.monotonic()
            if time.monotonic() - moved_s > STUCK_S:
                outcome.faults.append(f"{left} jobs are there, and none was done in {STUCK_S} s")
                break
            time.sleep(0.1)
        dead = client.dead(TOPIC, limit=1000)
        outcome.faults += [f"job {job.id} is dead: {job.failures[-1].error}" for job in dead]
    outcome.rest_s = time.monotonic() - began_s
    time.sleep(LEASE_S)  # what comes back does so now


def _account(ledger: Ledger, told: dict[int, float], outcome: Outcome) -> None:
    outcome.jobs_told = len(told)
    outcome.jobs_done = sum(bool(entry.applied) for entry in ledger.entries.values())
    outcome.repeated = sum(len(entry.took) > 1 for entry in ledger.entries.values())
    outcome.refused = ledger.refused
    outcome.faults += ledger.faults(told)


_ROOT: Final = Path(__file__).resolve().parents[3]


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
