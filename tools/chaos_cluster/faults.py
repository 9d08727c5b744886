"""The faults of a round: what happens to nodes and to the cables between them.

Each fault leaves all nodes running, all cables whole, and no node frozen. `FAULTS` has them by
name. Nodes and times are drawn from the seed of the run.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Final

from leveret.testing import RunningCluster

SHORT_S: Final = (0.0, 1.0)
LONG_S: Final = (1.0, 6.0)  # an election takes one to two seconds
COMMAND_S: Final = 60.0


class Round:
    """One fault of a cluster, with its chances."""

    def __init__(self, nodes: RunningCluster, rng: Random) -> None:
        self.nodes = nodes
        self.rng = rng

    def wait(self, bounds_s: tuple[float, float]) -> None:
        time.sleep(self.rng.uniform(*bounds_s))

    def any_node(self) -> str:
        return self.rng.choice(self.nodes.nodes)

    def follower(self) -> str:
        return self.rng.choice(self.nodes.followers)

    def kill(self, *names: str) -> None:
        """Kill nodes at the same time, and start them again one after the other."""
        self.nodes.kill(*names)
        self.wait(LONG_S)
        for name in self.rng.sample(names, len(names)):
            self.nodes.start(name, wait=False)
            self.wait(SHORT_S)

    def kill_leader(self) -> None:
        self.kill(self.nodes.leader)

    def kill_follower(self) -> None:
        self.kill(self.follower())

    def kill_majority(self) -> None:
        self.kill(*self.rng.sample(self.nodes.nodes, 2))

    def kill_all(self) -> None:
        self.kill(*self.nodes.nodes)

    def kill_while_it_starts(self) -> None:
        """Kill a node again and again before it has caught up."""
        name = self.any_node()
        for _ in range(3):
            self.nodes.kill(name)
            self.nodes.start(name, wait=False)
            self.wait(SHORT_S)

    def freeze(self, name: str) -> None:
        self.nodes.pause(name)
        self.wait(LONG_S)
        self.nodes.resume(name)

    def freeze_leader(self) -> None:
        self.freeze(self.nodes.leader)

    def freeze_follower(self) -> None:
        self.freeze(self.follower())

    def isolate(self, name: str) -> None:
        self.nodes.isolate(name)
        self.wait(LONG_S)
        self.nodes.heal()

    def isolate_leader(self) -> None:
        self.isolate(self.nodes.leader)

    def isolate_follower(self) -> None:
        self.isolate(self.follower())

    def cut_two(self) -> None:
        """Cut two nodes off from each other; both still reach the third one."""
        self.nodes.cut(*self.rng.sample(self.nodes.nodes, 2))
        self.wait(LONG_S)
        self.nodes.heal()

    def cut_one_way(self) -> None:
        """Let nothing pass from one node to another; the way back is whole."""
        one, other = self.rng.sample(self.nodes.nodes, 2)
        self.nodes.cut(one, other, one_way=True)
        self.wait(LONG_S)
        self.nodes.heal()

    def cut_leader_one_way(self) -> None:
        """Let the leader hear nobody, or let nobody hear it."""
        leader = self.nodes.leader
        is_deaf = self.rng.random() < 0.5
        for other in self.nodes.nodes:
            if other != leader:
                ends = (other, leader) if is_deaf else (leader, other)
                self.nodes.cut(*ends, one_way=True)
        self.wait(LONG_S)
        self.nodes.heal()

    def cut_all(self) -> None:
        """Cut every node off from every other one."""
        for name in self.nodes.nodes:
            self.nodes.isolate(name)
        self.wait(LONG_S)
        self.nodes.heal()

    def stop_leader(self) -> None:
        name = self.nodes.leader
        self.nodes.stop(name)
        self.wait(SHORT_S)
        self.nodes.start(name, wait=False)

    def hand_over(self) -> None:
        """Let another node lead by a command."""
        target = self.follower()
        self.command("lead", target)

    def restart_all(self) -> None:
        """Restart one node after the other, as for an upgrade."""
        for name in self.nodes.nodes:
            self.nodes.stop(name)
            self.nodes.start(name)
            self.nodes.wait_for_members()

    def replace_wiped(self) -> None:
        """Lose the disk of a node, remove it, and let it join again."""
        name = self.any_node()
        self.nodes.kill(name)
        self.nodes.wipe(name)
        self.command("remove", name)
        self.nodes.start(name, wait=False)

    def command(self, verb: str, name: str) -> None:
        """Give a command at a running node. One that is refused was in the way of an election."""
        last_s = time.monotonic() + COMMAND_S
        while True:
            asked = self.rng.choice([node for node in self.nodes.running if node != name])
            words = ["cluster", verb, name, "--url", self.nodes[asked].http_login_url]
            done = subprocess.run(
                [sys.executable, "-m", "leveret", "ctl", *words],
                capture_output=True,
                text=True,
                timeout=COMMAND_S,
                check=False,
            )
            if done.returncode == 0 or f"node {name} is no member" in done.stderr:
                return
            if time.monotonic() > last_s:
                raise RuntimeError(f"ctl cluster {verb} {name}: {done.stderr}")


FAULTS: Final[dict[str, Callable[[Round], None]]] = {
    "kill-leader": Round.kill_leader,
    "kill-follower": Round.kill_follower,
    "kill-majority": Round.kill_majority,
    "kill-all": Round.kill_all,
    "kill-while-it-starts": Round.kill_while_it_starts,
    "freeze-leader": Round.freeze_leader,
    "freeze-follower": Round.freeze_follower,
    "isolate-leader": Round.isolate_leader,
    "isolate-follower": Round.isolate_follower,
    "cut-two": Round.cut_two,
    "cut-one-way": Round.cut_one_way,
    "cut-leader-one-way": Round.cut_leader_one_way,
    "cut-all": Round.cut_all,
    "stop-leader": Round.stop_leader,
    "hand-over": Round.hand_over,
    "restart-all": Round.restart_all,
    "replace-wiped": Round.replace_wiped,
}
