"""The two forms of Leveret: how much to try in each, and what a module prints in the other one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leveret import build_info

ROOT = Path(__file__).parents[1]


def volume(whole: int, of_sources: int) -> int:
    """How many rounds of a random test to run.

    All of them in the compiled form, which is quick; the first ones on the sources, which are
    many times slower, and where the same faults would show.
    """
    return whole if build_info.is_compiled() else of_sources


def in_other_form(compiled: bool, module: str, *arguments: int) -> list[str]:
    """The words that `python -m module` prints in the other form, but for the first: its name.

    Skips the test where only the sources are there.
    """
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if compiled:
        env["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if not compiled and "No module named 'leveret'" in done.stderr:
        pytest.skip("no compiled form is installed")
    assert done.returncode == 0, done.stderr
    form, *words = done.stdout.split()
    if not compiled and form == "interpreted":
        pytest.skip("no compiled form is installed")
    assert form == ("interpreted" if compiled else "compiled")
    return words
