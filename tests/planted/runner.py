"""Runs pytest again and again, each time in a fresh copy of a process that has imported it.

Imports take more time than most of the tests. This process imports pytest, Hypothesis and Leveret
once, and forks for each run. A run forgets the module that was changed and every module that
imports it, directly or not. So it finds the sources as they are at that moment.

    python -m tests.planted.runner

Each line on stdin is a JSON list: the changed module, and pytest's arguments. The answer is one
line: [code, output].
"""

from __future__ import annotations

import ast
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

import hypothesis.stateful
import pytest

import leveret.runtime.serve

__all__ = ["hypothesis", "leveret"]  # imported for the runs


def main() -> None:
    importers = importers_of_modules()
    for line in sys.stdin:
        changed, arguments = json.loads(line)
        print(json.dumps(run(with_importers(changed, importers), arguments)), flush=True)


def importers_of_modules() -> dict[str, set[str]]:
    """Return the modules of Leveret that import a module, for each one that is loaded."""
    loaded = [name for name in sys.modules if name.partition(".")[0] == "leveret"]
    found: dict[str, set[str]] = {name: set() for name in loaded}
    for name in loaded:
        for imported in imports_of(name):
            if imported in found:
                found[imported].add(name)
    return found


def imports_of(name: str) -> set[str]:
    """Return the names that a module may import, and the packages that it is in."""
    package, _, _ = name.rpartition(".")
    found = {package}
    file = sys.modules[name].__file__
    assert file is not None
    for node in ast.walk(ast.parse(Path(file).read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None, f"{name} has a relative import"
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def with_importers(changed: str, importers: dict[str, set[str]]) -> set[str]:
    """Return a module with all modules that import it, directly or not."""
    found: set[str] = set()
    todo = {changed} & importers.keys()
    while todo:
        name = todo.pop()
        found.add(name)
        todo |= importers[name] - found
    return found


def run(forgotten: set[str], arguments: list[str]) -> tuple[int, str]:
    """Run pytest in a fork without these modules; return its exit code and its output."""
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            _end_with(forgotten, arguments, output.fileno())
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read()


def _end_with(forgotten: set[str], arguments: list[str], output: int) -> None:
    code = 70  # neither "passed" nor "failed"
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        for name in forgotten:
            _forget(name)
        code = int(pytest.main(arguments))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _forget(name: str) -> None:
    """Remove a module, also as a name in its package: the next import loads it again."""
    package, _, last = name.rpartition(".")
    sys.modules.pop(name)
    if package in sys.modules:
        vars(sys.modules[package]).pop(last, None)


if __name__ == "__main__":
    main()
