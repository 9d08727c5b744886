"""A disk fault at any write or sync of a load, or of a start, loses nothing that was confirmed.

A sample of `tests.simulation.damage`, which tries every operation.
"""

import errno

import pytest

from leveret.testing.disk import SYNC, WRITE
from tests.forms import volume
from tests.simulation.damage import Fault, check_fault, check_start_fault, lie, operations

PARTS = 4
STRIDE = volume(6, 36)  # every sixth operation in the compiled form


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", [WRITE, SYNC])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_fault_at_an_operation_of_a_load(seed: int, kind: str, code: int, part: int) -> None:
    print(f"seed {seed}")
    first = 1 + (seed + part * STRIDE // PARTS) % STRIDE
    for nth in range(first + part * STRIDE, operations(seed, kind) + 1, PARTS * STRIDE):
        check_fault(seed, Fault(kind, nth, code))


@pytest.mark.parametrize("kind", [WRITE, SYNC])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_fault_at_every_operation_of_a_start(seed: int, kind: str, code: int) -> None:
    print(f"seed {seed}")
    nth = 1
    while check_start_fault(seed, Fault(kind, nth, code)):
        nth += 1
    assert nth > 3


def test_disk_that_lies_gives_an_older_state_or_is_told(seed: int) -> None:
    """`lie` checks each state that is taken for whole."""
    print(f"seed {seed}")
    assert len(list(lie(seed))) > 0
