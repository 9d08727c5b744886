"""A real broker inside a test: in memory, on a free port, with a clock that the test can move.

    from leveret.testing import ManualClock, broker

    def test_orders_expire() -> None:
        clock = ManualClock()
        with broker(clock=clock) as server:
            connect(server.url)                   # amqp://guest:guest@127.0.0.1:PORT/
            ...                                   # any AMQP client
            clock.advance(minutes=5)

`cluster(3)` runs three real nodes as processes. The test may kill them, and cut them off from each
other.

With pytest, `pytest_plugins = ["leveret.testing.pytest_plugin"]` in a conftest.py gives the
fixtures `leveret_broker` and `leveret_clock`, which do the same.
"""

from leveret.testing.broker import RunningBroker, broker
from leveret.testing.clock import ManualClock
from leveret.testing.cluster import RunningCluster, cluster

__all__ = ["ManualClock", "RunningBroker", "RunningCluster", "broker", "cluster"]
