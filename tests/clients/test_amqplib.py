"""amqplib, the AMQP client of node, through scripts of our own in `amqplib/`.

The package is installed once into build/node, in the exact version of `amqplib/package.json`.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
from pathlib import Path

import pytest

from tests.clients.process import Child
from tests.clients.tools import give_up, require_program

HERE = Path(__file__).parent / "amqplib"
BUILD = Path(__file__).parents[2] / "build" / "node"
INSTALL_TIMEOUT_S = 50


@pytest.fixture(scope="module")
def node() -> str:
    """Path of node, with amqplib installed for it."""
    path = require_program("node", "nodejs")
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers in parallel install once
        if installed_version() != wanted_version():
            install()
    return path


def wanted_version() -> str:
    package = json.loads((HERE / "package.json").read_text())
    return str(package["dependencies"]["amqplib"])


def installed_version() -> str | None:
    package = BUILD / "node_modules" / "amqplib" / "package.json"
    return str(json.loads(package.read_text())["version"]) if package.exists() else None


def install() -> None:
    npm = require_program("npm", "npm")
    quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
    package = f"amqplib@{wanted_version()}"
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


@pytest.mark.parametrize("script", ["promise", "callback", "errors", "stream"])
def test_amqplib(node: str, amqp_url: str, script: str) -> None:
    environment = {"LEVERET_APP_BROKER": amqp_url, "NODE_PATH": str(BUILD / "node_modules")}
    child = Child([node, "--test", HERE / f"{script}.test.js"], env=environment)
    assert child.wait() == 0, child.output()
