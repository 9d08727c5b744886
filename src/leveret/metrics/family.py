"""A metric family: name, type, help text, and the group that selects it.

`/metrics/detailed?family=…` selects families by `group`, which is RabbitMQ's name if RabbitMQ has
the family. Families of the node are in every answer except the detailed one.
"""

from dataclasses import dataclass
from typing import Final

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"

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
        """Return the HELP and TYPE lines before the samples."""
        shown = name or self.name
        return f"# HELP {shown} {self.about}\n# TYPE {shown} {self.kind}\n".encode()

    def detailed_name(self) -> str:
        """Return the name in the detailed answer. Only RabbitMQ's families have a prefix there."""
        if self.name.startswith(RABBITMQ):
            return DETAILED + self.name.removeprefix(RABBITMQ)
        return self.name
