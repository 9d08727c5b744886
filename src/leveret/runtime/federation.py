"""Connect federation to its node: its broker, its parameters and policies, and the turns."""

from leveret.federation import FederationManager
from leveret.federation.upstreams import UPSTREAM, UPSTREAM_SET, set_faults, upstream_faults
from leveret.runtime.node_events import NodeEvents
from leveret.runtime.node_view import HttpNodeView
from leveret.runtime.turns import TurnRunner
from leveret.shovels.local_node import LocalNode


def make_federation(
    view: HttpNodeView, events: NodeEvents, node: LocalNode, turns: TurnRunner
) -> FederationManager:
    """Make the federation links of a node; `FederationManager.load` starts them."""
    definitions = view.definitions
    federation = FederationManager(
        node,
        view.settings.node,
        definitions,
        now_ms=view.now_ms,
        on_event=events.publish,
        watch=turns.add_flusher,
        unwatch=turns.remove_flusher,
    )

    def on_parameter(component: str, vhost: str, _: str) -> None:
        federation.on_parameter(component, vhost)

    definitions.parameters.checks[UPSTREAM] = upstream_faults
    definitions.parameters.checks[UPSTREAM_SET] = set_faults
    definitions.parameters.on_change.append(on_parameter)
    definitions.policies.on_change.append(federation.on_policy)
    return federation
