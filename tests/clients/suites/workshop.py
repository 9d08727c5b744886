"""Where suites are fetched, prepared and run: build/clients, one folder per suite.

Everything comes from package archives at run time (source distributions, npm packages, Debian
source packages) or from a folder that the caller names; nothing of it is committed. A suite that
cannot be had raises `UnavailableError` with the sentence that the report prints.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.clients.process import Child

ROOT: Final = Path(__file__).parents[3]
HERE: Final = Path(__file__).parent
FETCH_TIMEOUT_S: Final = 600


class UnavailableError(Exception):
    """The suite or something it needs cannot be had on this machine."""


class Workshop:
    """The build folder, its virtualenv and the folders that the caller gave for suites."""

    def __init__(self, given: Mapping[str, Path]) -> None:
        self.build = ROOT / "build" / "clients"
        self.build.mkdir(parents=True, exist_ok=True)
        self._given = given

    def given(self, suite: str) -> Path | None:
        """The folder that the caller named for this suite."""
        return self._given.get(suite)

    def copy(self, source: Path, suite: str) -> Path:
        """A fresh copy that the suite's run may change."""
        copy = self.build / suite
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy, symlinks=True)
        return copy

    def python(self) -> Path:
        """The interpreter of a virtualenv with the Python clients and what their suites need."""
        home = self.build / "venv"
        python = home / "bin" / "python"
        wanted = (HERE / "requirements.txt").read_text() + constraints_text()
        stamp = home / "installed.txt"
        if not stamp.exists() or stamp.read_text() != wanted:
            venv.create(home, clear=True, with_pip=True)
            needs: list[str | Path] = [
                "-r",
                HERE / "requirements.txt",
                "-c",
                ROOT / "constraints.txt",
            ]
            self.fetch([python, "-m", "pip", "install", "-q", *needs])
            stamp.write_text(wanted)
        return python

    def sdist(self, package: str, version: str) -> Path:
        """The unpacked source distribution of a Python package."""
        folder = self.build / "sdist"
        archive = f"{package.replace('-', '_')}-{version}"
        if not (folder / archive).exists():
            source = ["--no-deps", "--no-binary", package, f"{package}=={version}"]
            self.fetch([self.python(), "-m", "pip", "download", "-q", "-d", folder, *source])
            unpack(folder / f"{archive}.tar.gz", folder)
        return folder / archive

    def npm_package(self, package: str, version: str) -> Path:
        """The unpacked archive of an npm package."""
        folder = self.build / "npm" / f"{package}-{version}"
        if not folder.exists():
            npm = program("npm", "npm")
            folder.parent.mkdir(parents=True, exist_ok=True)
            destination: list[str | Path] = ["--pack-destination", folder.parent]
            self.fetch([npm, "pack", "--loglevel=error", *destination, f"{package}@{version}"])
            unpack(folder.parent / f"{package}-{version}.tgz", folder)
        return folder / "package"

    def debian_source(self, package: str, version: str) -> Path:
        """The unpacked Debian source package, without changing the machine's own sources."""
        folder = self.build / "debian"
        unpacked = folder / f"{package}-{version}"
        if not unpacked.exists():
            program("dpkg-source", "dpkg-dev")
            for part in ("lists/partial", "cache/archives/partial"):
                (folder / part).mkdir(parents=True, exist_ok=True)
            sources = folder / "sources.list"
            sources.write_text(debian_sources())
            own = {
                "Dir::Etc::sourcelist": sources,
                "Dir::Etc::sourceparts": "-",
                "Dir::State::lists": folder / "lists",
                "Dir::Cache": folder / "cache",
            }
            options = [part for key, value in own.items() for part in ("-o", f"{key}={value}")]
            self.fetch(["apt-get", *options, "update"], cwd=folder)
            self.fetch(["apt-get", *options, "source", package], cwd=folder)
        return unpacked

    def debian_packages(self, *packages: str) -> Path:
        """The files of Debian packages, unpacked into one folder and not installed."""
        folder = self.build / "debian-packages"
        program("dpkg", "dpkg")
        for package in packages:
            if not (folder / package).exists():
                (folder / package).mkdir(parents=True)
                self.fetch(["apt-get", "download", package], cwd=folder / package)
            archive = next((folder / package).glob("*.deb"), None)
            if archive is None:
                raise UnavailableError(f"apt-get did not download {package}")
            self.fetch(["dpkg", "-x", archive, folder / "root"])
        return folder / "root"

    def fetch(self, command: Sequence[str | Path], cwd: Path | None = None) -> None:
        """Run a command that downloads; its last line is the reason when it fails."""
        words = [str(word) for word in command]
        try:
            done = subprocess.run(
                words, cwd=cwd, capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnavailableError(f"{words[0]} failed: {error}") from error
        if done.returncode != 0:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise UnavailableError(f"{Path(words[0]).name} failed: {lines[-1] if lines else '?'}")

    def run(
        self,
        log: str,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str],
        cwd: Path,
        limit_s: int,
    ) -> str:
        """Run a part of a suite until it ends or its time is over; the log gets its output."""
        child = Child(command, env=env, cwd=cwd)
        try:
            child.wait(limit_s)
        except AssertionError:
            print(f"  stopped after {limit_s} s; what it had not reached counts as failed")
        finally:
            child.kill()
        with (self.build / f"{log}.log").open("a") as file:
            file.write(child.output())
        return child.output()


def program(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise UnavailableError(f"{name} is not installed (Debian's package {package})")
    return path


def pinned_version(package: str) -> str:
    """The version of a Python package in constraints.txt."""
    for line in constraints_text().splitlines():
        name, _, version = line.partition("==")
        if name.strip().lower() == package:
            return version.partition(";")[0].strip()
    raise UnavailableError(f"{package} is not in constraints.txt")


def constraints_text() -> str:
    return (ROOT / "constraints.txt").read_text()


def debian_sources() -> str:
    """A deb-src line for each archive that the machine already gets its packages from."""
    wanted = ["--format", "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)"]
    targets = subprocess.run(
        [program("apt-get", "apt"), "indextargets", *wanted, "Identifier: Packages"],
        capture_output=True,
        text=True,
        check=True,
    )
    return targets.stdout


def unpack(archive: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as files:
        if hasattr(tarfile, "data_filter"):  # since Python 3.11.4
            files.extractall(folder, filter="data")
        else:
            files.extractall(folder)
