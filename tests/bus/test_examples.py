"""The examples run against both brokers, and a second type checker finds nothing in them.

mypy looks at them with everything else (`make types`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import leveret
from tests.bus.nodes import Node

pytestmark = pytest.mark.compiled_only("the library is the same in both forms")
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("bus_*.py"))
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(leveret.__file__).parents[1])}
RUN_S = 300  # ends an example that hangs; a busy machine needs far more than an idle one


def test_examples_exist() -> None:
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, node: Node) -> None:
    found = subprocess.run(
        [sys.executable, "-W", "error", path, node.url],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout


def test_pyright_finds_nothing() -> None:
    pyright = shutil.which("pyright", path=str(Path(sys.executable).parent))
    if pyright is None:
        pytest.skip("pyright is not installed")
    command = [pyright, "--outputjson", "--pythonpath", sys.executable, *map(str, EXAMPLES)]
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    if not found.stdout.startswith("{"):
        pytest.skip(f"pyright cannot run here: {found.stderr[-300:]}")
    report = json.loads(found.stdout)
    assert report["summary"]["filesAnalyzed"] == len(EXAMPLES)
    assert report["generalDiagnostics"] == []
