"""Runtime parameters: values by component, vhost and name; and global parameters by name.

    parameter          [component, vhost, name]   the value
    parameter_owner    [component, vhost, name]   the name of the user who set it
    global_parameter   name                       the value

A component must be known. An active component registers a check of its values in `checks` and a
callback in `on_change`. Shovels and federation links act as the owner of their parameter. The owner
`OPERATOR` may do everything. A parameter has no owner if the user was deleted.

RabbitMQ: operator policies and limits of vhosts are parameters too, of the components
`operator_policy` and `vhost-limits`. `policies` and `limits` keep them.
"""

import json
from collections.abc import Callable, Iterator
from typing import Final

from leveret.definitions import checks
from leveret.definitions.limits import LimitDefinitions
from leveret.definitions.policies import OPERATOR_POLICY, POLICY, PolicyDefinitions, Value
from leveret.definitions.room import require_room
from leveret.engine.broker import Broker
from leveret.errors import PreconditionFailedError

PARAMETER: Final = "parameter"
PARAMETER_OWNER: Final = "parameter_owner"
GLOBAL_PARAMETER: Final = "global_parameter"
OPERATOR: Final = ""  # owner of parameters that come from a file of the node
OWNED: Final = ("shovel", "federation-upstream")  # components that act as an owner
CLUSTER_NAME: Final = "cluster_name"
VHOST_LIMITS: Final = "vhost-limits"
LIMITS: Final = "limits"  # the one name of that component
VALUE_BYTES_MAX: Final = 1024 * 1024
NAME_LENGTH_MAX: Final = 255

Faults = Callable[[str, str, object], list[str]]  # takes vhost, name and value
Row = tuple[str, str, str, object]  # component, vhost, name, value


