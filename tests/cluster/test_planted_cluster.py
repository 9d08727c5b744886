"""Every bug planted into Raft is found by its test.

Each bug is put into a copy of the sources, and its test runs on that copy in its own process. The
test must fail by a check: an edit that does not even run would prove nothing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.planted_bugs import BUGS, SCHEDULES, SEEDS_MAX, Bug

pytestmark = pytest.mark.interpreted_only("bugs are planted into sources, which run as they are")

ROOT = Path(__file__).parents[2]
# What the cluster needs of the package.
PARTS = ("__init__.py", "errors.py")


def planted(bug: Bug, into: Path) -> Path:
    package = ROOT / "src" / "leveret"
    copy = into / "leveret"
    shutil.copytree(package / "cluster", copy / "cluster")
    for part in PARTS:
        (copy / part).parent.mkdir(exist_ok=True)
        shutil.copy(package / part, copy / part)
    file = copy / "cluster" / "raft" / bug.file
    content = file.read_text()
    assert content.count(bug.text) == 1, f"{bug.file} does not have this text once: {bug.text!r}"
    file.write_text(content.replace(bug.text, bug.instead))
    for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        stale.unlink()
    return into


def run(sources: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(sources)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_planted_bug_is_noticed(bug: Bug, tmp_path: Path) -> None:
    sources = planted(bug, tmp_path)
    if bug.catcher in SCHEDULES:
        flags = ("--schedule", bug.catcher, "--seeds", str(SEEDS_MAX))
        done = run(sources, "tests.cluster.simulation", *flags)
        noticed = [f"FAILED by {rule}:" for rule in bug.rules]
    else:
        done = run(sources, "tests.cluster.traces", bug.catcher)
        noticed = [f"{bug.catcher} FAILED"]
    assert done.returncode == 1, done.stdout + done.stderr
    assert any(text in done.stdout for text in noticed), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
