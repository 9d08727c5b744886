"""`kill -9` of a broker under load, again and again: what was confirmed is there."""

from pathlib import Path

import pytest

from tools.chaos import run

KILLS = 20


@pytest.mark.timeout(180)
def test_twenty_kills_lose_and_invent_nothing(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    with (tmp_path / "stderr").open("w+") as log:
        outcome = run(tmp_path / "data", KILLS, seed, log)
        log.seek(0)
        said = log.read()
    print(outcome)
    assert "Traceback" not in said, said
    assert outcome.faults == []
    assert outcome.balance == 0
    assert outcome.confirmed > KILLS
