"""What a binding can lead to: a queue or an exchange.

A routing writes its serial number into every target that it reaches. A target that carries the
number already was reached before: that is how each queue gets one copy and how cycles end, without
a set per message. The serial belongs to the `Router` of the target's vhost and only ever grows.
"""

from mypy_extensions import i64

from leveret.engine.arguments.policies import NO_POLICY, CombinedPolicy
from leveret.engine.deduplication.deduplication import Deduplication
from leveret.wire.tables import Table


class Target:
    """Base of queues and exchanges, as routing sees them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last_routing: i64 = 0  # serial number of the last routing that reached it
        self.deduplication: Deduplication | None = None  # where duplicates are dropped
        self.deduplicated: i64 = 0  # how many were
        self.combined_policy: CombinedPolicy = NO_POLICY  # of the policies that match it

    @property
    def policy(self) -> str | None:
        """The name of the policy that applies to it."""
        return self.combined_policy.policy

    @property
    def operator_policy(self) -> str | None:
        """The name of the operators' policy that applies to it."""
        return self.combined_policy.operator_policy

    @property
    def effective_policy(self) -> Table:
        """What the two say together. Not to change."""
        return self.combined_policy.definition
