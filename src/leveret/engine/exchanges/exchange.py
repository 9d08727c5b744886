"""The base class of exchanges, and the headers of a message as exchanges match them.

`Exchange` stores the bindings in order of creation, and in a linked list for each target. Each
subclass has its own index, which `index` and `unindex` maintain and `match` searches.
`check_binding` is called before a binding is made and may raise; after it, `add` cannot fail.

Invariant: `bindings`, the linked lists by target and the index of the subclass hold the same
bindings. A removed binding leaves nothing behind in any of them.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.arguments.packed import ARGUMENT_VALUES_MAX, unpack
from leveret.engine.exchanges.binding import Binding, Identity, identity_of
from leveret.engine.history.life_events import Chronicle
from leveret.engine.target import Target
from leveret.errors import PreconditionFailedError
from leveret.wire.properties import Properties, decode_properties
from leveret.wire.scan import find_entry
from leveret.wire.tables import Field, Table, decode_field, decode_table

# Steps of the routing of one message. A step is about 50 ns of work, so the limit is 50 ms. One
# message with thousands of keys could take minutes otherwise.
ROUTING_STEPS_MAX: Final = 1_000_000
VISIT_STEPS: Final = 4  # of an exchange, or of a key in a topic exchange
COPY_STEPS: Final = 8  # of a queue that gets a copy: a fifth of the work that the copy will cause
NODE_STEPS: Final = 16  # of a node of a topic trie: most nodes are not in the cache of the CPU
WORDS_PER_STEP: Final = 2  # words of a routing key that is split
PATTERN_STEPS: Final = 6  # of a pattern of a headers exchange, without its headers


def require_steps(steps: i64) -> None:
    """Raise PreconditionFailedError if the routing of a message takes too many steps."""
    if steps > ROUTING_STEPS_MAX:
        raise PreconditionFailedError(
            f"the routing of the message takes over {ROUTING_STEPS_MAX} steps: it has too many "
            "routing keys or headers for the bindings of its exchanges"
        )


class Headers:
    """Headers and properties of the message being routed, and the words of its routing key.

    All are decoded on demand.
    """

    def __init__(self, payload: bytes, start: i64, end: i64) -> None:
        self._payload = payload  # of the content header frame
        self._start = start  # span of the entries of the headers table; 0 and 0 without a table
        self._end = end
        self._table: Table | None = None
        self._properties: Properties | None = None
        self._key: str | None = None  # the routing key that was split last
        self._words: list[str] = []

    def table(self) -> Table:
        """Return all headers; they are decoded once."""
        table = self._table
        if table is None:
            table = decode_table(self._payload, self._start, self._end)
            self._table = table
        return table

    def field(self, name: str) -> Field | None:
        """Return one header without decoding the others."""
        if self._table is not None:
            return self._table.get(name)
        at = find_entry(
            self._payload, self._start, self._end, name.encode("utf-8", "surrogateescape")
        )
        return decode_field(self._payload, at, self._end) if at >= 0 else None

    def properties(self) -> Properties:
        """Return all properties; they are decoded once."""
        properties = self._properties
        if properties is None:
            properties = decode_properties(self._payload)
            self._properties = properties
        return properties

    def words(self, routing_key: str) -> list[str]:
        """Return the words of a key. It is split once for all topic exchanges; "" has no word."""
        if self._key is None or self._key != routing_key:
            self._key = routing_key
            self._words = routing_key.split(".") if routing_key else []
        return self._words


class Exchange(Target):
    """Base class of the exchange types; `registry.make_exchange` makes them."""

    def __init__(self, name: str, kind: str) -> None:
        super().__init__(name)
        self.kind = kind  # type as declared
        self.durable: bool = False
        self.auto_delete: bool = False  # deleted with its last binding
        self.internal: bool = False  # takes messages from other exchanges only
        self.packed_arguments: bytes = b""
        self.alternate: str | None = None  # exchange for messages that match no binding
        self.deduplication_id: i64 = 0  # number of its keys in the log; 0 = it never had any
        self.chronicle: Chronicle | None = None  # records life events, with x-remember
        self.bindings: dict[Identity, Binding] = {}  # in order of creation
        self.binding_bytes: i64 = 0  # of their definitions, and of the index
        self.published_in: i64 = 0  # messages that were published to it
        self.published_out: i64 = 0  # copies that it routed to queues
        self.looked_at: i64 = 0  # steps of the last match, without the bindings that it found
        # Properties of the type. Subclasses set these once.
        self.key_only: bool = True  # a match depends on the routing key alone, and may be cached
        self.per_key: bool = True  # the keys of CC and BCC are matched too, not only the first key
        self.is_delayed: bool = False  # holds messages with an `x-delay` before it routes them
        self.classic_only: bool = False  # may be bound to classic queues only
        self.binding_values_max: i64 = ARGUMENT_VALUES_MAX  # values in the arguments of a binding
        self._newest: dict[Target, Binding] = {}  # end of the linked list of each target

    @property
    def arguments(self) -> Table:
        """The arguments, decoded at each call."""
        return unpack(self.packed_arguments)

    def check_binding(self, routing_key: str, arguments: Table) -> None:
        """Raise PreconditionFailedError if this type cannot have a binding like this."""

    def match(self, routing_key: str, headers: Headers, found: list[Target]) -> None:
        """Append the targets of matching bindings; a target can appear more than once."""
        raise NotImplementedError

    def index(self, binding: Binding) -> None:
        """Add a binding to the index of the subclass."""
        raise NotImplementedError

    def unindex(self, binding: Binding) -> None:
        """Remove a binding from the index of the subclass."""
        raise NotImplementedError

    def add(self, binding: Binding) -> bool:
        """Add a binding that passed `check_binding`; return False if the same one exists."""
        assert binding.source == self.name
        identity = binding.identity()
        if identity in self.bindings:
            return False
        self.bindings[identity] = binding
        self.binding_bytes += binding.size()
        self._link(binding)
        self.index(binding)
        return True

    def remove(self, target: Target, routing_key: str, arguments: Table) -> bool:
        """Remove one binding; return False if there is none."""
        is_queue = not isinstance(target, Exchange)
        binding = self.bindings.get(identity_of(target, is_queue, routing_key, arguments))
        if binding is None:
            return False
        self._remove(binding)
        return True

    def remove_target(self, target: Target) -> int:
        """Remove all bindings to a target, and return how many there were."""
        count = 0
        binding = self._newest.get(target)
        while binding is not None:
            older = binding.older
            self._remove(binding)
            binding = older
            count += 1
        return count

    def has_bindings_to(self, target: Target) -> bool:
        """Return True if a binding leads to a target."""
        return target in self._newest

    def bindings_to(self, target: Target) -> list[Binding]:
        """Return all bindings to a target, in order of creation."""
        found: list[Binding] = []
        binding = self._newest.get(target)
        while binding is not None:
            found.append(binding)
            binding = binding.older
        found.reverse()
        return found

    def _remove(self, binding: Binding) -> None:
        del self.bindings[binding.identity()]
        self.binding_bytes -= binding.size()
        self._unlink(binding)
        self.unindex(binding)

    def _link(self, binding: Binding) -> None:
        newest = self._newest.get(binding.target)
        if newest is not None:
            newest.newer = binding
            binding.older = newest
        self._newest[binding.target] = binding

    def _unlink(self, binding: Binding) -> None:
        older = binding.older
        newer = binding.newer
        if older is not None:
            older.newer = newer
        if newer is not None:
            newer.older = older
        elif older is not None:
            self._newest[binding.target] = older
        else:
            del self._newest[binding.target]
        binding.older = None
        binding.newer = None
