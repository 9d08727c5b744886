"""Test that a node frees the memory that its recovery has used."""

import gc

from leveret.storage.recovery_result import RecoveryResult
from leveret.testing import broker
from leveret.testing.disk import FakeDisk


def test_node_forgets_the_places_of_recovered_messages() -> None:
    disk = FakeDisk()
    with broker(disk=disk):
        pass
    before = results()
    with broker(disk=disk) as started:
        assert started.node.recovered_facts["messages"] == 0
        assert all(any(found is old for old in before) for found in results())


def results() -> list[RecoveryResult]:
    """Return all results in memory. Other tests may have left some."""
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, RecoveryResult)]
