"""What a situation is: an id, a title, a script, and the observation each broker must give.

`expected` is what Leveret must do. Where RabbitMQ 3.10 does something else, `rabbitmq` holds its
observation and `difference` names the entry in docs/differences.md that says why; a case has
either both of them or neither.

Most cases do not depend on the speed of the machine: they send in one write what belongs
together, and wait for what must come. A case that cannot do without a premise about time names it
in `premise_s`. That case is played again if a `Probe` has seen the broker held up for a third of
the time, whatever the case observed. A mismatch alone is never a reason to play again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.compat.probe import Probe
from tests.compat.stage import Stage

# How often a case with a premise about time is played before the machine is called too busy.
PLAYS_MAX: Final = 5

Lines = str | Sequence[str]
Script = Callable[[Stage], Lines]


def lines(observation: Lines) -> tuple[str, ...]:
    """An observation as a tuple of lines."""
    return (observation,) if isinstance(observation, str) else tuple(observation)


@dataclass(frozen=True)
class Case:
    """One situation.

    `wait_s` is how long it has to wait by its nature. `premise_s` is the shortest time in which
    something must have happened for the observation to be about the broker.
    """

    id: str
    title: str
    script: Script
    expected: tuple[str, ...]
    rabbitmq: tuple[str, ...] | None = None
    difference: str | None = None
    wait_s: float = 0.0
    premise_s: float | None = None

    def wanted(self, broker: str) -> tuple[str, ...]:
        """The observation that `leveret` or `rabbitmq` must give."""
        if broker == "rabbitmq" and self.rabbitmq is not None:
            return self.rabbitmq
        return self.expected


class Topic:
    """The cases of one file, in order; ids are `topic/name`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cases: list[Case] = []

    def add(
        self,
        name: str,
        title: str,
        script: Script,
        expected: Lines,
        *,
        rabbitmq: Lines | None = None,
        difference: str | None = None,
        wait_s: float = 0.0,
        premise_s: float | None = None,
    ) -> None:
        """Adds one case."""
        if (rabbitmq is None) != (difference is None):
            raise ValueError(f"{name}: rabbitmq and difference go together")
        other = None if rabbitmq is None else lines(rabbitmq)
        self.cases.append(
            Case(
                id=f"{self.name}/{name}",
                title=title,
                script=script,
                expected=lines(expected),
                rabbitmq=other,
                difference=difference,
                wait_s=wait_s,
                premise_s=premise_s,
            )
        )

    def case(
        self,
        name: str,
        title: str,
        expected: Lines,
        *,
        rabbitmq: Lines | None = None,
        difference: str | None = None,
        wait_s: float = 0.0,
        premise_s: float | None = None,
    ) -> Callable[[Script], Script]:
        """Decorates the script of one case."""

        def register(script: Script) -> Script:
            self.add(
                name,
                title,
                script,
                expected,
                rabbitmq=rabbitmq,
                difference=difference,
                wait_s=wait_s,
                premise_s=premise_s,
            )
            return script

        return register


def play(case: Case, host: str, port: int) -> tuple[str, ...]:
    """Plays a case against a broker and returns its observation; a failure is an observation."""
    if case.premise_s is None:
        return _play_once(case, host, port)
    stalls_s: list[float] = []
    for _ in range(PLAYS_MAX):
        with Probe(host, port) as probe:
            observed = _play_once(case, host, port)
        if probe.longest_s() < case.premise_s / 3:
            return observed
        stalls_s.append(probe.longest_s())
    held_up = " ".join(f"{stall_s:.1f}" for stall_s in stalls_s)
    return (f"not observed: in each play the broker was held up, for {held_up} s",)


def _play_once(case: Case, host: str, port: int) -> tuple[str, ...]:
    stage = Stage(host, port)
    try:
        observed = lines(case.script(stage))
    except Exception as error:
        observed = (f"{type(error).__name__}: {error}",)
    finally:
        stage.clear()
    return tuple(stage.mask(line) for line in observed)
