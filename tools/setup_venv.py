"""Makes .venv: the pinned packages and Leveret itself, compiled if a C compiler is present.

`make setup` runs it with the Python for .venv, and it needs nothing else. Options:

- --packages leaves out Leveret itself, which checks and the interpreted form do not need
- --run installs only what the broker needs; a later test run installs the rest
- --tools installs what building needs
- --wheel only builds, while `make test` installs the packages and checks the sources

Each step writes a hash of its inputs to .venv/leveret.json and is skipped while that hash is the
same, so that a repeated run takes a fraction of a second. The wheel is built in build/, which keeps
mypy's cache and the C objects: a change outside the compiled set does not compile C again.

The interpreted form of the tests needs no second environment: PYTHONPATH=src goes before the wheel.
"""

import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMPS = VENV / "leveret.json"
BUILD = ROOT / "build"
WHEELS = BUILD / "wheel"
MADE_FROM = WHEELS / "made_from"  # what the wheel in there was built from, if it was built ahead
PIP = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input", "-qq"]


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036  # this file is the first to run, on any Python
        print(f"Leveret needs Python 3.11 or newer, and {sys.executable} is {sys.version}")
        return 1
    started = time.monotonic()
    try:
        worked = wanted_step(set(sys.argv[1:]))
    except subprocess.CalledProcessError as fault:
        print(f"setup: failed: {shlex.join(fault.cmd)}", file=sys.stderr)
        return 1
    if worked:
        print(f"setup: done in {time.monotonic() - started:.0f} s")
    return 0


def wanted_step(flags: set[str]) -> bool:
    """Do the requested steps that are not done yet; return True if there were any."""
    if "--tools" in flags:
        return prepare_to_build()
    if "--wheel" in flags:
        return build_ahead()
    return set_up("--packages" in flags, "--run" in flags)


def prepare_to_build() -> bool:
    made = make_environment()
    everything = digest([ROOT / "constraints.txt"])
    if everything in (stamps().get("packages"), stamps().get("tools")):
        return made
    install_tools()
    stamp("tools", everything)
    return True


def make_environment() -> bool:
    """Make .venv unless this Python has made it."""
    if stamps().get("python") == this_python() and PYTHON.exists():
        return False
    print("setup: making .venv", flush=True)
    venv.create(VENV, clear=True, with_pip=True)
    stamp("python", this_python())
    return True


def this_python() -> str:
    return f"{platform.python_version()} {sys.base_prefix}"


def set_up(packages_only: bool, to_run: bool) -> bool:
    made = make_environment()
    wanted: dict[str, str] = {}
    everything = digest([ROOT / "constraints.txt"])
    if not to_run or stamps().get("packages") == everything:
        wanted["packages"] = everything
    else:
        wanted["needed"] = digest([ROOT / "constraints.txt", ROOT / "pyproject.toml"])
    if not packages_only:
        wanted["leveret"] = leveret_key(everything)
    todo = [step for step in wanted if stamps().get(step) != wanted[step]]
    leveret = wanted["leveret"] if "leveret" in todo else ""
    install([step for step in todo if step != "leveret"], leveret)
    for step in todo:
        stamp(step, wanted[step])
    return made or bool(todo)


def build_ahead() -> bool:
    """Build the wheel for the next set-up; .venv is not changed."""
    key = leveret_key(digest([ROOT / "constraints.txt"]))
    if stamps().get("leveret") == key or wheel_of(key) is not None:
        return False
    finish_wheel(start_wheel())
    MADE_FROM.write_text(key + this_python())
    return True


def wheel_of(key: str) -> Path | None:
    """Return the wheel that was built before from inputs with this hash."""
    if not MADE_FROM.exists() or MADE_FROM.read_text() != key + this_python():
        return None
    return next(WHEELS.glob("leveret-*.whl"), None)


