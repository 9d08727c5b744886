"""Every planted bug is found by its tests.

Each bug is put into a copy of the sources, its tests run on that copy in their own process, and the
bug is taken out again. The tests must fail by a check: an edit that does not even run would prove
nothing.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.planted.bugs import BUGS, Bug

pytestmark = pytest.mark.interpreted_only("bugs are planted into sources, which run as they are")

ROOT = Path(__file__).parents[2]
SEED = 1  # of the tests that are run: the same ones fail every time
# Errors of an edit that does not run. Storage tests fail by assertions and storage errors.
UNRUNNABLE = ("NameError", "SyntaxError", "ImportError", "AttributeError", "UnboundLocalError")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with their bytecode, which saves time."""
    return Path(shutil.copytree(ROOT / "src", tmp_path_factory.mktemp("planted") / "src"))


@contextmanager
def planted(bug: Bug, sources: Path) -> Iterator[None]:
    """Keep the bug in the copy during the block."""
    file = sources / "leveret" / bug.file
    content = file.read_text()
    assert content.count(bug.text) == 1, f"{bug.file} does not have this text once: {bug.text!r}"
    write(file, content.replace(bug.text, bug.instead))
    try:
        yield
    finally:
        write(file, content)


def write(file: Path, content: str) -> None:
    """Write a source, and remove its old bytecode."""
    file.write_text(content)
    for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        stale.unlink()


def run(sources: Path, catchers: list[str], *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--form=interpreted", f"--seed={SEED}"]
    command += ["--tb=line", "-rf", "-p", "no:cacheprovider", "-p", "pytest_timeout", *flags]
    # Without unused plugins a run takes a third of the time.
    env = {**os.environ, "PYTHONPATH": str(sources), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [*command, *catchers], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )


def test_catchers_pass_on_the_sources_as_they_are(sources: Path) -> None:
    catchers = sorted({catcher for bug in BUGS for catcher in bug.catchers})
    done = run(sources, catchers)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
    assert "xfailed" not in done.stdout


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_planted_bug_is_noticed(bug: Bug, sources: Path) -> None:
    with planted(bug, sources):
        done = run(sources, list(bug.catchers), *(["-x"] if len(bug.catchers) == 1 else []))
    assert done.returncode == 1, done.stdout + done.stderr
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    for catcher in bug.catchers:
        assert any(line.startswith(f"FAILED {catcher}") for line in failed), done.stdout
    assert not any(word in done.stdout for word in UNRUNNABLE), done.stdout
