"""Policies and operator policies: kept in the register, and applied to the engine.

    policy, operator_policy   [vhost, name]   {"pattern", "apply-to", "definition", "priority"}

A policy is checked before it is stored: RE2 must accept its pattern, and its definition may have
known keys only. After a change the engine applies the policies of the vhost again to all its
objects, in slices (`leveret.engine.vhosts.policy_enforcer`).
"""

import json
from collections.abc import Callable, Iterator
from typing import Final

from leveret.definitions import checks
from leveret.definitions.checks import erlang_term
from leveret.definitions.room import require_fast, require_room
from leveret.engine.arguments.policies import ALL, APPLY_TO, Policy
from leveret.engine.arguments.policy_keys import definition_fault
from leveret.engine.broker import Broker
from leveret.errors import PreconditionFailedError
from leveret.patterns import Pattern
from leveret.wire.tables import Table, table_of

POLICY: Final = "policy"
OPERATOR_POLICY: Final = "operator_policy"

Value = dict[str, object]  # the decoded value of a register entry


class PolicyDefinitions:
    """The policies, or the operator policies, of all vhosts."""

    def __init__(self, broker: Broker, kind: str) -> None:
        self.kind = kind
        self._is_operator = kind == OPERATOR_POLICY
        self._broker = broker
        self._values: dict[str, dict[str, Value]] = {}  # by vhost and name
        self.on_change: list[Callable[[str], None]] = []  # vhost

    def load(self) -> None:
        """Read the register and give the policies to the engine, which applies them later."""
        for key, text in self._broker.register.entries(self.kind).items():
            try:
                vhost, name = json.loads(key)
                value = json.loads(text)
                self._values.setdefault(vhost, {})[name] = value
                if vhost in self._broker.enforcers:
                    self._apply(vhost, name, value)
            except Exception as fault:  # it must not stop the start
                self._broker.turn.note_fault(f"restoring the {self.kind} {key}", fault)

    def get(self, vhost: str, name: str) -> Value | None:
        return self._values.get(vhost, {}).get(name)

    def all(self, vhost: str | None = None) -> Iterator[tuple[str, str, Value]]:
        """Yield vhost, name and value of each policy, sorted; of one vhost or of all."""
        for found in sorted(self._values) if vhost is None else [vhost]:
            for name, value in sorted(self._values.get(found, {}).items()):
                yield found, name, value

    def faults(self, name: str, value: object) -> list[str]:
        """Return the faults of a policy, in RabbitMQ's words and order."""
        known: dict[str, checks.Check] = {
            "priority": checks.number_fault,
            "pattern": _pattern_fault,
            "apply-to": _apply_to_fault,
            "definition": self._definition_fault,
        }
        return checks.object_faults(name, value, known, ("priority", "pattern", "definition"))

    def _definition_fault(self, _: str, value: object) -> str:
        if not isinstance(value, dict):
            return f"definition must be a dictionary: {erlang_term(value)}"
        try:
            table = table_of(value)
        except ValueError as fault:
            return str(fault)
        return definition_fault(table, self._is_operator)

    def put(self, vhost: str, name: str, value: Value) -> bool:
        """Set a policy; True if it is new. Raises PreconditionFailedError with all its faults."""
        checks.require_no_faults(self.faults(name, value))
        self._broker.vhost(vhost)
        value = {"apply-to": ALL, **value}
        of_vhost = self._values.setdefault(vhost, {})
        is_new = name not in of_vhost
        if of_vhost.get(name) == value:
            return False
        of_vhost[name] = value
        self._broker.register.put(self.kind, _key(vhost, name), json.dumps(value))
        self._apply(vhost, name, value)
        self._broker.enforcers[vhost].review()
        self._changed(vhost)
        return is_new

    def require_room(self, vhost: str, name: str, value: Value) -> None:
        """Raise PreconditionFailedError if only an administrator may set this policy."""
        checks.require_no_faults(self.faults(name, value))
        others = [other for other in self._values.get(vhost, {}) if other != name]
        texts = [self._broker.register.get(self.kind, _key(vhost, other)) for other in others]
        require_room(
            f"policies of vhost '{vhost}'",
            [len(text) for text in texts if text is not None],
            len(name) + len(json.dumps(value)),
        )
        policies = self._broker.enforcers[vhost].policies
        size = policies.size - policies.size_of(name, self._is_operator)
        require_fast(size + Pattern(str(value["pattern"])).size)

    def drop(self, vhost: str, name: str) -> bool:
        """Delete a policy. Return False if there is none."""
        if self._values.get(vhost, {}).pop(name, None) is None:
            return False
        self._broker.register.drop(self.kind, _key(vhost, name))
        enforcer = self._broker.enforcers[vhost]
        enforcer.policies.drop(name, self._is_operator)
        enforcer.review()
        self._changed(vhost)
        return True

    def _changed(self, vhost: str) -> None:
        for callback in self.on_change:
            callback(vhost)

    def forget_vhost(self, vhost: str) -> None:
        """Delete the policies of a deleted vhost."""
        for name in self._values.pop(vhost, {}):
            self._broker.register.drop(self.kind, _key(vhost, name))

    def _apply(self, vhost: str, name: str, value: Value) -> None:
        pattern = Pattern(str(value["pattern"]))
        policy = Policy(
            name,
            pattern.matches,
            str(value["apply-to"]),
            _priority(value["priority"]),
            _definition(value["definition"]),
            pattern.size,
        )
        self._broker.enforcers[vhost].policies.put(policy, self._is_operator)


def _key(vhost: str, name: str) -> str:
    return json.dumps([vhost, name])


def _priority(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _definition(value: object) -> Table:
    assert isinstance(value, dict)
    return table_of(value)


def _pattern_fault(name: str, value: object) -> str:
    if not isinstance(value, str):
        return f"{name} should be a binary but was {erlang_term(value)}"
    try:
        Pattern(value)
    except PreconditionFailedError as fault:
        return f"{name} should be regular expression but is invalid: {fault}"
    return ""


def _apply_to_fault(name: str, value: object) -> str:
    if value in APPLY_TO:
        return ""
    shown = value if isinstance(value, str) else erlang_term(value)
    return (
        f"apply-to '{shown}' unrecognised; should be one of: 'queues', 'classic_queues', "
        " 'quorum_queues', 'streams', 'exchanges', or 'all'"
    )
