"""Changes the number of shards under load, and kills the process that does it at every step.

`make chaos-reshard`. Two nodes, Redis, three databases. Producers and workers run all the time, in
existing and in new topics. Nodes are given the third database one after the other. Then the number
of shards changes to three and back to two, ROUNDS times. At each step of each change the process
that makes it is killed (-9) and started again. In the end each job is done once, no job is lost or
stuck, and the tables are empty.

`python -m tools.chaos_reshard driver TO STEPS DSN …` starts the processes that are killed, one at
each step.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tools.chaos_jobs import ledger
from tools.chaos_jobs.run import Plan, Run

TOPIC_STEPS: Final = ("frozen", "carried", "verified", "switched", "thawed", "cleaned")
WHOLE_STEPS: Final = ("begun", "copied", "narrowed", "marked", "counted", "opened", "tidied")
STEPS: Final = ("begun", "copied", *TOPIC_STEPS, *WHOLE_STEPS[2:])
CHANGE_WITHIN_S: Final = 900.0


@dataclass
class Found:
    """The result of a run."""

    account: ledger.Account
    kills: list[str]  # steps at which a driver was killed
    changes: list[dict[str, Any]]  # what each change said in the end


class ReshardRun(Run):
    """A run in which shards come and go, not nodes."""

    steps: tuple[tuple[str, ...], ...] = (STEPS, STEPS)  # of each change, in turns
    rounds: int = 1

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.kills: list[str] = []
        self.changes: list[dict[str, Any]] = []

    def _kill_for(self, token: str) -> float:
        for node in self.nodes:
            node.end(signal.SIGTERM)
            node.give(self._dsns)
            node.start()
        for round_ in range(self.rounds):
            for to, steps in ((3, self.steps[0]), (2, self.steps[1])):
                self._change(to, steps)
                self._say(f"round {round_ + 1}: {to} shards")
        return 0.0

    def _change(self, to: int, steps: tuple[str, ...]) -> None:
        module = "tools.chaos_reshard"
        command = [sys.executable, "-m", module, "driver", str(to), ",".join(steps), *self._dsns]
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=CHANGE_WITHIN_S, check=True)
        told = json.loads(done.stdout)
        self.kills += told["kills"]
        self.changes.append(told["change"])


def run(plan: Plan, steps: tuple[tuple[str, ...], ...], rounds: int, say: Any) -> Found:
    """Run a plan; what the books say, and which kills there were."""
    with tempfile.TemporaryDirectory(prefix="leveret-chaos-") as name, ExitStack() as stack:
        own = ReshardRun(plan, Path(name), stack, say)
        own.steps, own.rounds = steps, rounds
        account = own.go()
        return Found(account, own.kills, own.changes)


def drive(to: int, steps: list[str], dsns: list[str]) -> None:
    """Begin once for each step, killed there; then once to the end, which is told."""
    kills = [step for step in steps if _child(to, dsns, step) == -signal.SIGKILL]
    read, write = os.pipe()
    code = _child(to, dsns, None, write)
    os.close(write)
    with os.fdopen(read) as told:
        change = told.read()
    if code:
        raise SystemExit(code)
    sys.stdout.write(json.dumps({"kills": kills, "change": json.loads(change)}))


def _child(to: int, dsns: list[str], step: str | None, write: int | None = None) -> int:
    """How a child ended: a code, or a signal below 0."""
    pid = os.fork()
    if pid == 0:
        try:
            _change(to, dsns, step, write)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _change(to: int, dsns: list[str], step: str | None, write: int | None) -> None:
    from leveret.job_service.shards.resharding.copying_ahead import copy_ranges
    from leveret.pipeline.flows.reshard import ReshardRequest, reshard

    def on_step(name: str, topic: tuple[str, str] | None) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    asked = ReshardRequest(
        tuple(dsns), to, ahead_from=1
    )  # so that there is always something to copy
    done = reshard(lambda: copy_ranges, asked, lambda progress: None, on_step)
    if write is not None:
        os.write(write, json.dumps(asdict(done)).encode())


def main() -> int:
    if sys.argv[1:2] == ["driver"]:
        import leveret.pipeline.flows.reshard  # noqa: F401  once, for all children

        drive(int(sys.argv[2]), [s for s in sys.argv[3].split(",") if s], sys.argv[4:])
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--producers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    plan = plan_of(given.workers, given.producers, given.seed)
    found = run(plan, (STEPS, STEPS), given.rounds, print)
    longest = max(change["frozen_ms_max"] for change in found.changes)
    moved = sum(len(change["topics"]) for change in found.changes)
    print(f"{len(found.kills)} kills; {moved} topics moved at the last tries, frozen for at most")
    print(f"{longest:.0f} ms; {found.account}")
    return 1 if found.account.faults else 0


def plan_of(
    workers: int, producers: int, seed: int, pause_s: float = 0.05, slack_s: float = 5.0
) -> Plan:
    return Plan(
        workers=workers,
        producers=producers,
        pause_s=pause_s,
        slack_s=slack_s,
        seed=seed,
        databases=3,
        shards=2,
        has_fresh_topics=True,
        rushers=0,
        outages="",
    )


if __name__ == "__main__":
    raise SystemExit(main())
