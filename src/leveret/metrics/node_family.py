"""A family of the node: its declaration, and the function that reads its samples."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from leveret.histogram import Histogram
from leveret.metrics.family import Family
from leveret.metrics.sources import NodeTotals
from leveret.metrics.text import Labels, Number

Samples = Iterable[tuple[Labels, Number]]
Read = Callable[[NodeTotals], Number | Samples | Histogram]

PROTOCOL: Final = {"protocol": "amqp091"}


@dataclass(frozen=True, slots=True)
class NodeFamily:
    """A family of the node, and the function that reads it."""

    family: Family
    read: Read


def node_family(kind: str, name: str, about: str, read: Read, group: str = "") -> NodeFamily:
    return NodeFamily(Family(name=name, kind=kind, about=about, group=group), read)
