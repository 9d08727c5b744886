"""Every scripted trace prints what its file says."""

import pytest

from tests.cluster.traces.script import difference, names


@pytest.mark.parametrize("name", names())
def test_trace_plays_as_written(name: str) -> None:
    found = difference(name)
    assert not found, found
