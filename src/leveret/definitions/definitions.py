"""The definitions of a node: vhosts, policies, limits and parameters.

Recovery calls `load` when the register and all queues are known, before the messages are: policies
are in force before the first delivery.
"""

from leveret.auth.limits import USER_LIMIT, VHOST_LIMIT
from leveret.definitions.limits import LimitDefinitions
from leveret.definitions.parameters import CLUSTER_NAME, Parameters
from leveret.definitions.policies import OPERATOR_POLICY, POLICY, PolicyDefinitions
from leveret.definitions.vhosts import VhostDefinitions
from leveret.engine.broker import Broker
from leveret.engine.vhosts.pausing import forget_pauses


class Definitions:
    """Vhosts, policies, limits and parameters."""

    def __init__(self, broker: Broker, node_name: str, rabbit_version: str) -> None:
        self.broker = broker
        self.rabbit_version = rabbit_version  # the version of RabbitMQ whose behaviour this is
        self._node_name = node_name
        self.vhosts = VhostDefinitions(broker)
        self.policies = PolicyDefinitions(broker, POLICY)
        self.operator_policies = PolicyDefinitions(broker, OPERATOR_POLICY)
        self.vhost_limits = LimitDefinitions(broker, VHOST_LIMIT)
        self.user_limits = LimitDefinitions(broker, USER_LIMIT)
        self.parameters = Parameters(broker, self.operator_policies, self.vhost_limits)
        broker.on_defined = self.load

    def load(self) -> None:
        """Read the register and apply all policies to all objects. No entry stops a start."""
        for load in (
            self.vhosts.load,
            self.policies.load,
            self.operator_policies.load,
            self.vhost_limits.load,
        ):
            try:
                load()
            except Exception as fault:
                self.broker.turn.note_fault("restoring vhosts, policies and limits", fault)
        for enforcer in self.broker.enforcers.values():
            enforcer.review_now()

    @property
    def cluster_name(self) -> str:
        """Return the name that operators set, or the name of the node."""
        given = self.parameters.global_value(CLUSTER_NAME)
        return given if isinstance(given, str) else self._node_name

    def keep_cluster_name(self) -> None:
        """Store the name of the cluster, so that it does not change with the node that leads."""
        if self.parameters.global_value(CLUSTER_NAME) is None:
            self.parameters.put_global(CLUSTER_NAME, self._node_name)

    def is_applying(self) -> bool:
        """Return True while a changed policy is not yet applied to all objects."""
        return any(enforcer.is_busy for enforcer in self.broker.enforcers.values())

    def apply_some(self) -> None:
        """Apply changed policies to the next objects, without waiting for the timer."""
        for enforcer in self.broker.enforcers.values():
            enforcer.work()

    def delete_vhost(self, name: str) -> None:
        """Delete a vhost and its definitions. Its connections must be closed before.

        Raises NotFoundError. The caller deletes the permissions in the user directory.
        """
        self.broker.delete_vhost(name)
        self.vhosts.forget(name)
        self.policies.forget_vhost(name)
        self.operator_policies.forget_vhost(name)
        self.vhost_limits.forget(name)
        self.parameters.forget_vhost(name)
        forget_pauses(self.broker.register, name)


def attach_definitions(broker: Broker) -> None:
    """Make a broker load its definitions at recovery. Used for a repair, which has no node."""
    Definitions(broker, "", "")
