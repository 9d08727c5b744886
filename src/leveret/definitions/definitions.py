"""The book of a node: everything that operators define besides exchanges, queues and users.

`load` is called by a start as soon as the register and all queues are known, and before any message
is: policies are in force before the first delivery.
"""

import json
from typing import Final

from leveret.definitions.limits import USER_LIMIT, VHOST_LIMIT, LimitDefinitions
from leveret.definitions.parameters import CLUSTER_NAME, Parameters
from leveret.definitions.policies import OPERATOR_POLICY, POLICY, PolicyDefinitions
from leveret.definitions.vhosts import VhostDefinitions
from leveret.engine.broker import Broker

PAUSED: Final = "paused"  # entries of queues, by vhost and name


class Definitions:
    """Vhosts, policies, limits and parameters."""

    def __init__(self, broker: Broker, node_name: str, rabbit_version: str) -> None:
        self.broker = broker
        self.rabbit_version = rabbit_version  # whose behaviour this is
        self._node_name = node_name
        self.vhosts = VhostDefinitions(broker)
        self.policies = PolicyDefinitions(broker, POLICY)
        self.operator_policies = PolicyDefinitions(broker, OPERATOR_POLICY)
        self.vhost_limits = LimitDefinitions(broker, VHOST_LIMIT)
        self.user_limits = LimitDefinitions(broker, USER_LIMIT)
        self.parameters = Parameters(broker, self.operator_policies, self.vhost_limits)
        broker.on_defined = self.load

    def load(self) -> None:
        """Read the register, and let everything that is there obey."""
        self.vhosts.load()
        self.policies.load()
        self.operator_policies.load()
        self.vhost_limits.load()
        for governor in self.broker.governors.values():
            governor.review_now()

    @property
    def cluster_name(self) -> str:
        """The name that operators gave, or that of the node."""
        given = self.parameters.global_value(CLUSTER_NAME)
        return given if isinstance(given, str) else self._node_name

    def is_applying(self) -> bool:
        """Whether some objects do not yet obey a policy that has changed."""
        return any(governor.is_busy for governor in self.broker.governors.values())

    def apply_some(self) -> None:
        """Let some more of them obey; the pulse does so too, for those who do not wait."""
        for governor in self.broker.governors.values():
            governor.work()

    def delete_vhost(self, name: str) -> None:
        """Delete a vhost and everything that is said of it. Whoever worked there is gone.

        Raises NotFound. What users may do there is the directory's to forget.
        """
        self.broker.delete_vhost(name)
        self.vhosts.forget(name)
        self.policies.forget_vhost(name)
        self.operator_policies.forget_vhost(name)
        self.vhost_limits.forget(name)
        self.parameters.forget_vhost(name)
        register = self.broker.register
        for key in list(register.entries(PAUSED)):
            if json.loads(key)[0] == name:
                register.drop(PAUSED, key)


def attach_definitions(broker: Broker) -> None:
    """Let a broker that is built for a repair know what its log says of policies."""
    Definitions(broker, "", "")
