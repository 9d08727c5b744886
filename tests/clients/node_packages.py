"""Packages of node that tests use, installed once by npm into build/node."""

from __future__ import annotations

import fcntl
import json
import subprocess
from pathlib import Path

from tests.clients.tools import give_up, require_program

BUILD = Path(__file__).parents[2] / "build" / "node"
INSTALL_TIMEOUT_S = 300


def installed_package(manifest: Path, name: str) -> Path:
    """Return the folder of a package in the exact version that a package.json names."""
    version = str(json.loads(manifest.read_text())["dependencies"][name])
    folder = BUILD / "node_modules" / name
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers in parallel install once
        if _version_of(folder) != version:
            _install(f"{name}@{version}")
    return folder


def _version_of(folder: Path) -> str | None:
    package = folder / "package.json"
    return str(json.loads(package.read_text())["version"]) if package.exists() else None


def _install(package: str) -> None:
    npm = require_program("npm", "npm")
    quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        subprocess.run(
            [npm, "install", *quiet, "--prefix", str(BUILD), package],
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        give_up(f"npm could not install {package} within {INSTALL_TIMEOUT_S} s: no network?")
    except subprocess.CalledProcessError as error:
        give_up(f"npm could not install {package}: {error.stderr.strip()[-300:]}")
