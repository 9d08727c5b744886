"""Connect the shovels to their node: its broker, and the parameters that define shovels."""

from collections.abc import Callable

from leveret.runtime.node_events import NodeEvents
from leveret.runtime.node_view import HttpNodeView
from leveret.shovels import ShovelManager
from leveret.shovels.local_node import LocalNode
from leveret.shovels.manager import COMPONENT


def make_shovels(view: HttpNodeView, events: NodeEvents, token: Callable[[], str]) -> ShovelManager:
    """Make the shovels of a node; `load_shovels` starts them."""
    parameters = view.definitions.parameters
    node = LocalNode(
        broker=view.broker,
        turn=view.turn,
        no_alarm=events.no_alarm,
        token=token,
        consumer_timeout_ms=view.settings.consumer_timeout_ms,
        synced=view.synced,
    )

    async def clear(vhost: str, name: str) -> None:
        with view.turn():
            parameters.drop(COMPONENT, vhost, name)
        await view.synced()

    shovels = ShovelManager(
        node, view.settings.node, now_ms=view.now_ms, clear=clear, on_event=events.publish
    )

    def on_change(component: str, vhost: str, name: str) -> None:
        shovels.on_parameter(component, vhost, name, parameters.get(component, vhost, name))

    parameters.checks[COMPONENT] = shovels.faults
    parameters.on_change.append(on_change)
    return shovels


def load_shovels(view: HttpNodeView) -> None:
    """Start the shovels that the parameters define."""
    rows = view.definitions.parameters.all(COMPONENT)
    view.shovels.load([(vhost, name, value) for _, vhost, name, value in rows])
