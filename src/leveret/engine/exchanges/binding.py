"""A binding: a rule of an exchange that leads to one target.

Two bindings of an exchange are the same if they have the same target, routing key and arguments.
Arguments are compared with their types and without their order. RabbitMQ: 1 and 1.0 are two
bindings, {a, b} and {b, a} are one.

Indexes store bindings in *rows*. A row is a list in which each binding knows its position, so that
a binding is removed in constant time: the last one moves to its place. Without that, deleting
100,000 queues that are bound with one key would look at 100,000 bindings for each. A binding is in
at most one row.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.arguments.packed import pack, unpack
from leveret.engine.target import Target
from leveret.wire.tables import Table, encode_table

# Whether the target is a queue, name of the target, routing key, arguments in canonical bytes.
Identity = tuple[bool, str, str, bytes]


RECORD_BYTES: Final = 100  # of a definition beside its names and arguments


class Binding:
    """One rule of one exchange."""

    def __init__(
        self, source: str, target: Target, is_queue: bool, routing_key: str, arguments: Table
    ) -> None:
        self.source = source  # name of the exchange that owns the binding
        self.target = target
        self.is_queue = is_queue
        self.routing_key = routing_key
        self.packed_arguments: bytes = pack(arguments)
        self.position: i64 = -1  # place in its row; -1 = it is in no row
        # The bindings of one exchange to one target are a linked list in order of creation.
        self.older: Binding | None = None
        self.newer: Binding | None = None

    @property
    def arguments(self) -> Table:
        """The arguments, decoded at each call."""
        return unpack(self.packed_arguments)

    def size(self) -> i64:
        """Return the size of its definition without its index: see `vhosts.definition_sizes`."""
        names = f"{self.source}{self.target.name}{self.routing_key}"
        size: i64 = len(names.encode("utf-8", "surrogateescape"))
        return RECORD_BYTES + size + len(self.packed_arguments)

    def identity(self) -> Identity:
        """Return a key that equal bindings of one exchange share."""
        return identity_of(self.target, self.is_queue, self.routing_key, self.arguments)


def identity_of(target: Target, is_queue: bool, routing_key: str, arguments: Table) -> Identity:
    """Return the identity of a binding with these parts."""
    return (is_queue, target.name, routing_key, _canonical(arguments))


def _canonical(arguments: Table) -> bytes:
    if not arguments:
        return b""
    return encode_table({name: arguments[name] for name in sorted(arguments)})


def append_targets(row: list[Binding], found: list[Target]) -> None:
    """Append the targets of all bindings in a row to `found`."""
    for binding in row:
        found.append(binding.target)  # noqa: PERF401 - a list per message would cost more


def add_to_row(row: list[Binding], binding: Binding) -> None:
    """Add a binding to a row."""
    assert binding.position == -1
    binding.position = len(row)
    row.append(binding)


def remove_from_row(row: list[Binding], binding: Binding) -> None:
    """Remove a binding from its row."""
    assert row[binding.position] is binding
    last = row.pop()
    if last is not binding:
        row[binding.position] = last
        last.position = binding.position
    binding.position = -1
