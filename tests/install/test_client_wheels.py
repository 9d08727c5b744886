"""The event bus and the client of jobs, each installed alone into an empty environment."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from leveret import __version__
from tests.install.clones import clone, make_environment
from tests.install.test_wheel import dependencies, metadata

BUS = """
import asyncio
from dataclasses import dataclass
import leveret.bus.webhook.webhook
from leveret.bus import fanout
from leveret.bus.testing import FakeBus

@dataclass
class Placed:
    number: int

async def main():
    bus = FakeBus(fanout.layout("shop-billing"))
    bus.on(Placed)(lambda event: print(event))
    async with bus:
        await bus.publish(Placed(1))

asyncio.run(main())
"""
JOBS = "from leveret.jobs import *; print('Placed(number=1)')"
# Name, requirements at most, parts of the broker that it may contain, program.
PACKAGES = [
    ("leveret-bus", {"aio-pika", "msgspec"}, {"bus", "http_client"}, BUS),
    ("leveret-jobs", {"msgspec"}, {"jobs", "http_client"}, JOBS),
]


@pytest.mark.parametrize(("name", "needs", "parts", "program"), PACKAGES)
def test_package_works_alone(
    tmp_path: Path, name: str, needs: set[str], parts: set[str], program: str
) -> None:
    tree = clone(tmp_path / "clone")
    command = [sys.executable, "-m", "pip", "-q", "wheel", "--no-build-isolation", "--no-deps"]
    command += ["--no-index", "--wheel-dir", str(tmp_path), str(tree / "packages" / name)]
    subprocess.run(command, check=True, env={"PATH": "/usr/bin:/bin"})
    [wheel] = tmp_path.glob("*-py3-none-any.whl")
    lines = metadata(wheel)
    assert f"Version: {__version__}" in lines
    with zipfile.ZipFile(wheel) as packed:
        files = [file.split("/") for file in packed.namelist() if file.startswith("leveret/")]
    assert {file[1] for file in files if len(file) > 2} == parts
    assert ["leveret", "py.typed"] in files
    assert ["leveret", "checksum.py"] not in files
    prefix = "Requires-Dist: "
    declared = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
    always = [line for line in declared if "extra ==" not in line]
    assert {line.partition(">")[0] for line in always} == needs
    python = make_environment(tmp_path / "venv", {*dependencies(always, set()), "pip"})
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "install", "--no-index", str(wheel)], check=True, env=clean)
    subprocess.run([*pip, "check"], check=True, env=clean)
    done = subprocess.run(
        [str(python), "-c", program], check=True, env=clean, cwd=tmp_path, capture_output=True
    )
    assert done.stdout == b"Placed(number=1)\n"
