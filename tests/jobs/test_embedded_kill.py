"""`kill -9` of a node during enqueues and acks loses no job and brings none back."""

import http.client
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.jobs.api import Api

pytestmark = pytest.mark.compiled_only("the form makes no difference to what a kill leaves")

READY = re.compile(r"leveret ready amqp=127\.0\.0\.1:\d+ http=127\.0\.0\.1:(\d+)\n")
ROUNDS = 3
ACKS_MIN = 5  # before a kill
PRODUCERS = 3
TOPIC = "ledger"


def token(data: Path) -> str:
    command = [sys.executable, "-m", "leveret", "jobs", "token", "--data", str(data)]
    words = [*command, "--namespace", "n", "--expires", "1h"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def serving(data: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "leveret", "serve", "--data", str(data)]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    with subprocess.Popen(
        [*command, "--amqp-port", "0", "--http-port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env=clean,
    ) as process:
        try:
            assert process.stdout is not None
            ready = READY.fullmatch(process.stdout.readline())
            assert ready is not None
            yield process, int(ready[1])
        finally:
            process.kill()


class Ledger:
    """The answers that clients got, collected from several threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.enqueued: set[int] = set()  # answered by 200
        self.keyed: dict[str, int] = {}
        self.acking: set[int] = set()  # asked for, answered or not
        self.acked: set[int] = set()  # answered by 200
        self.has_acked = threading.Semaphore(0)  # counts them
        self.faults: list[str] = []


def produce(api: Api, ledger: Ledger, name: str, is_over: threading.Event) -> None:
    """Put jobs in until the node is gone."""
    number = 0
    while not is_over.is_set():
        number += 1
        key = f"{name}-{number}"
        try:
            plain = api.enqueue(TOPIC, b"a", b"b", b"c", priority=number % 5 - 2)
            (keyed,) = api.enqueue(TOPIC, b"k", idempotency_key=key)
        except (OSError, http.client.HTTPException):
            return
        with ledger.lock:
            ledger.enqueued.update(plain, [keyed])
            ledger.keyed[key] = keyed


def work(api: Api, ledger: Ledger, is_over: threading.Event, seed: int) -> None:
    """Take jobs; ack most, fail some, forget some, until the node is gone."""
    chance = random.Random(seed)
    while not is_over.is_set():
        try:
            for job in api.dequeue(TOPIC, 5, lease=2, wait=0.2):
                with ledger.lock:
                    if job["id"] in ledger.acked:
                        ledger.faults.append(f"{job['id']} came back after its ack")
                fate = chance.random()
                if fate < 0.7:
                    with ledger.lock:
                        ledger.acking.add(job["id"])
                    if api.ack(TOPIC, job) == 200:
                        with ledger.lock:
                            ledger.acked.add(job["id"])
                        ledger.has_acked.release()
                elif fate < 0.9:
                    api.nack(TOPIC, job, "chance", delay=0)
        except (OSError, http.client.HTTPException):
            return


def test_no_kill_loses_a_job_or_brings_back_one_that_was_acked(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    key = ""
    ledger = Ledger()
    for number in range(ROUNDS):
        with serving(tmp_path) as (process, port):
            key = key or token(tmp_path)
            api = Api(port, key, "n")
            api.set_topic(TOPIC, retries_max=1000)
            is_over = threading.Event()
            threads = [
                threading.Thread(target=produce, args=(api, ledger, f"{number}.{n}", is_over))
                for n in range(PRODUCERS)
            ]
            threads.append(
                threading.Thread(target=work, args=(api, ledger, is_over, chance.randrange(2**32)))
            )
            for thread in threads:
                thread.start()
            for _ in range(ACKS_MIN):
                assert ledger.has_acked.acquire(timeout=60)
            is_over.wait(chance.uniform(0.0, 0.6))  # the kill comes at any moment
            process.send_signal(signal.SIGKILL)
            is_over.set()
            for thread in threads:
                thread.join(60)
    found = drain(tmp_path, key, ledger)
    assert ledger.faults == []
    assert found & ledger.acked == set(), "acked jobs came back"
    lost = ledger.enqueued - found - ledger.acking
    assert lost == set(), f"{len(lost)} of {len(ledger.enqueued)} jobs are lost"
    assert found, "nothing was left to lose"


def drain(data: Path, key: str, ledger: Ledger) -> set[int]:
    """Return all jobs that are left, and check that known keys still give the same ids."""
    with serving(data) as (process, port):
        api = Api(port, key, "n")
        for name, id in list(ledger.keyed.items())[-50:]:
            assert api.enqueue(TOPIC, b"again", idempotency_key=name) == [id]
        found: list[int] = []
        while jobs := api.dequeue(TOPIC, 1000, lease=60):
            found += [job["id"] for job in jobs]
            api.call("POST", "/ack", [api.handle(TOPIC, job) for job in jobs])
        assert len(found) == len(set(found)), "a job was there twice"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    return set(found)
