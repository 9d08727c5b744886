"""Counts instructions: runs the driver under valgrind's callgrind."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tools.guard.paths import PATHS

ROOT: Final = Path(__file__).resolve().parents[2]
_DRIVER_S: Final = 600.0  # many times what it takes
_TOTALS: Final = re.compile(rb"^totals: (\d+)$", re.MULTILINE)


class CannotCountError(Exception):
    """Instructions cannot be counted here; the text says why."""


def why_not() -> str:
    """Return why instructions cannot be counted here; empty if they can."""
    return "" if shutil.which("valgrind") else "valgrind is not installed"


def count() -> dict[str, float]:
    """Return the instructions per message of each path."""
    with tempfile.TemporaryDirectory(prefix="leveret-guard-") as directory:
        _run(Path(directory) / "counts")
        totals = [_total(part) for part in _parts(Path(directory))]
    # The last part holds the counts after the last mark.
    if len(totals) != 2 * len(PATHS) + 1:
        raise CannotCountError(f"callgrind wrote {len(totals)} parts for {len(PATHS)} paths")
    return {
        name: totals[2 * index + 1] / make.messages
        for index, (name, make) in enumerate(PATHS.items())
    }


def _run(out: Path) -> None:
    command = ["valgrind", "--tool=callgrind", "--dump-before=getpgid"]
    command += [f"--callgrind-out-file={out}", sys.executable, "-m", "tools.guard.driver"]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_DRIVER_S,
    )
    if done.returncode != 0:
        raise CannotCountError(f"the driver failed:\n{done.stderr[-2000:]}")


def _parts(directory: Path) -> list[Path]:
    """Return callgrind's output files in order: counts.1, counts.2 … and counts at the end."""
    numbered = [part for part in directory.iterdir() if part.suffix[1:].isdecimal()]
    numbered.sort(key=lambda part: int(part.suffix[1:]))
    return [*numbered, directory / "counts"]


def _total(part: Path) -> int:
    found = _TOTALS.search(part.read_bytes())
    if found is None:
        raise CannotCountError(f"{part.name} has no total")
    return int(found[1])
