"""The wheel in an empty environment that has nothing but its declared dependencies.

The packages are linked from the environment of the tests, so the test needs no network. A package
that Leveret imports without declaring it is missing there.
"""

import re
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from leveret import __version__
from tests.install.clones import ROOT, clone, make_environment, name_of

READY = re.compile(r"leveret ready amqp=127\.0\.0\.1:\d+ http=127\.0\.0\.1:(\d+)\n")
IMPORTS = {
    "": ["leveret.cli.app", "leveret.runtime.serve", "leveret.testing", "leveret.jobs"],
    "arrow": ["leveret.arrow", "pyarrow"],
    "bus": ["leveret.bus"],
    "jobs": ["leveret.job_service.shards", "asyncpg", "redis"],
    "oauth2": ["cryptography"],
    "otel": ["opentelemetry.sdk"],
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the pure wheel from a fresh clone."""
    home = tmp_path_factory.mktemp("wheel")
    tree = clone(home / "leveret")
    command = [sys.executable, "-m", "pip", "-q", "wheel", "--no-build-isolation", "--no-deps"]
    subprocess.run(
        [*command, "--no-index", "--wheel-dir", str(home), str(tree)],
        check=True,
        env={"LEVERET_PURE": "1", "PATH": "/usr/bin:/bin"},
    )
    [built] = home.glob("leveret-*.whl")
    return built


def dependencies(requirements: list[str], extras: set[str]) -> set[str]:
    """Return the names of all packages that these requirements need, directly or not."""
    found: set[str] = set()
    todo = [(text, extras) for text in requirements]
    while todo:
        text, wanted = todo.pop()
        need = Requirement(text)
        contexts = [{"extra": extra} for extra in ("", *wanted)]
        if need.marker is not None and not any(need.marker.evaluate(c) for c in contexts):
            continue
        if name_of(need.name) in found and not need.extras:
            continue
        found.add(name_of(need.name))
        try:
            todo += [(more, set(need.extras)) for more in requires(need.name) or []]
        except PackageNotFoundError as missing:
            raise AssertionError(f"{need} is not among the packages of the tests") from missing
    return found


def metadata(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as packed:
        [name] = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        return packed.read(name).decode().splitlines()


def test_metadata_is_complete(wheel: Path) -> None:
    lines = metadata(wheel)
    assert f"Version: {__version__}" in lines
    assert "License-Expression: MIT" in lines
    assert "License-File: LICENSE" in lines
    assert "Requires-Python: >=3.11" in lines
    for release in ("3.11", "3.12", "3.13"):
        assert f"Classifier: Programming Language :: Python :: {release}" in lines


def test_wheel_contains_the_documents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        found = {name for name in packed.namelist() if name.startswith("leveret/http/manual/")}
        index = packed.read("leveret/http/manual/docs/index.md").decode()
    assert index.startswith("# Documents")
    wanted = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/*/*.md"), ROOT / "README.md"]
    assert {f"leveret/http/manual/{p.relative_to(ROOT).as_posix()}" for p in wanted} <= found


@pytest.mark.parametrize("extra", IMPORTS)
def test_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path, extra: str) -> None:
    prefix = "Requires-Dist: "
    declared = [line.removeprefix(prefix) for line in metadata(wheel) if line.startswith(prefix)]
    python = make_environment(tmp_path / "venv", {*dependencies(declared, {extra} - {""}), "pip"})
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q"]
    # With --no-index pip fails if a declared dependency is missing.
    named = f"leveret[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    subprocess.run([*pip, "install", "--no-compile", "--no-index", named], check=True, env=clean)
    subprocess.run([*pip, "check"], check=True, env=clean)
    imports = "; ".join(f"import {name}" for name in IMPORTS[extra])
    subprocess.run([str(python), "-c", imports], check=True, env=clean, cwd=tmp_path)
    if extra:
        return
    command = str(python.with_name("leveret"))
    done = subprocess.run([command, "--version"], check=True, env=clean, capture_output=True)
    assert done.stdout.decode().startswith(f"leveret {__version__} (pure Python")
    ports = ["--amqp-port", "0", "--http-port", "0"]
    serve = [command, "serve", *ports, "--data", str(tmp_path / "data")]
    with subprocess.Popen(serve, env=clean, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            ready = READY.fullmatch(broker.stdout.readline())
            assert ready is not None
            url = f"http://guest:guest@127.0.0.1:{ready[1]}"
            asked = [command, "ctl", "status", "--url", url]
            subprocess.run(asked, check=True, env=clean, stdout=subprocess.PIPE)
        finally:
            broker.terminate()
        assert broker.wait(timeout=60) == 0
