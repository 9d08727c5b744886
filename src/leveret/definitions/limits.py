"""Limits of vhosts and of users, kept in the register.

    vhost_limit   vhost   {"max-connections", "max-queues"}
    user_limit    user    {"max-connections", "max-channels"}

A negative number means no limit. The engine enforces `max-queues` (`Vhost.queues_max`).
`leveret.auth.limits` reads the other limits from the register and enforces them.
"""

import json
from collections.abc import Iterator
from typing import Final

from leveret.auth.limits import MAX_CHANNELS, MAX_CONNECTIONS, USER_LIMIT, VHOST_LIMIT
from leveret.definitions import checks
from leveret.engine.broker import Broker
from leveret.errors import PreconditionFailedError

MAX_QUEUES: Final = "max-queues"
_COUNT_MAX: Final = 2**63 - 1  # the engine counts in 64 bits; RabbitMQ takes any number

OF_VHOST: Final[dict[str, checks.Check]] = {
    MAX_CONNECTIONS: checks.integer_fault,
    MAX_QUEUES: checks.integer_fault,
}
OF_USER: Final[dict[str, checks.Check]] = {
    MAX_CONNECTIONS: checks.integer_fault,
    MAX_CHANNELS: checks.integer_fault,
}

Values = dict[str, int]


class LimitDefinitions:
    """The limits of all vhosts, or of all users."""

    def __init__(self, broker: Broker, kind: str) -> None:
        self._broker = broker
        self._kind = kind
        self._known = OF_VHOST if kind == VHOST_LIMIT else OF_USER

    def load(self) -> None:
        """Apply the limits in the register to the engine."""
        for owner, _ in self.all():
            self._apply(owner)

    def get(self, owner: str) -> Values | None:
        text = self._broker.register.get(self._kind, owner)
        return json.loads(text) if text is not None else None

    def all(self) -> Iterator[tuple[str, Values]]:
        """Yield each vhost or user with its limits, sorted."""
        for owner, text in sorted(self._broker.register.entries(self._kind).items()):
            yield owner, json.loads(text)

    def faults(self, values: object) -> list[str]:
        """Return the faults of limits, in RabbitMQ's words."""
        what = "limits" if self._kind == VHOST_LIMIT else "user-limits"
        return checks.object_faults(what, values, self._known)

    def put(self, owner: str, values: object) -> None:
        """Replace all limits of a vhost or a user. Raises PreconditionFailedError."""
        faults = self.faults(values)
        if self._kind == USER_LIMIT and faults:
            raise PreconditionFailedError(faults[0])  # RabbitMQ: without the heading
        checks.require_no_faults(faults)
        self._keep_limits(owner, dict(values) if isinstance(values, dict) else {})

    def put_one(self, owner: str, name: str, value: object) -> None:
        """Set one limit. Raises PreconditionFailedError."""
        self.put(owner, {**(self.get(owner) or {}), name: value})

    def drop_one(self, owner: str, name: str) -> None:
        """Delete one limit, if it is set."""
        values = self.get(owner)
        if values is not None and values.pop(name, None) is not None:
            self._keep_limits(owner, values)

    def forget(self, owner: str) -> None:
        """Delete all limits of a vhost or a user."""
        self._broker.register.drop(self._kind, owner)
        self._apply(owner)

    def _keep_limits(self, owner: str, values: Values) -> None:
        if not values:
            self.forget(owner)
            return
        self._broker.register.put(self._kind, owner, json.dumps(values))
        self._apply(owner)

    def _apply(self, owner: str) -> None:
        vhost = self._broker.vhosts.get(owner)
        if self._kind == VHOST_LIMIT and vhost is not None:
            most = (self.get(owner) or {}).get(MAX_QUEUES, -1)
            vhost.queues_max = min(max(most, -1), _COUNT_MAX)
