"""Test when a node of a cluster gives memory back."""

from leveret.runtime.spare_memory import (
    BURST_BYTES,
    LONG_BURST_BYTES,
    QUIET_BYTES,
    SpareMemory,
)


class Calls:
    """Counts what the memory is asked to do, and holds what has been received."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self.done: list[str] = []
        self.memory = SpareMemory(
            lambda: self.received_bytes,
            collect=lambda: self.done.append("collect"),
            give_back=lambda: self.done.append("give back"),
        )

    def look_after(self, received_bytes: int) -> list[str]:
        """Receive bytes and look; return what was done."""
        self.received_bytes += received_bytes
        self.done = []
        self.memory.look()
        return self.done


def test_memory_is_given_back_once_after_a_burst() -> None:
    calls = Calls()
    assert calls.look_after(BURST_BYTES) == []  # it may go on
    assert calls.look_after(QUIET_BYTES - 1) == ["give back"]
    assert calls.look_after(0) == []


def test_little_traffic_gives_nothing_back_until_it_adds_up() -> None:
    calls = Calls()
    looks = BURST_BYTES // (QUIET_BYTES // 2)
    for _ in range(looks - 1):
        assert calls.look_after(QUIET_BYTES // 2) == []
    assert calls.look_after(QUIET_BYTES // 2) == ["give back"]


def test_a_long_burst_gives_memory_back_before_its_end() -> None:
    calls = Calls()
    half = LONG_BURST_BYTES // 2
    assert calls.look_after(half) == []
    assert calls.look_after(half) == ["give back"]
    assert calls.look_after(half) == []


def test_a_dropped_broker_is_collected_even_during_a_burst() -> None:
    calls = Calls()
    calls.memory.note_dropped()
    assert calls.look_after(2 * QUIET_BYTES) == ["collect", "give back"]
    assert calls.look_after(2 * QUIET_BYTES) == []


def test_a_new_connection_counts_from_zero() -> None:
    calls = Calls()
    calls.look_after(BURST_BYTES - 1)
    calls.received_bytes = 0
    assert calls.look_after(1) == ["give back"]
