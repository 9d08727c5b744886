"""Repeated `kill -9` of a broker with many connections: no confirmed message is lost."""

from pathlib import Path

import pytest

from tools.chaos.run import run, tracebacks

pytestmark = pytest.mark.compiled_only(
    "both forms write the same bytes, and tests/simulation lets both lose their power anywhere"
)

KILLS = 8  # `make chaos` has more


def test_kills_lose_and_invent_nothing(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    with (tmp_path / "stderr").open("w+") as log:
        outcome = run(tmp_path / "data", KILLS, seed, log)
        log.seek(0)
        faults = tracebacks(log.read())
    print(outcome)
    assert not faults, "\n".join(faults)
    assert outcome.faults == []
    assert (outcome.lost, outcome.invented, outcome.balance) == (0, 0, 0)
    assert outcome.kills >= KILLS
    # It was a test of something: much was confirmed, and log files came and went.
    assert outcome.confirmed > 10 * KILLS
    assert outcome.commits > 0
    assert outcome.files > 1.5 * KILLS
    assert outcome.files_left < outcome.files / 2
