"""Makes .venv: the pinned packages and Leveret itself, compiled if a C compiler is present.

`make setup` runs it with the Python for .venv, and it needs nothing else. Options:

- --packages leaves out Leveret itself, which checks and the interpreted form do not need
- --tools installs what building needs
- --wheel only builds, while `make test` installs the packages and checks the sources
- --run PID prepares `make run`: only what the broker needs, and the sources if the compiled form is
  not built yet. It leaves a process that builds the compiled form for the next start.
- --background PID is that process. It ends when the broker, which has this process id, ends.

Each step writes a hash of its inputs to .venv/leveret.json and is skipped while that hash is the
same, so that a repeated run takes a fraction of a second. The wheel is built in build/, which keeps
mypy's cache and the C objects: a change outside the compiled set does not compile C again.

Leveret is not copied over an older one. Each wheel is unpacked into a directory of its own, and
`leveret.pth` says which directory Python uses. Replacing that file is atomic: a program that runs
keeps its files, and the next one gets the new ones.

The interpreted form of the tests needs no second environment: PYTHONPATH=src goes before the wheel.
"""

import hashlib
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMPS = VENV / "leveret.json"
BUILD = ROOT / "build"
WHEELS = BUILD / "wheel"
MADE_FROM = WHEELS / "made_from"  # what the wheel in there was built from
SOURCES = ROOT / "src"
FORMS = VENV / "leveret"  # unpacked wheels, one directory for each
FORMS_KEPT = 3  # the newest ones: programs that run may still import from an older one
LOCK = BUILD / "lock"  # held by the process that builds
PROGRESS = BUILD / "progress"  # setup.py writes into it how many C files are compiled
BACKGROUND_NICE = 19
# Worker processes of `leveret perf` import the file, and must not run the command again.
COMMAND = """\
import sys

from leveret.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
"""
WATCH_S = 1.0  # time between two looks at the progress, and at the broker that runs meanwhile
PIP = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input", "-qq"]


class BrokerEndedError(Exception):
    """The broker has stopped, and the build in its background with it."""


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036  # this file is the first to run, on any Python
        print(f"Leveret needs Python 3.11 or newer, and {sys.executable} is {sys.version}")
        return 1
    started = time.monotonic()
    try:
        worked = wanted_step(sys.argv[1:])
    except subprocess.CalledProcessError as fault:
        print(f"setup: failed: {shlex.join(fault.cmd)}", file=sys.stderr)
        return 1
    if worked:
        print(f"setup: done in {time.monotonic() - started:.0f} s", flush=True)
    return 0


def wanted_step(words: list[str]) -> bool:
    """Do the requested steps that are not done yet; return True if there were any."""
    match words:
        case ["--tools"]:
            return prepare_to_build()
        case ["--wheel"]:
            return build_ahead()
        case ["--run", broker]:
            return prepare_to_run(broker)
        case ["--background", broker]:
            return build_for_next_start(int(broker))
        case _:
            return set_up(packages_only="--packages" in words)


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


def set_up(packages_only: bool) -> bool:
    made = make_environment()
    everything = digest([ROOT / "constraints.txt"])
    wants_packages = stamps().get("packages") != everything
    key = leveret_key(everything)
    wants_leveret = not packages_only and not is_installed(key)
    install(wants_packages, key if wants_leveret else "")
    if wants_packages:
        stamp("packages", everything)
    return made or wants_packages or wants_leveret


def prepare_to_run(broker: str) -> bool:
    """Install what the broker needs; start the build of the compiled form if it is missing."""
    made = make_environment()
    everything = digest([ROOT / "constraints.txt"])
    needed_now = digest([ROOT / "constraints.txt", ROOT / "pyproject.toml"])
    if stamps().get("packages") != everything and stamps().get("needed") != needed_now:
        print("setup: installing what Leveret needs", flush=True)
        install_named([*needed(), "--no-compile"])  # Python compiles the modules that it imports
        stamp("needed", needed_now)
        made = True
    key = leveret_key(everything)
    if is_installed(key):
        return made
    if wheel_of(key) is not None:
        install_wheel(key)
        return True
    use(SOURCES)
    if os.environ.get("LEVERET_PURE"):
        return made
    print("setup: starting interpreted; the compiled form is built meanwhile", flush=True)
    command = [sys.executable, __file__, "--background", broker]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    return made


