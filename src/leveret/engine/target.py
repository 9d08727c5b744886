"""The target of a binding: a queue or an exchange.

Each routing of a message has a serial number, which the `Router` of the vhost counts up. The router
writes the number into every target that it reaches, and skips a target that has the number already.
So each queue gets one copy and cycles of bindings end, without a set per message.
"""

from mypy_extensions import i64

from leveret.engine.arguments.policies import NO_POLICY, CombinedPolicy
from leveret.engine.deduplication.deduplication import Deduplication
from leveret.wire.tables import Table


class Target:
    """Base class of queues and exchanges: the fields that routing and policies need."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last_routing: i64 = 0  # serial number of the last routing that reached it
        self.deduplication: Deduplication | None = None  # None: duplicates are taken
        self.deduplicated: i64 = 0  # duplicates that were dropped
        self.combined_policy: CombinedPolicy = NO_POLICY

    @property
    def policy(self) -> str | None:
        """Name of the user policy that applies."""
        return self.combined_policy.policy

    @property
    def operator_policy(self) -> str | None:
        """Name of the operator policy that applies."""
        return self.combined_policy.operator_policy

    @property
    def effective_policy(self) -> Table:
        """The merged definition of both policies. Read only."""
        return self.combined_policy.definition
