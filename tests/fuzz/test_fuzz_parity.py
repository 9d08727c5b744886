"""The same spoiled conversations get byte for byte the same answers, interpreted and compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.driver import digests

ROOT = Path(__file__).parents[2]
COUNT = 1500  # connections


def other_form(compiled: bool, seed: int, count: int) -> tuple[str, list[str]]:
    """The name of the form that a child process finds, and its digests."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if compiled:
        env["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.driver", str(seed), str(count)],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return done.stderr.strip().rpartition("\n")[2], []
    form, *found = done.stdout.split()
    return form, found


@pytest.mark.timeout(600)
def test_both_forms_answer_alike(seed: int, compiled: bool) -> None:
    seed = int(os.environ.get("LEVERET_FUZZ_SEED") or seed)
    print(f"LEVERET_FUZZ_SEED={seed}")
    form, found = other_form(compiled, seed, 1)
    if not compiled and (form == "interpreted" or "No module named 'leveret'" in form):
        pytest.skip("no compiled form is installed")
    assert form == ("interpreted" if compiled else "compiled")
    form, found = other_form(compiled, seed, COUNT)
    here = digests(seed, COUNT)
    assert len(found) == COUNT, form
    differing = [at + 1 for at in range(COUNT) if here[at] != found[at]]
    assert differing == [], f"connection {differing[0]} of seed {seed} differs first"
