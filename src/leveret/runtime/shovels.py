"""Connect the shovels to their node: its broker, and the parameters that define shovels."""

from collections.abc import Callable

from leveret.runtime.node_events import NodeEvents
from leveret.runtime.node_view import HttpNodeView
from leveret.shovels import ShovelManager
from leveret.shovels.local_node import LocalNode
from leveret.shovels.manager import COMPONENT
from leveret.shovels.targets import TargetRules


def make_local_node(view: HttpNodeView, events: NodeEvents, token: Callable[[], str]) -> LocalNode:
    """Return the node as shovels and federation links see it."""
    return LocalNode(
        broker=view.broker,
        turn=view.turn,
        no_alarm=events.no_alarm,
        token=token,
        consumer_timeout_ms=view.settings.consumer_timeout_ms,
        user=view.directory.user,
        targets=TargetRules(view.settings.shovel_allowed_targets),
        synced=view.synced,
        tellable=view.tellable,
    )


def make_shovels(view: HttpNodeView, events: NodeEvents, node: LocalNode) -> ShovelManager:
    """Make the shovels of a node; `load_shovels` starts them."""
    parameters = view.definitions.parameters

    async def clear(vhost: str, name: str) -> None:
        with view.turn():
            parameters.drop(COMPONENT, vhost, name)
        await view.synced()

    shovels = ShovelManager(
        node, view.settings.node, now_ms=view.now_ms, clear=clear, on_event=events.publish
    )

    def on_change(component: str, vhost: str, name: str) -> None:
        value = parameters.get(component, vhost, name)
        owner = parameters.owner(component, vhost, name)
        shovels.on_parameter(component, vhost, name, value, owner)

    parameters.checks[COMPONENT] = shovels.faults
    parameters.on_change.append(on_change)
    return shovels


def load_shovels(view: HttpNodeView) -> None:
    """Start the shovels that the parameters define."""
    parameters = view.definitions.parameters
    view.shovels.load(
        [
            (vhost, name, value, parameters.owner(COMPONENT, vhost, name))
            for _, vhost, name, value in parameters.all(COMPONENT)
        ]
    )
