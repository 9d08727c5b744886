"""Play cases on a cluster whose proxy deals each connection of a case to another node.

A node that is held up for a second may lose the lead, and clients lose their connections with it.
Then a case observes the machine and not the broker. A `Witness` notices it: it keeps an idle
connection through each node. A play in which one of them ended does not count, whatever it has
observed, and the case is played again.
"""

from __future__ import annotations

import contextlib

from tests.compat.case import PLAYS_MAX, Case, play
from tests.compat.client import Channel, NoAnswerError, connect, is_end
from tests.dealt_cluster import HOST, DealtCluster


class Witness:
    """An idle connection through each node of a cluster; a context manager."""

    def __init__(self, dealt: DealtCluster) -> None:
        """Connect. Raises NoAnswerError and OSError."""
        self._channels: list[Channel] = []
        try:
            for name in dealt.nodes.nodes:
                self._channels.append(connect(HOST, dealt.nodes[name].amqp_port).channel())
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self._channels:
            channel.connection.drop()

    def is_whole(self) -> bool:
        """Return True if no connection was lost."""
        try:
            return not any(is_end(each) for channel in self._channels for each in channel.sync())
        except (NoAnswerError, OSError):
            return False


def play_dealt(case: Case, dealt: DealtCluster) -> tuple[str, ...]:
    """Play a case through the proxy of a cluster and return its observation."""
    for _ in range(PLAYS_MAX):
        with contextlib.suppress(NoAnswerError, OSError), Witness(dealt) as witness:
            observed = play(case, *dealt.amqp)
            if witness.is_whole():
                return observed
        dealt.nodes.wait_for_members()
    return ("not observed: in each play the cluster lost connections",)