def build_for_next_start(broker: int) -> bool:
    """Build and install the compiled form with the CPU time that nobody else wants."""
    os.nice(BACKGROUND_NICE)
    lock = lock_build(wait=False)
    if lock is None:
        return False  # another process builds
    try:
        run(["tools/system_packages.sh", sys.executable, "build"])
        if not has_compiler():
            print("setup: no C compiler or no headers of Python: Leveret stays interpreted")
            return False
        key = leveret_key(digest([ROOT / "constraints.txt"]))
        prepare_to_build()
        building = start_wheel()
        finish_wheel(building, key, broker)
        install_wheel(key)
    except BrokerEndedError:
        return False
    except subprocess.CalledProcessError as fault:
        print(f"setup: not compiled, the broker goes on interpreted: {shlex.join(fault.cmd)}")
        return False
    print("setup: compiled; used from the next start", flush=True)
    return False


def build_ahead() -> bool:
    """Build the wheel for the next set-up; .venv is not changed."""
    key = leveret_key(digest([ROOT / "constraints.txt"]))
    if is_installed(key):
        return False
    lock = lock_build(wait=True)
    if wheel_of(key) is not None:
        return False
    finish_wheel(start_wheel(), key)
    assert lock is not None, "waited for"
    return True


def lock_build(wait: bool) -> IO[str] | None:
    """Return the lock of the build, held until this process ends; None if another one holds it."""
    BUILD.mkdir(exist_ok=True)
    lock = LOCK.open("w")
    try:
        import fcntl
    except ImportError:  # Windows has no such lock
        return lock
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not wait:
            lock.close()
            return None
        print("setup: waiting for the build of another process", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def wheel_of(key: str) -> Path | None:
    """Return the wheel that was built before from inputs with this hash."""
    if not MADE_FROM.exists() or MADE_FROM.read_text() != key + this_python():
        return None
    return next(WHEELS.glob("leveret-*.whl"), None)


def install(wants_packages: bool, leveret: str) -> None:
    """Install packages if they are wanted, and Leveret if its hash is given.

    On a fresh clone the packages are downloaded while mypyc and gcc run, which need only a few of
    them.
    """
    building = None
    if leveret:
        lock = lock_build(wait=True)
        assert lock is not None, "waited for"
        if wheel_of(leveret) is None:
            if wants_packages:
                install_tools()
            building = start_wheel()
    try:
        if wants_packages:
            print("setup: installing the packages of constraints.txt", flush=True)
            # Python compiles the modules that it imports: a fifth of the 8,000 that are installed.
            run([*PIP, "install", "--no-deps", "--no-compile", "-r", "constraints.txt"])
    except subprocess.CalledProcessError:
        if building is not None:
            stop_build(building)
        raise
    if building is not None:
        finish_wheel(building, leveret)
    if leveret:
        install_wheel(leveret)


def install_tools() -> None:
    print("setup: installing the build tools", flush=True)
    install_named(["setuptools", "mypy", "librt", "mypy_extensions", "msgspec"])


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
    PROGRESS.unlink(missing_ok=True)
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", str(WHEELS)]
    wanted = {**environment(), "LEVERET_BUILD_PROGRESS": str(PROGRESS)}
    # A process group of its own: `stop_build` ends the compilers too.
    command = [*PIP, "wheel", *options, "."]
    return subprocess.Popen(command, cwd=ROOT, env=wanted, start_new_session=True)


def compiling() -> str:
    if os.environ.get("LEVERET_PURE") or not has_compiler():
        return ""
    return " (compiling takes minutes if the core has changed; LEVERET_PURE=1 leaves it out)"


def finish_wheel(building: subprocess.Popen[bytes], key: str, broker: int = 0) -> None:
    """Wait for the wheel and note its inputs. With `broker`, give up when that process ends."""
    shown = ""
    code: int | None = None
    try:
        while code is None:
            try:
                code = building.wait(WATCH_S)
            except subprocess.TimeoutExpired:
                if broker and not is_alive(broker):
                    raise BrokerEndedError from None
                shown = shown if broker else show_progress(shown)
    except BaseException:  # Ctrl+C too: no compiler stays behind
        stop_build(building)
        raise
    if code != 0:
        raise subprocess.CalledProcessError(code, [*PIP, "wheel", "."])
    if leveret_key(digest([ROOT / "constraints.txt"])) == key:  # the sources are still the same
        MADE_FROM.write_text(key + this_python())


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def stop_build(building: subprocess.Popen[bytes]) -> None:
    if os.name == "nt":
        building.terminate()
    else:
        os.killpg(building.pid, signal.SIGTERM)
    building.wait()


def show_progress(shown: str) -> str:
    """Print how many C files are compiled, if that has changed; return the text."""
    text = PROGRESS.read_text() if PROGRESS.exists() else ""
    if not text or text == shown:
        return shown
    done, total = (int(number) for number in text.split())
    if sys.stdout.isatty():
        print(f"\rsetup: compiling C: {done} of {total} files", end="\n" * (done == total))
        sys.stdout.flush()
    elif quarter(text) != quarter(shown):
        print(f"setup: compiling C: {done} of {total} files", flush=True)
    return text


def quarter(text: str) -> int:
    """Return how many quarters of the files are compiled: a log gets one line for each."""
    done, total = (int(number) for number in (text or "0 1").split())
    return 4 * done // total


def install_wheel(key: str) -> None:
    """Unpack the wheel, and let Python use it from now on."""
    wheel = next(WHEELS.glob("leveret-*.whl"))
    target, half = FORMS / key[:16], FORMS / f"{key[:16]}.half"
    shutil.rmtree(half, ignore_errors=True)
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(half)
    shutil.rmtree(target, ignore_errors=True)
    half.rename(target)
    use(target)
    stamp("leveret", key)
    run([*PIP, "check"])
    run([str(PYTHON), "-m", "leveret", "--version"])
    forms = sorted(FORMS.iterdir(), key=lambda form: form.stat().st_mtime, reverse=True)
    for old in forms[FORMS_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def is_installed(key: str) -> bool:
    """Return True if Python uses the wheel that was built from inputs with this hash."""
    target = FORMS / key[:16]
    chosen = path_file()
    return (
        stamps().get("leveret") == key
        and target.exists()
        and chosen.exists()
        and (chosen.read_text().strip() == str(target))
    )


def use(directory: Path) -> None:
    """Let all programs of .venv that start from now on take Leveret from this directory."""
    if any(packages().glob("leveret-*.dist-info")):  # it would come first
        run([*PIP, "uninstall", "-y", "leveret"])
    replace(path_file(), f"{directory}\n")
    if os.name != "nt":
        command = PYTHON.with_name("leveret")
        replace(command, f"#!{PYTHON}\n{COMMAND}")
        command.chmod(0o755)


def replace(path: Path, text: str) -> None:
    """Write a file in one step."""
    half = path.with_name(f"{path.name}.half")
    half.write_text(text)
    half.replace(path)


def packages() -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(VENV)}))


def path_file() -> Path:
    return packages() / "leveret.pth"


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
    # Tests may run meanwhile and write bytecode.
    found = (p for p in (ROOT / "src").rglob("*") if "__pycache__" not in p.parts)
    # Documents are links. A change of theirs alone does not compile everything again.
    package = [p for p in found if p.is_file() and not p.is_symlink()]
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
