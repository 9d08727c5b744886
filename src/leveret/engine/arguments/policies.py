"""Policies: settings for all queues and exchanges whose names match a pattern.

At most one user policy and one operator policy apply to an object. Among the policies that match
it, the one with the highest priority applies; among equal priorities, the first by name. The two
merged are a `CombinedPolicy`. Objects with the same two policies share one.

The caller supplies the function that matches a pattern (`Policy.matches`), so that this module
stays pure.
"""

from collections.abc import Callable
from typing import Final

from leveret.engine.arguments.policy_keys import UNSUPPORTED, merged
from leveret.wire.tables import Table

ALL: Final = "all"
QUEUES: Final = "queues"
EXCHANGES: Final = "exchanges"
EXCHANGE: Final = "exchange"  # used where a queue has its kind
_APPLY_TO_KIND: Final[dict[str, str]] = {
    "classic": "classic_queues",
    "quorum": "quorum_queues",
    "stream": "streams",
}
APPLY_TO: Final = (ALL, EXCHANGES, QUEUES, *_APPLY_TO_KIND.values())


class Policy:
    """One policy of a vhost."""

    def __init__(
        self,
        name: str,
        matches: Callable[[str], bool],
        apply_to: str,
        priority: float,
        definition: Table,
        size: int = 1,
    ) -> None:
        assert apply_to in APPLY_TO
        self.name = name
        self.matches = matches
        self.apply_to = apply_to
        self.priority = priority
        self.definition = definition
        self.size = size  # instructions of its pattern, to which the time of a match is bound

    def applies_to(self, kind: str) -> bool:
        """Return True if the policy can apply to exchanges, or to a kind of queue."""
        if kind == EXCHANGE:
            return self.apply_to == ALL or self.apply_to == EXCHANGES
        if self.apply_to not in (ALL, QUEUES, _APPLY_TO_KIND[kind]):
            return False
        for key in UNSUPPORTED[kind]:
            if key in self.definition:
                return False
        return True


class CombinedPolicy:
    """A user policy and an operator policy, merged. Either may be missing."""

    def __init__(self, user: Policy | None, operator: Policy | None) -> None:
        self.policy: str | None = user.name if user is not None else None
        self.operator_policy: str | None = operator.name if operator is not None else None
        self.definition: Table = merged(
            user.definition if user is not None else {},
            operator.definition if operator is not None else {},
        )


NO_POLICY: Final = CombinedPolicy(None, None)


class Policies:
    """The user policies and operator policies of one vhost."""

    def __init__(self) -> None:
        self._user: list[Policy] = []  # best first: the first that matches applies
        self._operator: list[Policy] = []
        self._combined: dict[tuple[str, str], CombinedPolicy] = {}  # by the names of the two
        self.size: int = 0  # of all patterns

    def put(self, policy: Policy, is_operator: bool) -> None:
        """Add a policy, or replace the one with the same name."""
        self.drop(policy.name, is_operator)
        policies = self._operator if is_operator else self._user
        policies.append(policy)
        self.size += policy.size
        policies.sort(key=_order)

    def drop(self, name: str, is_operator: bool) -> bool:
        """Remove a policy; return False if there is none."""
        policies = self._operator if is_operator else self._user
        self.size -= self.size_of(name, is_operator)
        left = [policy for policy in policies if policy.name != name]
        self._combined.clear()
        if is_operator:
            self._operator = left
        else:
            self._user = left
        return len(left) != len(policies)

    def size_of(self, name: str, is_operator: bool) -> int:
        """Return the size of the pattern of a policy; 0 if there is none."""
        for policy in self._operator if is_operator else self._user:
            if policy.name == name:
                return policy.size
        return 0

    def combined_for(self, name: str, kind: str) -> CombinedPolicy:
        """Return the combined policy of a queue of this kind; EXCHANGE is the kind of exchanges."""
        user = _first(self._user, name, kind)
        operator = _first(self._operator, name, kind)
        if user is None and operator is None:
            return NO_POLICY
        names = (
            user.name if user is not None else "",
            operator.name if operator is not None else "",
        )
        combined = self._combined.get(names)
        if combined is None:
            combined = CombinedPolicy(user, operator)
            self._combined[names] = combined
        return combined


def _order(policy: Policy) -> tuple[float, str]:
    return -policy.priority, policy.name


def _first(policies: list[Policy], name: str, kind: str) -> Policy | None:
    for policy in policies:
        if policy.applies_to(kind) and policy.matches(name):
            return policy
    return None
