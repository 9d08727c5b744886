"""Consistent-hash exchanges: each message goes to one binding, the same one for the same value.

The value is the routing key, or the header or property that the exchange was declared with. The
binding key is the weight of the binding: its share of the values.

The algorithm is weighted rendezvous hashing. Value and target give each binding a number between 0
and 1, which is raised to the power of 1/weight; the binding with the highest number wins. The
choice depends only on the value and the set of bindings, so it survives restarts. A new binding
takes its share evenly from all others, and a removed binding leaves its share evenly to them. A
route costs a few nanoseconds for each binding. Of two bindings to one target, the heavier counts.
"""

from math import log
from typing import Final

from mypy_extensions import i64

from leveret.engine.arguments.header_values import parse_integer, shown_text, shown_value
from leveret.engine.exchanges.binding import Binding
from leveret.engine.exchanges.exchange import Exchange, Headers
from leveret.engine.exchanges.hashing import fraction, mix, stable_hash
from leveret.engine.target import Target
from leveret.errors import PreconditionFailedError
from leveret.wire.scan import LONGSTR
from leveret.wire.tables import Table, kind_name

WEIGHT_MAX: Final = 10000
HASH_HEADER: Final = "hash-header"
HASH_PROPERTY: Final = "hash-property"
_PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")


class WeightedBinding:
    """A binding with its weight and the hash of its target."""

    def __init__(self, binding: Binding, salt: i64, weight: float) -> None:
        self.binding = binding
        self.salt = salt  # hash of the target's kind and name
        self.weight = weight


class ConsistentHashExchange(Exchange):
    """An exchange of type x-consistent-hash."""

    def __init__(self, name: str, arguments: Table) -> None:
        super().__init__(name, "x-consistent-hash")
        self.header = _text_argument(arguments, HASH_HEADER)  # header whose value is hashed
        self.property = _text_argument(arguments, HASH_PROPERTY)
        if self.header is not None and self.property is not None:
            raise PreconditionFailedError("hash-header and hash-property are mutually exclusive")
        if self.property is not None and self.property not in _PROPERTIES:
            raise PreconditionFailedError(f"Unsupported property: {self.property}")
        self.key_only = self.header is None and self.property is None
        self.per_key = False
        self._row: list[WeightedBinding] = []  # `Binding.position` is the place in it

    def check_binding(self, routing_key: str, arguments: Table) -> None:
        weight = parse_integer(routing_key)
        if weight is None:
            raise PreconditionFailedError(
                f"The binding key must be an integer: {shown_text(routing_key)}"
            )
        if weight < 1:
            raise PreconditionFailedError("The binding key must be greater than 0")
        if weight > WEIGHT_MAX:
            raise PreconditionFailedError(f"The binding key must not exceed {WEIGHT_MAX}")

    def match(self, routing_key: str, headers: Headers, found: list[Target]) -> None:
        value = stable_hash(self._hashed(routing_key, headers))
        winner: WeightedBinding | None = None
        best = 0.0
        for weighted in self._row:
            # log(x^(1/weight)) is below zero, and the highest wins.
            score = log(fraction(mix(value ^ weighted.salt))) / weighted.weight
            if winner is None or score > best or (score == best and _precedes(weighted, winner)):
                winner = weighted
                best = score
        if winner is not None:
            found.append(winner.binding.target)

    def index(self, binding: Binding) -> None:
        kind = "q" if binding.is_queue else "e"
        salt = stable_hash(kind + binding.target.name)
        binding.position = len(self._row)
        self._row.append(WeightedBinding(binding, salt, float(int(binding.routing_key))))

    def unindex(self, binding: Binding) -> None:
        last = self._row.pop()
        if last.binding is not binding:
            self._row[binding.position] = last
            last.binding.position = binding.position
        binding.position = -1

    def _hashed(self, routing_key: str, headers: Headers) -> str:
        """Return the text to hash; empty for a message without the header or property."""
        if self.header is not None:
            return _header_text(headers, self.header)
        if self.property is not None:
            return _property_text(headers, self.property)
        return routing_key


def _precedes(a: WeightedBinding, b: WeightedBinding) -> bool:
    """Break a tie without regard to the order of the bindings."""
    return a.binding.identity() < b.binding.identity()


def _text_argument(arguments: Table, name: str) -> str | None:
    field = arguments.get(name)
    if field is None:
        return None
    value = field.value
    if field.kind != LONGSTR or not isinstance(value, str):
        raise PreconditionFailedError(f"invalid type '{kind_name(field.kind)}' for arg '{name}'")
    return value


def _header_text(headers: Headers, name: str) -> str:
    field = headers.field(name)
    if field is None:
        return ""
    value = field.value
    return value if isinstance(value, str) else shown_value(field)


def _property_text(headers: Headers, name: str) -> str:
    properties = headers.properties()
    if name == "timestamp":
        return "" if properties.timestamp is None else str(properties.timestamp)
    text = properties.message_id if name == "message_id" else properties.correlation_id
    return "" if text is None else text
