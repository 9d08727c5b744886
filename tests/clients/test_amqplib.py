"""amqplib, the AMQP client of node, through scripts of our own in `amqplib/`.

The package is installed once into build/node, in the exact version of `amqplib/package.json`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.node_packages import BUILD, installed_package
from tests.clients.process import Child
from tests.clients.tools import require_program

HERE = Path(__file__).parent / "amqplib"


@pytest.fixture(scope="module")
def node() -> str:
    """Path of node, with amqplib installed for it."""
    path = require_program("node", "nodejs")
    installed_package(HERE / "package.json", "amqplib")
    return path


@pytest.mark.parametrize("script", ["promise", "callback", "errors", "stream"])
def test_amqplib(node: str, amqp_url: str, script: str) -> None:
    environment = {"LEVERET_APP_BROKER": amqp_url, "NODE_PATH": str(BUILD / "node_modules")}
    child = Child([node, "--test", HERE / f"{script}.test.js"], env=environment)
    assert child.wait() == 0, child.output()
