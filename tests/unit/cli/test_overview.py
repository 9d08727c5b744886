"""The help of `leveret` and small commands do not wait for imports that they do not need."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from leveret.cli.app import make_app, make_overview

_PRINT_MODULES = """
import sys
from leveret.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print("imported", *sorted(sys.modules))
"""


def imported_by(*words: str) -> set[str]:
    """Return the modules that a command line imports."""
    ran = subprocess.run(
        [sys.executable, "-c", _PRINT_MODULES, *words], capture_output=True, text=True, check=True
    )
    return set(ran.stdout.rsplit("imported", 1)[1].split())


@pytest.mark.parametrize("words", [["--help"], ["ctll"], ["--verson"]])
def test_overview_answers_as_the_application_with_all_commands_does(words: list[str]) -> None:
    runner = CliRunner()
    short = runner.invoke(make_overview(), words, prog_name="leveret")
    full = runner.invoke(make_app(""), words, prog_name="leveret")
    assert (short.output, short.exit_code) == (full.output, full.exit_code)


def test_help_imports_no_group_of_commands_and_nothing_that_only_decorates_it() -> None:
    imported = imported_by("--help")
    groups = ("ctl", "config", "jobs", "bus", "pipeline", "perf")
    assert not imported.intersection(f"leveret.cli.{name}" for name in groups)
    assert not imported.intersection(("rich", "pydantic", "markdown_it", "asyncio", "ssl"))


def test_status_imports_neither_typer_nor_parts_of_a_node() -> None:
    imported = imported_by("ctl", "status", "--json", "--url", "http://127.0.0.1:1")
    assert "leveret.cli.ctl.status" in imported
    assert not imported.intersection(("typer", "rich", "pydantic", "asyncio", "leveret.config"))


def test_command_that_asks_a_broker_imports_neither_storage_nor_engine() -> None:
    imported = imported_by("ctl", "environment", "--url", "http://127.0.0.1:1")
    assert "leveret.cli.ctl.app" in imported
    assert not imported.intersection(("leveret.storage", "leveret.engine", "leveret.journal"))


def test_help_of_a_group_does_not_cut_the_texts_of_its_commands() -> None:
    def short_texts(command: Any, path: str, width: int) -> Iterator[str]:
        for name, inner in command.commands.items():
            yield f"{path} {name}: {inner.get_short_help_str(width)}"
            if hasattr(inner, "commands"):
                longest = max(map(len, inner.commands))
                yield from short_texts(inner, f"{path} {name}", 80 - 6 - longest)

    texts = list(short_texts(typer.main.get_command(make_app("")), "leveret", 80 - 6 - 8))
    assert len(texts) > 80
    assert not [text for text in texts if text.endswith("...")]
