"""A node of which only name and alarms are known."""

from contextlib import AbstractContextManager

from leveret.arrow.reads import BulkReads
from leveret.auth import Authority
from leveret.engine.broker import Broker


class Facts:
    """A node that is as well as its list of alarms says."""

    node_name = "hare"

    def __init__(self, *alarms: str) -> None:
        self._alarms = alarms

    def alarms(self) -> tuple[str, ...]:
        return self._alarms

    @property
    def authority(self) -> Authority:
        raise NotImplementedError

    @property
    def broker(self) -> Broker:
        raise NotImplementedError

    def turn(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    @property
    def bulk_reads(self) -> BulkReads:
        raise NotImplementedError
