"""Programs that the machine must have besides Python: Debian's amqp-tools, node, npm.

A missing program is a failure in continuous integration, where the set-up installs it, and a
skip with its reason elsewhere, so that the rest of the suite runs on any machine.
"""

from __future__ import annotations

import os
import shutil

import pytest


def require_program(program: str, package: str) -> str:
    """The program's path; skips (fails in CI) with one sentence when it is missing."""
    path = shutil.which(program)
    if path is None:
        give_up(f"{program} is not installed: install Debian's package {package}")
    assert path is not None
    return path


def give_up(reason: str) -> None:
    """Skip the test for this reason; in continuous integration, fail."""
    if os.environ.get("CI", "").lower() in {"1", "true", "yes"}:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
