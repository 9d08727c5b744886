"""What documents name exists under that name: commands, flags, variables, paths, targets, files.

Pages that are generated are compared as a whole by `make tidy`, and are left out here.
"""

import re
import tomllib
from collections.abc import Iterator
from functools import cache

import pytest

from leveret.config.settings import options
from tests.docs.pages import ROOT, Page, pages
from tests.docs.words import (
    Command,
    all_flags,
    commands_in,
    fault_of,
    is_served,
    targets,
    variables,
)
from tools.benchmark.scaling import CURVES
from tools.benchmark.scenarios import SCENARIOS

pytestmark = pytest.mark.interpreted_only("documents are the same for both forms")
GENERATED = ("docs/cli.md", "docs/configuration.md", "docs/metrics.md")
WRITTEN = [page for page in pages() if page.name not in GENERATED]
# Lines that a command prints, not calls of it.
PRINTED = {"ready", "ended"}
# Of other programs.
FOREIGN_FLAGS = {"--cacert", "--descriptor", "--include"}  # of curl and protoc, up to a _
# The first words of settings that come in families: a name that begins so is one of them.
FAMILIES = ("jobs", "login", "oauth2", "tls")
CALL = re.compile(r"(?:(GET|PUT|POST|DELETE),? )?(?<![\w.:/…])(…?/(?:\{[^}]*\}|[\w/…%.-])+)")
HOST = re.compile(r"(?:https?://)?[\w.@:]+:\d+(?=/)")
FILE = re.compile(r"(?!lake/)(?:[\w.-]+/)+[\w.-]+\.(?:py|sh|md|toml|txt|js|css|json)")
# The page that says that it leaves out /api.
# A table there has names of its own in the first column.
IDS = "docs/differences.md"
# Where a path may begin.
FOLDERS = ("src", "src/leveret", "src/leveret/http", "docs", "", "tests/cluster")


def code_of(page: Page) -> Iterator[str]:
    yield from (block.text for block in page.blocks if block.language != "python")
    yield from page.spans


def all_code() -> Iterator[tuple[str, str]]:
    """Each piece of code with the name of its page."""
    return ((page.name, code) for page in WRITTEN for code in code_of(page))


def test_commands_exist_with_these_flags() -> None:
    faults = [
        f"{name}: {fault}"
        for name, code in all_code()
        for command in commands_in(code)
        if not set(command.words[:2]) & PRINTED and (fault := fault_of(command))
    ]
    assert faults == []


def test_flags_and_variables_exist() -> None:
    known = all_flags() | variables() | FOREIGN_FLAGS
    named = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*|\bLEVERET_[A-Z0-9_]+")
    faults = {(name, word) for name, code in all_code() for word in named.findall(code)}
    assert {fault for fault in faults if fault[1] not in known} == set()


def test_paths_of_the_api_are_served() -> None:
    faults = [
        f"{name}: {method} {path}"
        for name, code in all_code()
        for method, path in CALL.findall(HOST.sub("", code))
        if (method or path.startswith("/api/")) and not is_served(path, method)
    ]
    assert faults == []


def test_settings_exist() -> None:
    named = re.compile(rf"({'|'.join(FAMILIES)})_\w+")
    faults = {(page.name, span) for page in WRITTEN for span in page.spans if named.fullmatch(span)}
    assert {fault for fault in faults if fault[1] not in options()} == set()


def test_targets_of_make_exist() -> None:
    named = re.compile(r"(?:^|\s|`)make ([a-z-]+)")
    faults = {(name, target) for name, code in all_code() for target in named.findall(code)}
    assert {fault for fault in faults if fault[1] not in targets()} == set()


def test_rows_of_the_benchmark_exist() -> None:
    known = {row.key for row in SCENARIOS} | {curve.key for curve in CURVES} | {"all"}
    lists = {found for _, code in all_code() for found in re.findall(r"ROWS=([a-z,-]+)", code)}
    assert {row for found in lists for row in found.split(",")} - known == set()


def test_arguments_and_headers_are_in_the_sources() -> None:
    words = set(re.findall(r"x-[a-z0-9-]+", sources()))
    words.update(re.findall(r"^\| `(x-[a-z-]+)`", (ROOT / IDS).read_text(), re.MULTILINE))
    named = re.compile(r"x-[a-z-]+[a-z]")
    faults = {(page.name, span) for page in WRITTEN for span in page.spans if named.fullmatch(span)}
    assert {fault for fault in faults if fault[1] not in words} == set()


def test_classes_and_methods_of_the_map_exist() -> None:
    words = set(re.findall(r"\w+", sources()))
    named = re.compile(r"([A-Z][a-z]+\w*)(?:\.(\w+))?(?:\(.*\))?")
    pages_of_code = [page for page in WRITTEN if page.name in ("ARCHITECTURE.md", "docs/raft.md")]
    found = [match for page in pages_of_code for s in page.spans if (match := named.fullmatch(s))]
    assert [m[0] for m in found if m[1] not in words or (m[2] and m[2] not in words)] == []


@cache
def sources() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))


def test_extras_exist_and_the_install_page_has_all_of_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = set(project["optional-dependencies"]) - {"test", "dev"}
    named = re.compile(r"(?:leveret|\.)\[([a-z0-9,]+)\]")
    found = {(page.name, each) for page in WRITTEN for s in page.spans for each in named.findall(s)}
    extras = {(name, extra) for name, each in found for extra in each.split(",")}
    assert {fault for fault in extras if fault[1] not in known} == set()
    assert {extra for name, extra in extras if name == "docs/install.md"} == known


def test_files_exist() -> None:
    faults = {(page.name, span) for page in WRITTEN for span in page.spans if FILE.fullmatch(span)}
    assert {fault for fault in faults if not is_there(fault[1])} == set()


def is_there(file: str) -> bool:
    return any((ROOT / folder / file).exists() for folder in FOLDERS)


def test_a_wrong_name_is_noticed() -> None:
    wrong = commands_in("$ leveret ctl quues\nTOKEN=$(leveret jobs token --datta d) && leveret foo")
    assert [fault_of(command) for command in wrong] == [
        "leveret ctl has no command quues",
        "leveret jobs token has no --datta",
        "leveret has no command foo",
    ]
    assert commands_in("leveret serve … --jobs-redis U \\\n  --nope 1")[0].words == ("serve",)
    assert fault_of(Command(("serve",), ("--nope",))) == "leveret serve has no --nope"
    assert is_served("/api/queues/%2F/{name}/peek", "GET")
    assert not is_served("/api/queues/%2F/{name}/peeek")
    assert is_served("…/leases/{reader}", "DELETE")
    assert not is_served("…/leasez/{reader}", "DELETE")
    assert not is_served("/api/queues/%2F/{name}/peek", "PUT")
