"""What a family of metrics is: a name, a kind, a sentence, and where it can be asked for.

`group` is the word by which `/metrics/detailed?family=…` asks for it: RabbitMQ's where there is
one. Families of the node are in every answer but the detailed one.
"""

from dataclasses import dataclass
from typing import Final

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"
UNTYPED: Final = "untyped"

RABBITMQ: Final = "rabbitmq_"
DETAILED: Final = "rabbitmq_detailed_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family of metrics."""

    name: str
    kind: str
    about: str
    group: str = ""

    def head(self, name: str = "") -> bytes:
        """The lines before its samples."""
        shown = name or self.name
        return f"# HELP {shown} {self.about}\n# TYPE {shown} {self.kind}\n".encode()

    def detailed_name(self) -> str:
        """Its name in the detailed answer. RabbitMQ's have a prefix there, ours do not."""
        if self.name.startswith(RABBITMQ):
            return DETAILED + self.name.removeprefix(RABBITMQ)
        return self.name
