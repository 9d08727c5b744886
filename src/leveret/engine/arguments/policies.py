"""Policies: rules for queues and exchanges, given by a pattern of their names.

Exactly one of the users' policies and one of the operators' apply to an object: of those that match
it the one of the highest priority, and of these the first by name. What the two say together is an
`CombinedPolicy`; objects that the same two policies match share it.

How a pattern is matched is given from outside (`Policy.matches`), so that this stays pure.
"""

from collections.abc import Callable
from typing import Final

from leveret.engine.arguments.policy_keys import UNSUPPORTED, merged
from leveret.wire.tables import Table

ALL: Final = "all"
QUEUES: Final = "queues"
EXCHANGES: Final = "exchanges"
EXCHANGE: Final = "exchange"  # what stands in the place of a kind of queue
_OF_KIND: Final[dict[str, str]] = {
    "classic": "classic_queues",
    "quorum": "quorum_queues",
    "stream": "streams",
}
APPLY_TO: Final = (ALL, EXCHANGES, QUEUES, *_OF_KIND.values())


class Policy:
    """One policy of a vhost."""

    def __init__(
        self,
        name: str,
        matches: Callable[[str], bool],
        apply_to: str,
        priority: float,
        definition: Table,
    ) -> None:
        assert apply_to in APPLY_TO
        self.name = name
        self.matches = matches
        self.apply_to = apply_to
        self.priority = priority
        self.definition = definition

    def applies_to(self, kind: str) -> bool:
        """Whether it is meant for exchanges, or for a kind of queue."""
        if kind == EXCHANGE:
            return self.apply_to == ALL or self.apply_to == EXCHANGES
        if self.apply_to not in (ALL, QUEUES, _OF_KIND[kind]):
            return False
        for key in UNSUPPORTED[kind]:
            if key in self.definition:
                return False
        return True


class CombinedPolicy:
    """What two policies say together of the objects that they match."""

    def __init__(self, user: Policy | None, operator: Policy | None) -> None:
        self.policy: str | None = user.name if user is not None else None
        self.operator_policy: str | None = operator.name if operator is not None else None
        self.definition: Table = merged(
            user.definition if user is not None else {},
            operator.definition if operator is not None else {},
        )


NO_POLICY: Final = CombinedPolicy(None, None)


class Policies:
    """The policies of one vhost, of users and of operators."""

    def __init__(self) -> None:
        self._user: list[Policy] = []  # in the order in which they are asked
        self._operator: list[Policy] = []
        self._effects: dict[tuple[str, str], CombinedPolicy] = {}  # by the names of the two

    def put(self, policy: Policy, is_operator: bool) -> None:
        """Add a policy, in the place of the one of its name if there is one."""
        self.drop(policy.name, is_operator)
        policies = self._operator if is_operator else self._user
        policies.append(policy)
        policies.sort(key=_order)

    def drop(self, name: str, is_operator: bool) -> bool:
        """Remove a policy; False where there is none."""
        policies = self._operator if is_operator else self._user
        left = [policy for policy in policies if policy.name != name]
        self._effects.clear()
        if is_operator:
            self._operator = left
        else:
            self._user = left
        return len(left) != len(policies)

    def combined_for(self, name: str, kind: str) -> CombinedPolicy:
        """What holds for an exchange, or for a queue of some kind."""
        user = _first(self._user, name, kind)
        operator = _first(self._operator, name, kind)
        if user is None and operator is None:
            return NO_POLICY
        both = (
            user.name if user is not None else "",
            operator.name if operator is not None else "",
        )
        effect = self._effects.get(both)
        if effect is None:
            effect = CombinedPolicy(user, operator)
            self._effects[both] = effect
        return effect


def _order(policy: Policy) -> tuple[float, str]:
    return -policy.priority, policy.name


def _first(policies: list[Policy], name: str, kind: str) -> Policy | None:
    for policy in policies:
        if policy.applies_to(kind) and policy.matches(name):
            return policy
    return None
