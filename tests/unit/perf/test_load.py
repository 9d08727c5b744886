"""An impossible load is refused with all errors."""

import pytest

from leveret.errors import ConfigError
from leveret.perf.load import Load


def test_default_is_fine() -> None:
    Load().check()


def test_all_errors_are_reported() -> None:
    with pytest.raises(ConfigError) as caught:
        Load(burst=0, rate=-1, prefetch=65536).check()
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("load", "fault"),
    [
        (Load(queue_type="stream"), "prefetch"),
        (Load(ack_every=11, prefetch=10), "ack_every"),
        (Load(predeclared=True), "name"),
        (Load(rate=1, variable_rate=((1, 1.0),)), "cannot both"),
        (Load(variable_rate=((1, 0.0),)), "schedule"),
        (Load(variable_size=((-1, 1.0),)), "size"),
        (Load(sizes=()), "size"),
        (Load(seconds=0), "messages"),
        (Load(producers=0, consumers=0), "must be a producer"),
        (Load(processes=0), "processes"),
        (Load(interval_s=0), "interval_s"),
    ],
)
def test_impossible_load_is_refused(load: Load, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        load.check()


def test_load_from_json() -> None:
    load = Load.of({"port": 1, "sizes": [16, 1024], "queue_arguments": [["x-max-length", 5]]})
    assert load.sizes == (16, 1024)
    assert dict(load.queue_arguments) == {"x-max-length": 5}
    with pytest.raises(ConfigError, match="a load has no ports"):
        Load.of({"ports": 1})


def test_half_of_the_prefetch_is_acknowledged_unless_told_otherwise() -> None:
    assert [Load(prefetch=n).acks_every for n in (0, 1, 2, 200)] == [0, 1, 1, 100]
    assert Load(prefetch=200, ack_every=3).acks_every == 3


def test_persistent_messages_and_quorum_queues_need_durable_queues() -> None:
    assert Load(persistent=True).durable
    assert Load(queue_type="quorum").durable
    assert not Load(queue_type="classic").durable


def test_every_latency_counts_where_the_rate_is_set() -> None:
    assert Load(rate=2000).sample_every == 1
    assert Load().sample_every > 1
