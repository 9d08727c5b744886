"""What a situation is: an id, a title, a script, and the observation each broker must give.

`expected` is what Leveret must do. Where RabbitMQ 3.10 does something else, `rabbitmq` holds its
observation and `difference` names the entry in docs/differences.md that says why; a case has
either both of them or neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.compat.stage import Stage

Lines = str | Sequence[str]
Script = Callable[[Stage], Lines]


def lines(observation: Lines) -> tuple[str, ...]:
    """An observation as a tuple of lines."""
    return (observation,) if isinstance(observation, str) else tuple(observation)


@dataclass(frozen=True)
class Case:
    """One situation; `wait_s` is how long it has to wait by its nature."""

    id: str
    title: str
    script: Script
    expected: tuple[str, ...]
    rabbitmq: tuple[str, ...] | None = None
    difference: str | None = None
    wait_s: float = 0.0

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
    ) -> None:
        """Adds one case."""
        if (rabbitmq is None) != (difference is None):
            raise ValueError(f"{name}: rabbitmq and difference go together")
        other = None if rabbitmq is None else lines(rabbitmq)
        self.cases.append(
            Case(f"{self.name}/{name}", title, script, lines(expected), other, difference, wait_s)
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
            )
            return script

        return register


def play(case: Case, host: str, port: int) -> tuple[str, ...]:
    """Plays a case against a broker and returns its observation; a failure is an observation."""
    stage = Stage(host, port)
    try:
        observed = lines(case.script(stage))
    except Exception as error:
        observed = (f"{type(error).__name__}: {error}",)
    finally:
        stage.clear()
    return tuple(stage.mask(line) for line in observed)
