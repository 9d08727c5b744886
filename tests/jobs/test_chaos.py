"""A short round of kills: workers and nodes die under load, and every job is done all the same."""

from pathlib import Path
from random import Random

import pytest

from tests.jobs.chaos.run import JOBS_MIN, NODE_KILLS_MIN, WORKER_KILLS_MIN, run

pytestmark = pytest.mark.compiled_only(
    "kills are about processes and the disk, the same in both forms"
)


def test_every_job_is_done_and_none_comes_back_after_its_ack(tmp_path: Path, seed: int) -> None:
    with (tmp_path / "stderr").open("w") as log:
        outcome = run(tmp_path / "data", log, Random(seed), seconds=10)
    assert outcome.faults == []
    assert outcome.node_kills >= NODE_KILLS_MIN
    assert outcome.worker_kills >= WORKER_KILLS_MIN
    assert outcome.jobs_told >= JOBS_MIN
    assert outcome.jobs_done >= outcome.jobs_told
