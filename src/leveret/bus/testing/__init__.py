"""Fakes of the event bus for tests.

`FakeBus` is a `Bus` in memory; a `FakeHub` connects several of them.
"""

from leveret.bus.testing.fake_bus import FakeBus, FakeHub

__all__ = ["FakeBus", "FakeHub"]
