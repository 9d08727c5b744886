"""Modulus-hash exchanges: the hash of the routing key modulo the number of bindings picks one.

The bindings are numbered in the order of their identities, not of their creation, so that the same
set of bindings gives the same choice after a restart. A new binding moves most keys to other
targets. `x-consistent-hash` is the type that avoids this.
"""

from mypy_extensions import i64

from leveret.engine.exchanges.binding import Binding, Identity
from leveret.engine.exchanges.exchange import Exchange, Headers
from leveret.engine.exchanges.hashing import mix, stable_hash
from leveret.engine.target import Target


class ModulusHashExchange(Exchange):
    """An exchange of type x-modulus-hash."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "x-modulus-hash")
        self.per_key = False
        self._members: dict[Identity, Binding] = {}
        self._targets: list[Target] = []  # of the members in order; empty = to be computed

    def match(self, routing_key: str, headers: Headers, found: list[Target]) -> None:
        if not self._targets:
            self._targets = [self._members[identity].target for identity in sorted(self._members)]
        count: i64 = len(self._targets)
        if count > 0:
            found.append(self._targets[mix(stable_hash(routing_key)) % count])

    def index(self, binding: Binding) -> None:
        self._members[binding.identity()] = binding
        self._targets = []

    def unindex(self, binding: Binding) -> None:
        del self._members[binding.identity()]
        self._targets = []
