"""A load that makes no sense is refused with every fault."""

import pytest

from leveret.errors import ConfigError
from leveret.perf.load import Load


def test_default_is_fine() -> None:
    Load().check()


def test_every_fault_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        Load(burst=0, rate=-1, prefetch=65536).check()
    assert len(str(caught.value).splitlines()) == 3


def test_persistent_messages_and_quorum_queues_need_durable_queues() -> None:
    assert Load(persistent=True).durable
    assert Load(queue_type="quorum").durable
    assert not Load(queue_type="classic").durable


def test_every_latency_counts_where_the_rate_is_set() -> None:
    assert Load(rate=2000).sample_every == 1
    assert Load().sample_every > 1
