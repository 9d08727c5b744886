"""A binding: the rule of an exchange that leads to one target.

Two bindings of an exchange are the same when kind and name of the target, routing key and arguments
are. Arguments are compared with their types but not their order (RabbitMQ: 1 and 1.0 are two
bindings, {a, b} and {b, a} one).

An index of bindings is a *row*, a list in which each binding knows its position. So a binding is
taken out in constant time, by moving the last one into its place: deleting 100,000 queues that are
bound by one key must not look at 100,000 bindings each. A binding is in one row at most.
"""

from mypy_extensions import i64

from leveret.engine.target import Target
from leveret.wire.tables import Table, encode_table

# Target is a queue, name of the target, routing key, arguments in canonical bytes.
Identity = tuple[bool, str, str, bytes]


class Binding:
    """One rule of one exchange."""

    def __init__(
        self, source: str, target: Target, is_queue: bool, routing_key: str, arguments: Table
    ) -> None:
        self.source = source  # name of the exchange that owns it
        self.target = target
        self.is_queue = is_queue
        self.routing_key = routing_key
        self.arguments = arguments
        self.position: i64 = -1  # place in its row, -1 outside
        # The bindings of one exchange to one target are chained in order of creation.
        self.older: Binding | None = None
        self.newer: Binding | None = None

    def identity(self) -> Identity:
        """What makes it the same binding as another of its exchange."""
        return identity_of(self.target, self.is_queue, self.routing_key, self.arguments)


def identity_of(target: Target, is_queue: bool, routing_key: str, arguments: Table) -> Identity:
    """The identity that a binding with these parts has."""
    return (is_queue, target.name, routing_key, _canonical(arguments))


def _canonical(arguments: Table) -> bytes:
    if not arguments:
        return b""
    return encode_table({name: arguments[name] for name in sorted(arguments)})


def append_targets(row: list[Binding], found: list[Target]) -> None:
    """Append the targets of all bindings in a row."""
    for binding in row:
        found.append(binding.target)  # noqa: PERF401 - a list per message would cost more


def add_to_row(row: list[Binding], binding: Binding) -> None:
    """Add a binding to a row."""
    assert binding.position == -1
    binding.position = len(row)
    row.append(binding)


def remove_from_row(row: list[Binding], binding: Binding) -> None:
    """Take a binding out of its row."""
    assert row[binding.position] is binding
    last = row.pop()
    if last is not binding:
        row[binding.position] = last
        last.position = binding.position
    binding.position = -1
