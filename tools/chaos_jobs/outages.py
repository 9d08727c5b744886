"""The plan of the outages of a run: which server or node is frozen, killed or wiped, and when.

A plan is drawn from a seed and from nothing else, so that a seed repeats it. Outages come one after
the other. Before and after each, for `CALM_S`, all servers and nodes work, and no node is killed.

By `docs/jobs-shards.md` an acked job comes back only if a node that has not written its acks dies
*and* Redis loses its memory. To other nodes, a node that is frozen for long is dead. So an outage
that harms Redis kills no node, and freezes one for less than `PAUSE_S` at most.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

CALM_S: Final = 3.0  # time enough to write the acks that only Redis or one node has
GAP_S: Final = (2.0, 5.0)  # between two times of calm; nodes may be killed
PREFETCHED_S: Final = 7.5  # the row of a prefetched job is leased so much longer than the job
REDIS_S: Final = (0.3, 8.0)  # Redis alone is frozen
NODE_S: Final = (0.3, 12.0)  # a node alone is frozen

PAUSE_S: Final = (0.5, 7.0)  # a node is frozen while Redis loses its memory

ALL: Final = -1  # as a target: each shard


@dataclass(frozen=True)
class Step:
    """One fault, or the end of one."""

    at_s: float  # since the run began
    what: str
    target: int = 0  # the number of the shard or node

    def __str__(self) -> str:
        if "redis" in self.what:
            return self.what
        return f"{self.what} {'each' if self.target == ALL else self.target}"


@dataclass(frozen=True)
class Outage:
    kind: str
    steps: tuple[Step, ...]

    @property
    def begin_s(self) -> float:
        return self.steps[0].at_s

    @property
    def end_s(self) -> float:
        return self.steps[-1].at_s


class Draw:
    """Draws one outage."""

    def __init__(self, chance: Random, shards: int, nodes: int, lease_s: float) -> None:
        self._chance = chance
        self._shards = shards
        self._nodes = nodes
        self._over_s = lease_s + PREFETCHED_S  # all leases of rows have ended
        self._steps: list[Step] = []

    def _add(self, at_s: float, what: str, target: int = 0) -> None:
        self._steps.append(Step(round(max(at_s, 0.0), 2), what, target))

    def _length_s(self) -> float:
        """Return how long a shard is frozen: in half of the cases beyond all leases."""
        over_s = self._over_s
        beyond_s = over_s, over_s + 5.0
        return self._chance.uniform(
            *self._chance.choice([(0.3, 3.0), (3.0, over_s), beyond_s, beyond_s])
        )

    def _freeze_shard(self) -> float:
        """Freeze a shard, or each of them; return for how long."""
        target = self._chance.choice([ALL, self._chance.randrange(self._shards)])
        length_s = self._length_s()
        self._add(0.0, "freeze shard", target)
        self._add(length_s, "resume shard", target)
        return length_s

    def _near_end_s(self, length_s: float) -> float:
        """Return a time within a freeze, in most cases shortly before its end.

        A node notices after up to 5 s that a server is frozen. It notes its acks again within half
        a second after Redis has lost its memory.
        """
        from_s = self._chance.choice([0.0, length_s - 8.0, length_s - 0.5])
        return self._chance.uniform(max(from_s, 0.0), length_s)

    def _lose_memory(self, at_s: float) -> None:
        self._add(at_s, self._chance.choice(["wipe redis", "restart redis"]))

    def shard(self) -> None:
        self._freeze_shard()

    def shard_memory(self) -> None:
        self._lose_memory(self._near_end_s(self._freeze_shard()))

    def shard_redis(self) -> None:
        """Redis is frozen before a shard goes on, and goes on before or after it."""
        length_s = self._freeze_shard()
        begin_s = self._near_end_s(length_s)
        self._add(begin_s, "freeze redis")
        self._add(self._chance.uniform(begin_s, length_s + 5.0), "resume redis")

    def shard_connections(self) -> None:
        length_s = self._freeze_shard()
        for _ in range(self._chance.randint(1, 3)):
            self._add(self._near_end_s(length_s) + self._chance.uniform(0, 0.5), "cut off redis")

    def shard_kill(self) -> None:
        length_s = self._freeze_shard()
        node = self._chance.randrange(self._nodes)
        killed_s = self._near_end_s(length_s)
        self._add(killed_s, "kill node", node)
        self._add(self._chance.uniform(killed_s, length_s + 5.0), "start node", node)

    def shard_node(self) -> None:
        length_s = self._freeze_shard()
        node = self._chance.randrange(self._nodes)
        frozen_s = self._near_end_s(length_s)
        self._add(frozen_s, "freeze node", node)
        self._add(self._chance.uniform(frozen_s, length_s + 5.0), "resume node", node)

    def shard_memory_pause(self) -> None:
        """A node pauses when a shard goes on: others are the first to reach it."""
        length_s = self._freeze_shard()
        node = self._chance.randrange(self._nodes)
        pause_s = self._chance.uniform(*PAUSE_S)
        paused_s = max(length_s - self._chance.uniform(0.1, pause_s), 0.0)
        self._add(paused_s, "freeze node", node)
        self._lose_memory(self._chance.uniform(paused_s, length_s))
        self._add(paused_s + pause_s, "resume node", node)

    def memory(self) -> None:
        self._lose_memory(0.0)

    def redis(self) -> None:
        self._add(0.0, "freeze redis")
        self._add(self._chance.uniform(*REDIS_S), "resume redis")

    def connections(self) -> None:
        for _ in range(self._chance.randint(1, 3)):
            self._add(self._chance.uniform(0, 2.0), "cut off redis")

    def node(self) -> None:
        node = self._chance.randrange(self._nodes)
        self._add(0.0, "freeze node", node)
        self._add(self._chance.uniform(*NODE_S), "resume node", node)

    def drawn(self, kind: str, begin_s: float) -> Outage:
        """Return an outage of a kind that begins at a time of the run."""
        self._steps = []
        KINDS[kind](self)
        steps = sorted(self._steps, key=lambda step: step.at_s)
        late_s = begin_s - steps[0].at_s
        return Outage(kind, tuple(Step(s.at_s + late_s, s.what, s.target) for s in steps))


KINDS: Final[dict[str, Callable[[Draw], None]]] = {
    "shard": Draw.shard,
    "shard+memory": Draw.shard_memory,
    "shard+redis": Draw.shard_redis,
    "shard+connections": Draw.shard_connections,
    "shard+kill": Draw.shard_kill,
    "shard+node": Draw.shard_node,
    "shard+memory+pause": Draw.shard_memory_pause,
    "memory": Draw.memory,
    "redis": Draw.redis,
    "connections": Draw.connections,
    "node": Draw.node,
}


def planned(
    seed: int, seconds: float, kinds: list[str], *, shards: int, nodes: int, lease_s: float
) -> list[Outage]:
    """Return the outages of a run, each in the time of the run."""
    chance = Random(f"{seed} outages")
    draw = Draw(chance, shards, nodes, lease_s)
    often = [kind for kind in kinds for _ in range(2 if "+" in kind else 1)]
    outages: list[Outage] = []
    at_s = CALM_S + GAP_S[1]
    while often:
        outage = draw.drawn(chance.choice(often), at_s)
        if outage.end_s + CALM_S > seconds:
            break
        outages.append(outage)
        at_s = outage.end_s + 2 * CALM_S + chance.uniform(*GAP_S)
    return outages
