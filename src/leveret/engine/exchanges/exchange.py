"""What all exchange types share: their bindings, and the view of a message that they match.

`Exchange` keeps the bindings in order of creation and, chained, by target; a subclass keeps an
index of its own through `index` and `unindex` and answers `match` from it. `check_binding` is asked
before a binding is made and raises; after it `add` cannot fail.

Invariant: `bindings`, the chains by target and the index of the subclass hold the same bindings.
What is removed leaves nothing behind in any of them.
"""

from mypy_extensions import i64

from leveret.engine.exchanges.binding import Binding, Identity, identity_of
from leveret.engine.history.life_events import Chronicle
from leveret.engine.target import Target
from leveret.wire.properties import Properties, decode_properties
from leveret.wire.scan import find_entry
from leveret.wire.tables import Field, Table, decode_field, decode_table


class Headers:
    """The message being routed, decoded only as far as the exchanges on its way ask."""

    def __init__(self, payload: bytes, start: i64, end: i64) -> None:
        self._payload = payload  # of the content header frame
        self._start = start  # span of the entries of the headers table; 0 and 0 without one
        self._end = end
        self._table: Table | None = None
        self._properties: Properties | None = None
        self._key: str | None = None  # the routing key that was split last
        self._words: list[str] = []

    def table(self) -> Table:
        """All headers; they are decoded once."""
        table = self._table
        if table is None:
            table = decode_table(self._payload, self._start, self._end)
            self._table = table
        return table

    def field(self, name: str) -> Field | None:
        """One header. The others are not decoded for it."""
        if self._table is not None:
            return self._table.get(name)
        at = find_entry(
            self._payload, self._start, self._end, name.encode("utf-8", "surrogateescape")
        )
        return decode_field(self._payload, at, self._end) if at >= 0 else None

    def properties(self) -> Properties:
        """All properties; they are decoded once."""
        properties = self._properties
        if properties is None:
            properties = decode_properties(self._payload)
            self._properties = properties
        return properties

    def words(self, routing_key: str) -> list[str]:
        """The words of a key, split once however many topic exchanges ask. "" has no word."""
        if self._key is None or self._key != routing_key:
            self._key = routing_key
            self._words = routing_key.split(".") if routing_key else []
        return self._words


class Exchange(Target):
    """Base of the exchange types; `registry.make_exchange` makes them."""

    def __init__(self, name: str, kind: str) -> None:
        super().__init__(name)
        self.kind = kind  # type as declared
        self.durable: bool = False
        self.auto_delete: bool = False  # goes with its last binding
        self.internal: bool = False  # takes messages from other exchanges only
        self.arguments: Table = {}
        self.alternate: str | None = None  # where messages go that match no binding
        self.deduplication_id: i64 = 0  # names what it remembers in the log; 0: it never did
        self.chronicle: Chronicle | None = None  # is told what passes, if the exchange remembers
        self.bindings: dict[Identity, Binding] = {}  # in order of creation
        self.published_in: i64 = 0  # messages that were published to it
        self.published_out: i64 = 0  # copies that it led to queues
        # What a match depends on. Subclasses set these once.
        self.key_only: bool = True  # the routing key alone: the route may be kept
        self.per_key: bool = True  # every key of CC and BCC is matched too, not the first alone
        self.is_delayed: bool = False  # holds messages with an `x-delay` before it routes them
        self.classic_only: bool = False  # may be bound to classic queues only
        self._newest: dict[Target, Binding] = {}  # end of the chain of each target

    def check_binding(self, routing_key: str, arguments: Table) -> None:
        """Raise PreconditionFailed where this type cannot have such a binding."""

    def match(self, routing_key: str, headers: Headers, found: list[Target]) -> None:
        """Append the targets of matching bindings; one may appear more than once."""
        raise NotImplementedError

    def index(self, binding: Binding) -> None:
        """Take a new binding into the subclass's index."""
        raise NotImplementedError

    def unindex(self, binding: Binding) -> None:
        """Take a binding out of the subclass's index."""
        raise NotImplementedError

    def add(self, binding: Binding) -> bool:
        """Add a binding that `check_binding` let pass; False when the same one exists."""
        assert binding.source == self.name
        identity = binding.identity()
        if identity in self.bindings:
            return False
        self.bindings[identity] = binding
        self._link(binding)
        self.index(binding)
        return True

    def remove(self, target: Target, routing_key: str, arguments: Table) -> bool:
        """Remove one binding; False when there is none."""
        is_queue = not isinstance(target, Exchange)
        binding = self.bindings.get(identity_of(target, is_queue, routing_key, arguments))
        if binding is None:
            return False
        self._remove(binding)
        return True

    def remove_target(self, target: Target) -> int:
        """Remove all bindings to a target; answers how many there were."""
        count = 0
        binding = self._newest.get(target)
        while binding is not None:
            older = binding.older
            self._remove(binding)
            binding = older
            count += 1
        return count

    def bindings_to(self, target: Target) -> list[Binding]:
        """All bindings to a target, in order of creation."""
        chain: list[Binding] = []
        binding = self._newest.get(target)
        while binding is not None:
            chain.append(binding)
            binding = binding.older
        chain.reverse()
        return chain

    def _remove(self, binding: Binding) -> None:
        del self.bindings[binding.identity()]
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
