"""Runs pytest again and again, each time in a fresh copy of a process that has imported it.

pytest and Hypothesis take more time to import than most of the tests take to run. This process
imports them once and forks for each run. It imports nothing of Leveret: each run finds the sources
as they are at that moment.

    python -m tests.planted.runner

Each line on stdin is a JSON list of pytest's arguments. The answer is one line: [code, output].
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback

import hypothesis.stateful
import msgspec
import pytest

__all__ = ["hypothesis", "msgspec"]  # imported for the runs


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


def run(arguments: list[str]) -> tuple[int, str]:
    """Run pytest in a fork; return its exit code and its output."""
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            _end_with(arguments, output.fileno())
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read()


def _end_with(arguments: list[str], output: int) -> None:
    code = 70  # neither "passed" nor "failed"
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = int(pytest.main(arguments))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