class Parameters:
    """All runtime parameters of a node."""

    def __init__(
        self, broker: Broker, operator: PolicyDefinitions, limits: LimitDefinitions
    ) -> None:
        self._broker = broker
        self._operator = operator
        self._limits = limits
        self.checks: dict[str, Faults] = {
            "shovel": accept_object,
            "federation-upstream": accept_object,
            "federation": accept_object,
            "federation-upstream-set": accept,
        }
        self.on_change: list[Callable[[str, str, str], None]] = []  # component, vhost, name
        self.on_global_change: list[Callable[[str], None]] = []  # name

    def get(self, component: str, vhost: str, name: str) -> object | None:
        """Return the value, or None if there is no such parameter."""
        if component == OPERATOR_POLICY:
            return self._operator.get(vhost, name)
        if component == VHOST_LIMITS:
            return self._limits.get(vhost) if name == LIMITS else None
        text = self._broker.register.get(PARAMETER, json.dumps([component, vhost, name]))
        return json.loads(text) if text is not None else None

    def all(self, component: str | None = None, vhost: str | None = None) -> list[Row]:
        """Return all parameters, or those of a component or a vhost, sorted."""
        rows = [row for row in self._rows() if component in (None, row[0])]
        return sorted(row for row in rows if vhost in (None, row[1]))

    def _rows(self) -> Iterator[Row]:
        for key, text in self._broker.register.entries(PARAMETER).items():
            component, vhost, name = json.loads(key)
            yield component, vhost, name, json.loads(text)
        for vhost, name, policy in self._operator.all():
            yield OPERATOR_POLICY, vhost, name, policy
        for vhost, values in self._limits.all():
            yield VHOST_LIMITS, vhost, LIMITS, values

    def faults(self, component: str, vhost: str, name: str, value: object) -> list[str]:
        """Return the faults of a parameter, in RabbitMQ's words."""
        if component == OPERATOR_POLICY:
            return self._operator.faults(name, value)
        if component == VHOST_LIMITS:
            return self._limits.faults(value)
        check = self.checks.get(component)
        if check is None:
            return [f"component {component} not found"]
        if not 0 < len(name) <= NAME_LENGTH_MAX or len(json.dumps(value)) > VALUE_BYTES_MAX:
            return [f"{name} is too long"]
        return check(vhost, name, value)

    def owner(self, component: str, vhost: str, name: str) -> str | None:
        """Return the user who set a parameter, `OPERATOR`, or None if nobody owns it."""
        return self._broker.register.get(PARAMETER_OWNER, json.dumps([component, vhost, name]))

    def forget_owner(self, user: str) -> None:
        """Let the parameters of a deleted user have no owner, even if the name is used again."""
        for key, owner in list(self._broker.register.entries(PARAMETER_OWNER).items()):
            if owner == user:
                self._broker.register.drop(PARAMETER_OWNER, key)
                self._changed(*json.loads(key))

    def put(
        self, component: str, vhost: str, name: str, value: object, owner: str | None = None
    ) -> bool:
        """Set a parameter; True if it is new. Raises PreconditionFailedError."""
        require_settable(component)
        checks.require_no_faults(self.faults(component, vhost, name, value))
        is_new = self.get(component, vhost, name) is None
        if component == OPERATOR_POLICY:
            self._operator.put(vhost, name, _policy(value))
        elif component == VHOST_LIMITS:
            self._limits.put(vhost, value)
        else:
            key = json.dumps([component, vhost, name])
            self._broker.register.put(PARAMETER, key, json.dumps(value))
            self._broker.register.drop(PARAMETER_OWNER, key)
            if owner is not None and component in OWNED:
                self._broker.register.put(PARAMETER_OWNER, key, owner)
        self._changed(component, vhost, name)
        return is_new

    def require_room(self, component: str, vhost: str, name: str, value: object) -> None:
        """Raise PreconditionFailedError if only an administrator may set this parameter."""
        others: list[int] = []
        for key, text in self._broker.register.entries(PARAMETER).items():
            parts = json.loads(key)
            if parts[1] == vhost and parts != [component, vhost, name]:
                others.append(len(text))
        require_room(f"parameters of vhost '{vhost}'", others, len(json.dumps(value)))

    def drop(self, component: str, vhost: str, name: str) -> bool:
        """Delete a parameter. Return False if there is none."""
        if component == POLICY:
            raise PreconditionFailedError("policies may not be cleared using this method")
        if self.get(component, vhost, name) is None:
            return False
        if component == OPERATOR_POLICY:
            self._operator.drop(vhost, name)
        elif component == VHOST_LIMITS:
            self._limits.forget(vhost)
        else:
            self._forget(component, vhost, name)
        self._changed(component, vhost, name)
        return True

    def _forget(self, component: str, vhost: str, name: str) -> None:
        key = json.dumps([component, vhost, name])
        self._broker.register.drop(PARAMETER, key)
        self._broker.register.drop(PARAMETER_OWNER, key)

    def forget_vhost(self, vhost: str) -> None:
        """Delete the parameters of a deleted vhost; `policies` and `limits` delete their own."""
        for component, _, name, _ in self.all(vhost=vhost):
            self._forget(component, vhost, name)
            self._changed(component, vhost, name)

    def _changed(self, component: str, vhost: str, name: str) -> None:
        for callback in self.on_change:
            callback(component, vhost, name)

    def global_value(self, name: str) -> object | None:
        text = self._broker.register.get(GLOBAL_PARAMETER, name)
        return json.loads(text) if text is not None else None

    def globals(self) -> list[tuple[str, object]]:
        """Return names and values of the global parameters, sorted."""
        found = self._broker.register.entries(GLOBAL_PARAMETER)
        return [(name, json.loads(text)) for name, text in sorted(found.items())]

    def put_global(self, name: str, value: object) -> bool:
        """Set a global parameter; True if it is new. Raises PreconditionFailedError."""
        require_global(name, value)
        is_new = self._broker.register.get(GLOBAL_PARAMETER, name) is None
        self._broker.register.put(GLOBAL_PARAMETER, name, json.dumps(value))
        self._changed_global(name)
        return is_new

    def require_global_room(self, name: str, value: object) -> None:
        """Raise PreconditionFailedError if only an administrator may set this global parameter."""
        entries = self._broker.register.entries(GLOBAL_PARAMETER).items()
        others = [len(text) for other, text in entries if other != name]
        require_room("global parameters", others, len(json.dumps(value)))

    def drop_global(self, name: str) -> bool:
        was_there = self._broker.register.drop(GLOBAL_PARAMETER, name)
        self._changed_global(name)
        return was_there

    def _changed_global(self, name: str) -> None:
        for callback in self.on_global_change:
            callback(name)


def require_settable(component: str) -> None:
    if component == POLICY:
        raise PreconditionFailedError("policies may not be set using this method")


def require_global(name: str, value: object) -> None:
    """Raise PreconditionFailedError if a name or a value is too long."""
    if not 0 < len(name) <= NAME_LENGTH_MAX or len(json.dumps(value)) > VALUE_BYTES_MAX:
        raise PreconditionFailedError(f"{name} is too long")


def accept(vhost: str, name: str, value: object) -> list[str]:
    """Accept any value."""
    return []


def accept_object(vhost: str, name: str, value: object) -> list[str]:
    """Accept any object."""
    return [] if isinstance(value, dict) else [f"{name} not a list {checks.erlang_term(value)}"]


def _policy(value: object) -> Value:
    assert isinstance(value, dict)
    return value
