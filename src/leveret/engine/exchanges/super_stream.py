"""Super streams: one name for several streams, its partitions.

The partition of a message is the hash of its routing key modulo the number of partitions.
RabbitMQ's stream clients use the same hash, so that both put a key into the same partition. The
binding keys `0`, `1` and so on number the partitions.

Declaring an exchange with `x-partitions` also declares its streams: `name-0`, `name-1` …
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.exchanges.binding import Binding, Identity
from leveret.engine.exchanges.exchange import Exchange, Headers
from leveret.engine.exchanges.hashing import murmur3
from leveret.engine.target import Target
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import INTEGERS, Table

SUPER_STREAM: Final = "x-super-stream"
PARTITIONS: Final = "x-partitions"
PARTITIONS_MAX: Final = 1000


def partition_names(name: str, arguments: Table) -> list[str]:
    """Return the names of the streams that `x-partitions` asks for; empty without it.

    Raise PreconditionFailedError if the number of partitions is invalid.
    """
    field = arguments.get(PARTITIONS)
    if field is None:
        return []
    count = field.value
    if field.kind not in INTEGERS or not isinstance(count, int):
        raise PreconditionFailedError(
            f"invalid arg '{PARTITIONS}' for exchange '{name}': not a number"
        )
    if not 1 <= count <= PARTITIONS_MAX:
        raise PreconditionFailedError(
            f"invalid arg '{PARTITIONS}' for exchange '{name}': "
            f"{count} is not between 1 and {PARTITIONS_MAX}"
        )
    return [f"{name}-{number}" for number in range(count)]


class SuperStreamExchange(Exchange):
    """An exchange of type x-super-stream."""

    def __init__(self, name: str) -> None:
        super().__init__(name, SUPER_STREAM)
        self.per_key = False
        self._members: dict[Identity, Binding] = {}
        self._targets: list[Target] = []  # the partitions in order; empty = to be computed

    def check_binding(self, routing_key: str, arguments: Table) -> None:
        if not (routing_key.isascii() and routing_key.isdigit() and len(routing_key) <= 9):
            raise PreconditionFailedError(
                f"the binding key of a super stream is the number of a partition, "
                f"not '{routing_key}'"
            )

    def match(self, routing_key: str, headers: Headers, found: list[Target]) -> None:
        if not self._targets:
            members = sorted(self._members.values(), key=_number)
            self._targets = [binding.target for binding in members]
        count: i64 = len(self._targets)
        if count > 0:
            octets = routing_key.encode("utf-8", "surrogateescape")
            found.append(self._targets[murmur3(octets) % count])

    def index(self, binding: Binding) -> None:
        self._members[binding.identity()] = binding
        self._targets = []

    def unindex(self, binding: Binding) -> None:
        del self._members[binding.identity()]
        self._targets = []


def _number(binding: Binding) -> int:
    return int(binding.routing_key)