def install(packages: list[str], leveret: str) -> None:
    """Install packages, and Leveret if its hash is given.

    On a fresh clone the packages are downloaded while mypyc and gcc run, which need only a few of
    them.
    """
    building = None
    if leveret and wheel_of(leveret) is None:
        if packages:
            install_tools()
        building = start_wheel()
    try:
        if "packages" in packages:
            print("setup: installing the packages of constraints.txt", flush=True)
            run([*PIP, "install", "--no-deps", "-r", "constraints.txt"])
        elif "needed" in packages:
            print("setup: installing what Leveret needs", flush=True)
            install_named(needed())
    except subprocess.CalledProcessError:
        if building is not None:
            building.terminate()
        raise
    if building is not None:
        finish_wheel(building)
    if leveret:
        install_wheel()


def install_tools() -> None:
    print("setup: installing the build tools", flush=True)
    install_named(["setuptools", "mypy", "librt", "mypy_extensions"])


def install_named(packages: list[str]) -> None:
    run([*PIP, "install", "-c", "constraints.txt", *packages])


def needed() -> list[str]:
    """Return the dependencies of a broker without extras, and a client for the first message."""
    import tomllib  # `main` reports a Python that is too old

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], "pika"]


def start_wheel() -> subprocess.Popen[bytes]:
    """Start to build the wheel."""
    if not has_compiler():
        print("setup: no C compiler or no headers of Python: this will be the pure Python form")
    print(f"setup: building Leveret{compiling()}", flush=True)
    prune_build()
    shutil.rmtree(WHEELS, ignore_errors=True)
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", str(WHEELS)]
    return subprocess.Popen([*PIP, "wheel", *options, "."], cwd=ROOT, env=environment())


def compiling() -> str:
    if os.environ.get("LEVERET_PURE") or not has_compiler():
        return ""
    return " (compiling takes minutes if the core has changed; LEVERET_PURE=1 leaves it out)"


def finish_wheel(building: subprocess.Popen[bytes]) -> None:
    if building.wait() != 0:
        raise subprocess.CalledProcessError(building.returncode, [*PIP, "wheel", "."])


def install_wheel() -> None:
    wheel = next(WHEELS.glob("leveret-*.whl"))
    run([*PIP, "install", "--force-reinstall", "--no-deps", "--no-index", str(wheel)])
    run([*PIP, "check"])
    run([str(PYTHON), "-m", "leveret", "--version"])


def prune_build() -> None:
    """Remove files that are gone from src from setuptools' build tree, and so from the wheel."""
    BUILD.mkdir(exist_ok=True)
    note, project = BUILD / "built_for", digest([ROOT / "pyproject.toml"], form_wanted())
    if not note.exists() or note.read_text() != project:
        for tree in BUILD.glob("lib*"):  # the compiled set itself may have changed
            shutil.rmtree(tree)
        note.write_text(project)
    for tree in BUILD.glob("lib*"):
        for built in tree.glob("leveret/**/*"):
            source = ROOT / "src" / built.relative_to(tree)
            if built.suffix == ".so":
                source = source.with_name(built.name.partition(".")[0] + ".py")
            if built.is_file() and not source.exists():
                built.unlink()


def leveret_key(packages: str) -> str:
    package = [p for p in (ROOT / "src").rglob("*") if p.is_file() and p.suffix != ".pyc"]
    return digest([ROOT / "pyproject.toml", ROOT / "setup.py", *package], packages + form_wanted())


def form_wanted() -> str:
    return f"pure={os.environ.get('LEVERET_PURE', '')} compiler={has_compiler()}"


def has_compiler() -> bool:
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return bool(compiler) and shutil.which(compiler[0]) is not None and header.exists()


def digest(paths: Iterable[Path], extra: str = "") -> str:
    """Return one hash over names and contents, the same for every location of the tree."""
    total = hashlib.sha256(extra.encode())
    for path in sorted(paths):
        total.update(str(path.relative_to(ROOT)).encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def stamps() -> dict[str, str]:
    if not STAMPS.exists():
        return {}
    found: dict[str, str] = json.loads(STAMPS.read_text())
    return found


def stamp(step: str, key: str) -> None:
    STAMPS.write_text(json.dumps({**stamps(), step: key}, indent=1))


def run(command: list[str]) -> None:
    subprocess.run(command, cwd=ROOT, env=environment(), check=True)


def environment() -> dict[str, str]:
    """Return the environment without PYTHONPATH: sources must not hide the installed package."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}


if __name__ == "__main__":
    raise SystemExit(main())
