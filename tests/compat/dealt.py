"""Play cases on a cluster whose proxy deals each connection of a case to another node.

A node that is held up for a second may lose the lead, and clients lose their connections with it.
Then a case observes the machine and not the broker. A `Witness` notices it: it keeps an idle
connection through each node. A play in which one of them ended does not count, whatever it has
observed, and the case is played again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from tests.compat.case import PLAYS_MAX, Case, play
from tests.compat.client import Channel, NoAnswerError, connect, is_end
from tests.dealt_cluster import HOST, DealtCluster

Result = TypeVar("Result")


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


class UnsteadyError(Exception):
    """The cluster lost connections in each play."""


def play_steadily(dealt: DealtCluster, act: Callable[[], Result]) -> Result:
    """Return the result of a play in which no node lost the lead, or raise its error."""
    for _ in range(PLAYS_MAX):
        with contextlib.suppress(_LostError), _witnessed(dealt):
            return act()
        dealt.nodes.wait_for_members()
    raise UnsteadyError(f"the cluster lost connections in each of {PLAYS_MAX} plays")


@contextlib.contextmanager
def _witnessed(dealt: DealtCluster) -> Iterator[None]:
    """Raise `_LostError` instead of any other error or result if connections were lost."""
    try:
        witness = Witness(dealt)
    except (NoAnswerError, OSError) as fault:
        raise _LostError from fault
    with witness:
        try:
            yield
        finally:
            if not witness.is_whole():
                raise _LostError


class _LostError(Exception):
    """A connection of the witness was lost."""


def play_dealt(case: Case, dealt: DealtCluster) -> tuple[str, ...]:
    """Play a case through the proxy of a cluster and return its observation."""
    try:
        return play_steadily(dealt, lambda: play(case, *dealt.amqp))
    except UnsteadyError as error:
        return (f"not observed: {error}",)
