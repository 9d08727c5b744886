"""Random exchanges: each message goes to one binding, picked at random.

`x-random` accepts any binding. `x-local-random` is meant for queues on the node of the publisher:
its bindings have no key and lead to classic queues only (`classic_only`, which the vhost checks).

The random numbers are computed from a counter and a seed of the exchange, so that the same seed
gives the same choices and a replay is exact. The seed comes from outside the engine.
"""

from mypy_extensions import i64

from leveret.engine.exchanges.binding import Binding, add_to_row, remove_from_row
from leveret.engine.exchanges.exchange import Exchange, Headers
from leveret.engine.exchanges.hashing import mix
from leveret.engine.target import Target
from leveret.errors import PreconditionFailedError
from leveret.wire.tables import Table


class RandomExchange(Exchange):
    """An exchange of type x-random: all bindings are equally likely."""

    def __init__(self, name: str, kind: str, seed: i64) -> None:
        super().__init__(name, kind)
        self.key_only = False
        self.per_key = False
        self.seed: i64 = seed & 0xFFFFFFFF
        self.drawn: i64 = 0  # how many numbers were drawn; with the seed, this is the whole state
        self._row: list[Binding] = []

    def match(self, routing_key: str, headers: Headers, found: list[Target]) -> None:
        count: i64 = len(self._row)
        if count > 0:
            found.append(self._row[self._draw(count)].target)

    def index(self, binding: Binding) -> None:
        add_to_row(self._row, binding)

    def unindex(self, binding: Binding) -> None:
        remove_from_row(self._row, binding)

    def _draw(self, count: i64) -> i64:
        """Return the next random number below `count`."""
        self.drawn = (self.drawn + 1) & 0xFFFFFFFF
        return mix(mix(self.drawn) ^ self.seed) * count >> 32


class LocalRandomExchange(RandomExchange):
    """An exchange of type x-local-random: as x-random, but binding keys are refused."""

    def __init__(self, name: str, seed: i64) -> None:
        super().__init__(name, "x-local-random", seed)
        self.classic_only = True

    def check_binding(self, routing_key: str, arguments: Table) -> None:
        if routing_key:
            raise PreconditionFailedError(f"Non empty binding '{routing_key}' key not permitted")
