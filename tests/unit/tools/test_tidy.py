"""tidy bites: each rule, on a small tree that breaks it; and the tree without a fault passes."""

from pathlib import Path

import pytest

from tools import tidy

PROJECT = """
[tool.leveret]
compiled = ["src/leveret/engine/**/*.py", "src/leveret/amqp/*.py"]
interpreted = ["src/leveret/amqp/server.py"]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    return tmp_path


def write(root: Path, name: str, body: str, docstring: str = '"""What it owns."""\n') -> None:
    path = root / "src" / "leveret" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(docstring + body)


def only_fault(root: Path) -> str:
    faults = tidy.check(root)
    assert len(faults) == 1, faults
    return faults[0]


def test_clean_tree_has_no_fault(root: Path) -> None:
    write(root, "errors.py", "class NotFound(Exception): ...\n")
    write(root, "engine/queues/queue.py", "from leveret.errors import NotFound\nx = NotFound\n")
    write(root, "amqp/server.py", "import asyncio\nfrom leveret.engine import queue\n")
    assert tidy.check(root) == []


@pytest.mark.parametrize(
    ("name", "line", "fault"),
    [
        (
            "engine/a.py",
            "from leveret.amqp.frame_errors import x",
            "engine may not import leveret.amqp",
        ),
        ("engine/a.py", "import leveret.runtime.node", "engine may not import leveret.runtime"),
        ("wire/a.py", "from leveret import engine", "wire may not import leveret.engine"),
        ("amqp/a.py", "from leveret.http.app import x", "amqp may not import leveret.http"),
        ("http/a.py", "from leveret.runtime import node", "http may not import leveret.runtime"),
        ("engine/a.py", "import time", "the core may not import time"),
        ("engine/a.py", "from random import choice", "the core may not import random"),
        ("engine/a.py", "import os.path", "the core may not import os.path"),
        ("amqp/channel.py", "import asyncio", "the core may not import asyncio"),
        ("amqp/server.py", "import starlette.applications", "starlette belongs to http alone"),
        ("runtime/a.py", "from rich import print as p", "rich belongs to cli alone"),
        (
            "engine/backlog/a.py",
            "from leveret.engine.queues.queue import x",
            "engine/backlog may not import leveret.engine.queues.queue",
        ),
        (
            "engine/message.py",
            "from leveret.engine.timer_queue import x",
            "engine/message may not import leveret.engine.timer_queue",
        ),
        ("engine/odd.py", "import leveret.engine.timer_queue", "engine/odd has no place"),
        ("misc/a.py", "x = 1", "the part misc has no place in MAY_IMPORT"),
    ],
)
def test_import_against_the_arrows_is_found(root: Path, name: str, line: str, fault: str) -> None:
    write(root, "engine/__init__.py", "")
    write(root, "runtime/node.py", "")
    write(root, name, line + "\n")
    assert fault in only_fault(root)


def test_import_inside_a_function_is_found_too(root: Path) -> None:
    write(root, "engine/a.py", "def now() -> None:\n    import time\n")
    assert only_fault(root) == "src/leveret/engine/a.py:3: the core may not import time"


def test_ring_of_imports_is_found_once(root: Path) -> None:
    write(root, "engine/queues/a.py", "from leveret.engine.queues import b\n")
    write(root, "engine/queues/b.py", "import leveret.engine.queues.c\n")
    write(root, "engine/queues/c.py", "from leveret.engine.queues.a import x\n")
    assert only_fault(root) == (
        "imports go in a ring: leveret.engine.queues.a -> leveret.engine.queues.b"
        " -> leveret.engine.queues.c -> leveret.engine.queues.a"
    )


def test_module_without_docstring_is_found(root: Path) -> None:
    write(root, "runtime/a.py", "x = 1\n", docstring="")
    assert "no docstring" in only_fault(root)


def test_long_module_and_long_function_are_found(root: Path) -> None:
    write(root, "runtime/a.py", "x = 1\n" * 500)
    assert "501 lines, more than 500" in only_fault(root)
    write(root, "runtime/a.py", "def f() -> None:\n" + "    x = 1\n" * 70)
    assert "f has 71 lines, more than 70" in only_fault(root)


def test_test_may_be_longer(root: Path) -> None:
    (root / "tests").mkdir()
    (root / "tests" / "test_a.py").write_text('"""What it proves."""\n' + "x = 1\n" * 700)
    assert tidy.check(root) == []


def test_task_that_somebody_keeps_is_no_fault(root: Path) -> None:
    write(root, "runtime/a.py", "task = loop.create_task(f())\ngroup.create_task(f())\n")
    assert tidy.check(root) == []


def test_docstring_does_not_count_as_length_of_a_function(root: Path) -> None:
    docstring = '    """One.\n' + "    more\n" * 30 + '    """\n'
    write(root, "runtime/a.py", "def f() -> None:\n" + docstring + "    x = 1\n" * 60)
    assert tidy.check(root) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("x = 1  # FIX" + "ME later", "unfinished work"),
        ("# TO" + "DO: more", "unfinished work"),
        ("print('here')", "only the command line prints"),
        ("import asyncio\nasyncio.create_task(f())", "a task without an owner"),
        ("loop.create_task(f())", "a task without an owner"),
        ("asyncio.get_running_loop().create_task(f())", "a task without an owner"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    x = 1", "hides a ring"),
    ],
)
def test_habit_that_is_not_ours_is_found(root: Path, line: str, fault: str) -> None:
    write(root, "runtime/a.py", line + "\n")
    assert fault in only_fault(root)


@pytest.mark.parametrize(
    "body",
    [
        "def f() -> None:\n    def g() -> None: ...\n",
        "def f() -> None:\n    class C: ...\n",
        "class C:\n    class D: ...\n",
        "f = sorted([], key=lambda x: 1)\n",
        "async def f() -> None: ...\n",
        "from collections.abc import Iterator\ndef f() -> Iterator[int]:\n    yield 1\n",
        "x: int = ''  # type: ignore[assignment]\n",
    ],
)
def test_form_that_must_not_be_compiled_is_found_in_the_compiled_set_alone(
    root: Path, body: str
) -> None:
    write(root, "amqp/server.py", body)
    assert tidy.check(root) == []
    write(root, "amqp/channel.py", body)
    assert only_fault(root).startswith("src/leveret/amqp/channel.py:")


def test_dependency_without_a_pin_is_found(root: Path) -> None:
    (root / "pyproject.toml").write_text(
        PROJECT + '[project]\ndependencies = ["uvloop>=1; sys_platform != \'x\'", "aio_pika"]\n'
    )
    (root / "constraints.txt").write_text("aio-pika==1.0\n")
    assert only_fault(root) == "constraints.txt:1: uvloop is not pinned"


def test_generated_page_that_is_stale_is_found(root: Path) -> None:
    for name in ("__init__.py", "config/__init__.py"):
        write(root, name, "")
    write(root, "config/reference.py", 'if __name__ == "__main__":\n    import sys\n'
          '    sys.stdout.write("the page")\n')  # fmt: skip
    (root / "docs").mkdir()
    page = root / "docs" / "configuration.md"
    page.write_text("an older page")
    assert "run make gen" in only_fault(root)
    tidy.write_pages(root)
    assert page.read_text() == "the page"
    assert tidy.check(root) == []


def test_file_that_is_not_python_is_a_fault_not_a_crash(root: Path) -> None:
    write(root, "runtime/a.py", "def (:\n")
    assert only_fault(root).startswith("src/leveret/runtime/a.py:2: ")


def test_section_banner_is_found(root: Path) -> None:
    write(root, "errors.py", "# ---- errors\n")
    assert "section banners" in only_fault(root)
