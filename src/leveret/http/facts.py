"""What the HTTP front may ask of the running node.

The node gives an object of this shape to `HttpFront`; the resources under /api read it and nothing
else of the node. Kept apart from app.py so that naming the type does not import Starlette.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from leveret.arrow.reads import BulkReads
from leveret.auth import Authority
from leveret.engine.broker import Broker


class BrokerFacts(Protocol):
    """The node, as seen from HTTP."""

    @property
    def node_name(self) -> str:
        """The name of this node."""

    def alarms(self) -> Sequence[str]:
        """The alarms in force, each as a sentence; empty when all is well."""

    @property
    def authority(self) -> Authority:
        """Who may log in."""

    @property
    def broker(self) -> Broker:
        """The engine. It is changed inside a `turn` only."""

    def turn(self) -> AbstractContextManager[None]:
        """A turn of the engine around some commands."""

    @property
    def bulk_reads(self) -> BulkReads:
        """Reads of whole ranges of streams."""
