"""Every planted bug is found by its tests.

Each bug is put into a copy of the sources, its tests run on that copy in their own process, and the
bug is taken out again. The tests must fail by a check: an edit that does not even run would prove
nothing.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.planted.bugs import BUGS, Bug
from tests.planted.cluster_bugs import CLUSTER_BUGS
from tests.planted.follower_bugs import FOLLOWER_BUGS

pytestmark = pytest.mark.interpreted_only("bugs are planted into sources, which run as they are")

ALL = BUGS + FOLLOWER_BUGS + CLUSTER_BUGS
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


class Runner:
    """Runs tests on the copy of the sources; `tests.planted.runner` is the other end."""

    def __init__(self, sources: Path) -> None:
        # Without unused plugins a run takes a third of the time.
        env = {**os.environ, "PYTHONPATH": str(sources), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.planted.runner"],
            cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, file: str, catchers: tuple[str, ...], *flags: str) -> tuple[int, str]:
        """Run these tests after a file was changed; return pytest's exit code and output."""
        assert self._process.stdin is not None and self._process.stdout is not None
        words = ["-q", "--form=interpreted", f"--seed={SEED}", "--tb=line", "-rf"]
        words += ["-p", "no:cacheprovider", "-p", "pytest_timeout", *flags, *catchers]
        module = f"leveret.{file.removesuffix('.py').replace('/', '.')}"
        print(json.dumps([module, words]), file=self._process.stdin, flush=True)
        code, output = json.loads(self._process.stdout.readline())
        return code, output

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def runner(sources: Path) -> Iterator[Runner]:
    runner = Runner(sources)
    yield runner
    runner.close()


def test_a_catcher_passes_on_the_copy_without_a_bug(runner: Runner) -> None:
    """The suite itself runs all of them on the sources as they are."""
    code, output = runner.run(ALL[0].file, ALL[0].catchers)
    assert code == 0, output
    assert "1 passed" in output


@pytest.mark.parametrize("bug", ALL, ids=[bug.name for bug in ALL])
def test_planted_bug_is_noticed(bug: Bug, sources: Path, runner: Runner) -> None:
    with planted(bug, sources):
        flags = ["-x"] if len(bug.catchers) == 1 else []
        code, output = runner.run(bug.file, bug.catchers, *flags)
    assert code == 1, output
    failed = [line for line in output.splitlines() if line.startswith("FAILED ")]
    for catcher in bug.catchers:
        assert any(line.startswith(f"FAILED {catcher}") for line in failed), output
    assert not any(word in output for word in UNRUNNABLE), output
