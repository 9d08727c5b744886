"""Copies of the source tree with environments that need no network.

The packages of the Python that runs the tests stand in for downloaded ones: an environment sees the
chosen ones through a directory of links. Leveret itself is never among them.
"""

import json
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

from tools import setup_venv

ROOT = Path(__file__).resolve().parents[2]
BASE_PYTHON = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
# Everything that a clone has and a build or a start needs.
COPIED = (
    *("Makefile", "constraints.txt", "pyproject.toml", "setup.py"),
    *("README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE"),
)
COPIED_FOLDERS = ("docs", "packages", "src", "tools")


def clone(target: Path) -> Path:
    """Copy the source tree without anything that was generated in it."""
    target.mkdir()
    for name in COPIED:
        shutil.copy(ROOT / name, target / name)
    for folder in COPIED_FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / folder, target / folder, symlinks=True, ignore=ignored)
    return target


def compile_only(tree: Path, pattern: str) -> None:
    """Make the compiled set of a clone small, so that it compiles in seconds."""
    project = tree / "pyproject.toml"
    text, count = re.subn(
        r"^compiled = \[.*?^\]", f'compiled = ["{pattern}"]', project.read_text(), flags=re.M | re.S
    )
    assert count == 1
    project.write_text(text)


def environment_with_everything(tree: Path) -> None:
    """Make the .venv of a clone, as if its packages had been installed."""
    everyone = {name_of(found.name) for found in distributions() if found.name} - {"leveret"}
    make_environment(tree / ".venv", everyone)
    stamps = {
        "python": setup_venv.this_python(),
        "packages": setup_venv.digest([setup_venv.ROOT / "constraints.txt"]),
    }
    (tree / ".venv" / "leveret.json").write_text(json.dumps(stamps))


def make_environment(target: Path, packages: Iterable[str]) -> Path:
    """Make an environment that sees these packages; return its Python."""
    builder = venv.EnvBuilder(symlinks=True)
    if sys.prefix == sys.base_prefix:
        builder.create(target)
    else:  # an environment made from an environment would depend on it
        subprocess.run([BASE_PYTHON, "-m", "venv", "--without-pip", target], check=True)
    links = target / "links"
    links.mkdir()
    wanted = set(packages)
    for found in distributions():
        if found.name and name_of(found.name) in wanted:
            link_files_of(found.files or [], found.locate_file(""), links)
    libraries = next((target / "lib").glob("python3.*")) / "site-packages"
    (libraries / "links.pth").write_text(f"{links}\n")
    return target / "bin" / "python"


def link_files_of(files: Iterable[object], home: object, links: Path) -> None:
    """Link the top-level files and folders of one package."""
    for first in {Path(str(file)).parts[0] for file in files} - {"..", "__pycache__"}:
        link = links / first
        if not link.exists():
            link.symlink_to(Path(str(home)) / first)


def name_of(name: str) -> str:
    """Return the normalised name of a package."""
    return re.sub(r"[-_.]+", "-", name).lower()
