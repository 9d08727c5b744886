"""Which policy applies: pattern, kind, priority, and exactly one of each sort."""

import re

import pytest

from leveret.engine.arguments.policies import NO_POLICY, Policies, Policy
from leveret.wire.tables import plain_table, table_of


def policy(
    name: str,
    pattern: str,
    definition: dict[str, object],
    apply_to: str = "all",
    priority: float = 0,
) -> Policy:
    compiled = re.compile(pattern)

    def matches(text: str) -> bool:
        return compiled.search(text) is not None

    return Policy(name, matches, apply_to, priority, table_of(definition))


def test_without_policies_nothing_applies() -> None:
    assert Policies().combined_for("q", "classic") is NO_POLICY
    assert (NO_POLICY.policy, NO_POLICY.operator_policy, NO_POLICY.definition) == (None, None, {})


def test_highest_priority_applies_and_first_name_among_equals() -> None:
    policies = Policies()
    policies.put(policy("b", "q", {"max-length": 1}, priority=5), False)
    policies.put(policy("a", "q", {"max-length": 2}, priority=5), False)
    policies.put(policy("c", "q", {"max-length": 3}, priority=4.5), False)
    assert policies.combined_for("q", "classic").policy == "a"
    policies.put(policy("c", "q", {"max-length": 3}, priority=6), False)
    assert policies.combined_for("q", "classic").policy == "c"
    assert policies.drop("c", False)
    assert not policies.drop("c", False)
    assert policies.combined_for("q", "classic").policy == "a"


def test_one_user_policy_applies_and_others_are_not_mixed_in() -> None:
    policies = Policies()
    policies.put(policy("a", "rder", {"max-length": 1}, priority=1), False)
    policies.put(policy("b", ".*", {"message-ttl": 1}), False)
    assert plain_table(policies.combined_for("orders", "classic").definition) == {"max-length": 1}
    assert plain_table(policies.combined_for("other", "classic").definition) == {"message-ttl": 1}


def test_user_policy_and_operator_policy_are_merged() -> None:
    policies = Policies()
    policies.put(policy("u", "q", {"max-length": 9}), False)
    policies.put(policy("o", "q", {"max-length": 3, "expires": 7}), True)
    effect = policies.combined_for("q", "classic")
    assert (effect.policy, effect.operator_policy) == ("u", "o")
    assert plain_table(effect.definition) == {"expires": 7, "max-length": 3}
    assert policies.combined_for("q2", "classic") is effect, "the same two: the same effect"
    policies.drop("o", True)
    assert plain_table(policies.combined_for("q", "classic").definition) == {"max-length": 9}


@pytest.mark.parametrize(
    ("apply_to", "kinds"),
    [
        ("all", "classic quorum stream exchange"),
        ("queues", "classic quorum stream"),
        ("exchanges", "exchange"),
        ("classic_queues", "classic"),
        ("quorum_queues", "quorum"),
        ("streams", "stream"),
    ],
)
def test_policy_applies_to_the_kinds_in_apply_to(apply_to: str, kinds: str) -> None:
    found = policy("p", "", {"max-length-bytes": 1}, apply_to)
    every = ("classic", "quorum", "stream", "exchange")
    assert [kind for kind in every if found.applies_to(kind)] == kinds.split()


@pytest.mark.parametrize(
    ("key", "value", "kinds"),
    [
        ("max-length", 1, "classic quorum exchange"),
        ("max-age", "1D", "stream exchange"),
        ("delivery-limit", 1, "classic quorum exchange"),
        ("queue-mode", "lazy", "classic exchange"),
        ("dead-letter-strategy", "at-least-once", "quorum exchange"),
        ("remember", "s", "classic quorum exchange"),
        ("deduplication", {}, "classic quorum stream exchange"),
    ],
)
def test_policy_with_an_unsupported_key_does_not_apply_to_that_kind(
    key: str, value: object, kinds: str
) -> None:
    policies = Policies()
    policies.put(policy("wanted", "", {key: value}, priority=1), False)
    policies.put(policy("rest", "", {"max-length-bytes": 1}), False)
    every = ("classic", "quorum", "stream", "exchange")
    found = [kind for kind in every if policies.combined_for("x", kind).policy == "wanted"]
    assert found == kinds.split()
