"""Many queues and many waiting messages: all there after `kill -9`, and not all in memory.

`make scale` does the same with ten thousand queues and a million messages, and prints the figures.
"""

from pathlib import Path

from tools.scale import BODY_BYTES, measure_messages, measure_queues

QUEUES = 1_000
MESSAGES = 60_000
START_S = 60.0  # an eightieth of this is usual; machines that run tests are busy


def test_queues_are_all_there_after_a_kill(tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("w") as log:
        found = measure_queues(tmp_path / "data", QUEUES, log)
    print(found)
    assert found.found == QUEUES
    assert found.restart_s < START_S


def test_waiting_messages_are_all_there_after_a_kill_and_most_are_not_in_memory(
    tmp_path: Path,
) -> None:
    with (tmp_path / "stderr").open("w") as log:
        found = measure_messages(tmp_path / "data", MESSAGES, log)
    print(found)
    assert found.found == MESSAGES
    assert found.restart_s < START_S
    bodies_mb = MESSAGES * BODY_BYTES / 1e6
    assert found.memory_mb - found.before_mb < 0.75 * bodies_mb
    assert found.restarted_mb - found.before_mb < 0.25 * bodies_mb
    assert found.drained_mb - found.before_mb < 0.75 * bodies_mb
