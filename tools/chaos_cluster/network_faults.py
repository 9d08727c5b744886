"""Faults of the kernel's network: delays, losses, reordering, a slow line, a loose contact.

Only runs with `--namespaces` have them. Each fault concerns all nodes or one of them, and leaves a
network that loses nothing. `NEEDS_NETEM` are those that need `tc netem`, which some kernels lack.
"""

import time
from collections.abc import Callable
from typing import Final

from tools.chaos_cluster.faults import LONG_S, Round
from tools.chaos_cluster.namespaces import Namespaces

LOOSE_S: Final = (0.05, 0.4)  # between two cuts of a loose contact


class Network:
    """The faults of the network in one round."""

    def __init__(self, spaces: Namespaces, played: Round) -> None:
        self._spaces = spaces
        self._round = played

    def _shape(self, *words: str) -> None:
        """Change the packets of all nodes, of the leader, or of any node, for a time."""
        nodes = self._round.nodes
        concerned = self._round.rng.choice(
            [nodes.nodes, [nodes.leader], [self._round.any_node()]],
        )
        for name in concerned:
            self._spaces.shape(name, list(words))
        self._round.wait(LONG_S)
        self._spaces.calm()

    def delay(self) -> None:
        self._shape("netem", "delay", "150ms", "100ms", "25%")

    def lose(self) -> None:
        self._shape("netem", "loss", "15%", "25%")

    def reorder(self) -> None:
        self._shape("netem", "delay", "30ms", "reorder", "30%", "50%")

    def slow_line(self) -> None:
        """Send 1 Mbit/s: packets wait for up to 200 ms, and more of them are lost."""
        self._shape("tbf", "rate", "1mbit", "burst", "16kb", "latency", "200ms")

    def loose_contact(self) -> None:
        """Cut two nodes off and connect them again, several times a second."""
        one, other = self._round.rng.sample(self._round.nodes.nodes, 2)
        last_s = time.monotonic() + self._round.rng.uniform(*LONG_S)
        while time.monotonic() < last_s:
            self._round.nodes.cut(one, other)
            self._round.wait(LOOSE_S)
            self._round.nodes.heal()
            self._round.wait(LOOSE_S)


NETWORK_FAULTS: Final[dict[str, Callable[[Network], None]]] = {
    "delay": Network.delay,
    "lose": Network.lose,
    "reorder": Network.reorder,
    "slow-line": Network.slow_line,
    "loose-contact": Network.loose_contact,
}
NEEDS_NETEM: Final = ("delay", "lose", "reorder")
NO_NETEM: Final = f"this kernel has no tc netem (sch_netem), and so no {', '.join(NEEDS_NETEM)}"


def available(spaces: Namespaces) -> dict[str, Callable[[Round], None]]:
    """Return the faults that this kernel can make."""

    def bind(fault: Callable[[Network], None]) -> Callable[[Round], None]:
        return lambda played: fault(Network(spaces, played))

    return {
        name: bind(fault)
        for name, fault in NETWORK_FAULTS.items()
        if spaces.has_netem or name not in NEEDS_NETEM
    }
