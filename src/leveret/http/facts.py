"""What the HTTP front may ask of the running node.

The node gives an object of this shape to `HttpFront`; the resources under /api read it and nothing
else of the node. Kept apart from app.py so that naming the type does not import Starlette.
"""

from collections.abc import Sequence
from typing import Protocol


class BrokerFacts(Protocol):
    """The node, as seen from HTTP."""

    @property
    def node_name(self) -> str:
        """The name of this node."""

    @property
    def durability(self) -> str:
        """When a message counts as safe: "sync", "os", or "none" where nothing is stored."""

    def alarms(self) -> Sequence[str]:
        """The alarms in force, each as a sentence; empty when all is well."""
