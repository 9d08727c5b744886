"""`leveret.jobs` imports what is asked for, and its types say the same as its code."""

import ast
import subprocess
import sys
from pathlib import Path

import leveret.jobs


def test_types_and_code_name_the_same_things() -> None:
    stub = ast.parse(Path(leveret.jobs.__file__).with_suffix(".pyi").read_text())
    typed = {
        (alias.name, node.module)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {name for name, _ in typed} == set(leveret.jobs.__all__)
    for name, home in typed:
        assert getattr(leveret.jobs, name) is getattr(sys.modules[str(home)], name)


def test_the_service_brings_no_client() -> None:
    code = "import sys, leveret.jobs.service.store; print('leveret.jobs.client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(leveret.jobs, "Nothing")
