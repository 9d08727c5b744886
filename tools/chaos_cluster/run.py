"""One run: a cluster, its clients, rounds of faults, and the accounts at the end.

After each fault all nodes must vote and catch up again, and every publisher must get confirms.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, Protocol
from urllib.parse import urlsplit

from leveret.errors import ConfigError
from leveret.testing import cluster
from tools.chaos.accounts import Account, Sender
from tools.chaos_cluster.actors import AioConsumer, PikaConsumer
from tools.chaos_cluster.faults import FAULTS, Round
from tools.chaos_cluster.jobs import SECRET, Jobs
from tools.chaos_cluster.load import SETTINGS, Load, LoadQueue, Outcome
from tools.chaos_cluster.namespaces import namespaces
from tools.chaos_cluster.network_faults import NO_NETEM, available
from tools.chaos_cluster.stream_audit import StreamAudit

NODES: Final = 3
Faults = dict[str, Callable[[Round], None]]
STREAM: Final = "stream"
CALM_S: Final = (0.5, 2.0)  # between two faults


class Reader(Protocol):
    """Reads the stream during a run."""

    audit: StreamAudit

    def finish(self) -> None:
        """Read everything a last time."""

    def faults(self) -> list[str]:
        """Return all faults so far."""


def make_queues(senders: list[Sender], *, has_stream: bool) -> list[LoadQueue]:
    classic = Account("classic", senders)
    quorum = Account("quorum", senders, keeps_place=False)
    queues = [
        LoadQueue(classic, {"x-queue-type": "classic"}, (PikaConsumer,)),
        LoadQueue(quorum, {"x-queue-type": "quorum"}, (AioConsumer,)),
    ]
    if has_stream:  # Spark reads it
        queues.append(LoadQueue(Account(STREAM, senders), {"x-queue-type": "stream"}))
    return queues


def play_round(load: Load, faults: Faults, only: str | None) -> None:
    """Let one fault happen, and wait until the cluster is whole and clients go on."""
    time.sleep(load.rng.uniform(*CALM_S))
    name = only or load.rng.choice(sorted(faults))
    load.outcome.rounds += 1
    began_s = time.monotonic()
    print(f"round {load.outcome.rounds}: {name}, node {load.nodes.leader} leads", flush=True)
    faults[name](Round(load.nodes, load.fork()))
    fault_s = time.monotonic() - began_s
    confirm_s, whole_s = load.wait_whole()
    print(
        f"    fault {fault_s:.1f} s, confirms after {confirm_s:.1f} s, whole after {whole_s:.1f} s",
        flush=True,
    )


def run(
    folder: Path,
    rounds: int,
    seed: int,
    only: str | None = None,
    *,
    has_namespaces: bool = False,
    make_reader: Callable[[Load], Reader] | None = None,
) -> Outcome:
    """Run rounds of faults under load, then account for everything."""
    with ExitStack() as stack:
        spaces = stack.enter_context(namespaces(NODES)) if has_namespaces else None
        faults = dict(FAULTS) if spaces is None else FAULTS | available(spaces)
        if only is not None and only not in faults:
            raise ConfigError(NO_NETEM)
        if spaces is not None and not spaces.has_netem:
            print(NO_NETEM, flush=True)
        settings = SETTINGS | {"jobs_token_secret": SECRET}
        nodes = stack.enter_context(
            cluster(NODES, folder=folder / "nodes", hosts=spaces, **settings)
        )
        load = Load(nodes, Random(seed), partial(make_queues, has_stream=make_reader is not None))
        load.define()
        jobs = Jobs(folder, [urlsplit(nodes.http_url(name)).netloc for name in nodes.nodes])
        stack.callback(jobs.close)
        load.start()
        reader = None if make_reader is None else make_reader(load)

        def play() -> None:
            for _ in range(rounds):
                play_round(load, faults, only)

        load.attempt(play)
        load.attempt(load.finish)
        if reader is not None:
            load.attempt(reader.finish)
            load.outcome.spark_queries = reader.audit.queries
            load.outcome.spark_rows = reader.audit.rows
            load.outcome.faults += reader.faults()
        account = jobs.finish()
        load.outcome.jobs_confirmed, load.outcome.jobs_done = account.confirmed, account.done
        load.outcome.faults += [f"job {fault}" for fault in account.faults]
        load.add_up()
        return load.outcome
