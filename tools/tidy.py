"""Checks rules that ruff and mypy do not know: imports, sizes, and the rules of compiled code.

`make tidy` runs it over the tree. It prints one line per fault, with file and line. The tables at
the top are the rules. Modules are parsed, never imported. A new package fails until it has an entry
in MAY_IMPORT, so that its author must decide on its place.
"""

import ast
import gc
import io
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

# Which other parts of leveret a part may import. Imports point downwards only.
MAY_IMPORT: Final[dict[str, frozenset[str]]] = {
    part: frozenset(below.split())
    for part, below in {
        "errors": "",
        "decode_errors": "",
        "shortened": "",
        "clock": "",
        "buffered_protocol": "",
        "slices": "",
        "addresses": "",
        "listening": "addresses",
        "checksum": "",
        "build_info": "",
        "histogram": "",
        "heap": "",
        "patterns": "errors",
        "config": "errors",
        "charts": "",
        "wire": "errors",
        "journal": "errors checksum wire",
        "engine": "errors checksum wire journal",
        "storage": "errors checksum heap histogram wire journal engine",
        "http_client": "errors",
        "http_post": "errors http_client",
        "auth": "errors decode_errors shortened addresses patterns engine http_client",
        "definitions": "errors patterns wire engine auth",
        "arrow": "errors wire journal engine storage",
        "embedded": "errors clock engine",
        "amqp": "errors addresses buffered_protocol listening wire engine auth",
        "amqp_client": "errors wire amqp",
        "perf": "errors charts wire amqp amqp_client",
        "tasks": "errors slices engine auth",
        "leases": "errors engine",
        "shovels": "errors http_post wire engine auth amqp amqp_client",
        "federation": "errors patterns wire engine definitions amqp amqp_client shovels",
        "job_model": "",
        "jobs": "errors decode_errors http_client job_model",
        "job_service": "errors decode_errors clock slices checksum histogram wire engine job_model",
        "bus": "errors clock histogram http_client http_post",
        "cluster": "errors clock addresses buffered_protocol",
        "lake": "errors",
        "pipeline": "errors clock charts lake wire arrow jobs job_model job_service",
        "pyspark_leveret": "errors http_client lake wire amqp amqp_client arrow",
        "http": "errors decode_errors shortened slices addresses listening histogram build_info "
        "config patterns wire engine auth definitions arrow tasks leases shovels federation "
        "job_model job_service",
        "metrics": "errors slices histogram build_info engine storage job_service http",
        "runtime": "errors decode_errors checksum clock slices addresses listening build_info "
        "histogram heap config patterns wire journal engine storage cluster auth definitions amqp "
        "arrow tasks leases shovels federation job_service http metrics",
        "testing": "errors clock config engine storage runtime",
        "cli": "errors clock build_info config charts definitions perf storage http_client "
        "job_model jobs bus lake pipeline runtime",
        "__main__": "cli",
    }.items()
}
# The order inside a part: a folder or file may import the names to its left. Names joined by | may
# not import each other. A part that is not listed has no inner order.
ORDER_INSIDE: Final = {
    "engine": "arguments|message|timer_queue backlog|deduplication|history target exchanges turns "
    "queues streams vhosts commands|insight broker checkpoint|restore",
    "http": "framework management|jobs insight|streams app transport",
    "cli": "perf_progress|serve|shared config|ctl|jobs|perf|pipeline bus app main|reference",
    "bus": "errors|headers|health|idempotency|keyed_lock|loop_watch|lossless_properties|"
    "pausing|running_handlers|settings|stop_signals|topology|tracing codec|dead_letters|delivery|"
    "fanout|retry_policy|topic connections|handler_result|outgoing_message|shared_stores "
    "asyncapi|metrics|outbox|received_message|spans attempts|consuming_session|dispatch|"
    "health_port|outbox_relay|publishing|returned_message settling consuming bus "
    "sync|testing|webhook",
    "charts": "axes|style charts drawing page",
    "cluster": "errors raft host_owner|relay|relay_slots|warning_limiter "
    "handshake|host|link_owner|owner admission|link|peers|status dial_faults|faults|requests links "
    "forming reports member",
    "jobs": "client worker",
    "job_service": "backoff|cron|kept_errors|limits|list_cursor|report|snowflake store "
    "embedded|shards",
}
# The core is deterministic: no clock, no randomness, no I/O. Compiled code has no coroutines.
CORE: Final = ("wire", "journal", "engine")
BANNED_IN_CORE: Final = frozenset(
    "asyncio logging time random os socket threading subprocess uuid".split()
)
# Compiled modules outside the core: they connect it to the event loop, once for each turn.
EDGE: Final = (
    "leveret.amqp.finisher",
    "leveret.amqp.heavy_turns",
    "leveret.amqp.sockets",
    "leveret.cluster.host",
    "leveret.cluster.link",
    "leveret.runtime.cluster_logs",
    "leveret.runtime.turns",
    "leveret.storage.disk",
    "leveret.storage.follower_log",
    "leveret.storage.job_writer",
    "leveret.storage.log",
    "leveret.storage.replicated_log",
    "leveret.storage.store",
    "leveret.storage.writer_thread",
)
# Libraries that only the named parts may import, so that they can be replaced there.
ONLY_IN: Final = {
    "starlette": "http",
    "uvicorn": "http",
    "typer": "cli",
    "rich": "cli",
    "uvloop": "runtime",
    "pyarrow": "arrow lake pyspark_leveret pipeline",
    "deltalake": "lake",
    "jwt": "auth",
    "cryptography": "auth",
    "re2": "patterns",
    "isal": "checksum",
    "httptools": "http",
    "opentelemetry": "runtime bus",
    "asyncpg": "job_service",
    "redis": "job_service",
    "aio_pika": "bus",
    "pyspark": "pipeline pyspark_leveret",
    "fastavro": "pipeline",
    "google": "pipeline",
}
MODULE_LINES_MAX: Final = 500
MODULE_LINES_HARD: Final = 800
FUNCTION_LINES_MAX: Final = 70
# Modules that may have up to MODULE_LINES_HARD lines, or more if generated, with the reason.
LONG_MODULES: Final[dict[str, str]] = {}
GENERATED_MODULES: Final[dict[str, str]] = {}
# Generated pages, and the module that prints each.
GENERATED_PAGES: Final = {
    "docs/cli.md": "leveret.cli.reference",
    "docs/configuration.md": "leveret.config.reference",
    "docs/metrics.md": "leveret.metrics.reference",
}
BANNER: Final = re.compile(r"^# ?-{3,}", re.MULTILINE)
UNFINISHED: Final = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef
TASK_MAKERS: Final = ("create_task", "ensure_future")


@dataclass(frozen=True)
class Module:
    """One Python file of the tree."""

    path: Path
    shown: str  # path from the root, for messages
    text: str
    tree: ast.Module
    name: str  # dotted name of a module under src, empty for tests and tools
    compiled: bool

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree, cached, because most rules visit all of them."""
        return list(ast.walk(self.tree))

    @property
    def part(self) -> str:
        """`engine` of leveret.engine.backlog.ready; empty for leveret itself and outside src.

        Another package beside leveret is a part as a whole.
        """
        top, _, rest = self.name.partition(".")
        return rest.partition(".")[0] if top in ("leveret", "") else top

    def fault(self, node: ast.AST | int, text: str) -> str:
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        return f"{self.shown}:{line}: {text}"


def check(root: Path) -> list[str]:
    """Return every fault of the tree under `root`, in the order of its files."""
    modules, faults = read(root)
    names = {m.name for m in modules if m.name}
    for module in modules:
        faults += check_form(module)
        if module.name:
            faults += check_imports(module, names)
            faults += check_source(module)
        if module.compiled:
            faults += check_compiled(module)
    return [*faults, *check_cycles(modules, names), *check_pins(root), *check_pages(root)]


def read(root: Path) -> tuple[list[Module], list[str]]:
    compiled = compiled_set(root)
    modules: list[Module] = []
    faults: list[str] = []
    for folder in ("src", "tests", "tools"):
        for path in sorted((root / folder).rglob("*.py")):
            shown = path.relative_to(root).as_posix()
            text = path.read_text()
            try:
                tree = ast.parse(text)
            except SyntaxError as fault:
                faults.append(f"{shown}:{fault.lineno}: {fault.msg}")
                continue
            name = dotted_name(path.relative_to(root / "src")) if folder == "src" else ""
            modules.append(Module(path, shown, text, tree, name, path in compiled))
    return modules, faults


def compiled_set(root: Path) -> set[Path]:
    """Return the files that setup.py compiles, from the same table."""
    table = project(root).get("tool", {}).get("leveret", {})
    found = {path for pattern in table.get("compiled", ()) for path in root.glob(pattern)}
    found -= {root / name for name in table.get("interpreted", ())}
    return {path for path in found if path.name != "__init__.py"}


def project(root: Path) -> dict[str, Any]:
    """Return pyproject.toml as a table."""
    path = root / "pyproject.toml"
    return tomllib.loads(path.read_text()) if path.exists() else {}


def dotted_name(path: Path) -> str:
    parts = list(path.with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def check_form(module: Module) -> Iterator[str]:
    if module.tree.body and not ast.get_docstring(module.tree):
        yield module.fault(1, "the module has no docstring that says what it owns")
    yield from check_length(module)
    yield from check_comments(module)
    for banner in BANNER.finditer(module.text):
        line = module.text.count("\n", 0, banner.start()) + 1
        yield module.fault(line, "a file that needs section banners is two files")
    for node in module.nodes:
        if isinstance(node, Function) and function_lines(node) > FUNCTION_LINES_MAX:
            text = f"{node.name} has {function_lines(node)} lines, more than {FUNCTION_LINES_MAX}"
            yield module.fault(node, text)


def check_comments(module: Module) -> Iterator[str]:
    if not UNFINISHED.search(module.text):
        return  # tokenizing takes longer than all other checks
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT and UNFINISHED.search(token.string):
            yield module.fault(token.start[0], "unfinished work belongs into an issue")


def check_length(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    if module.shown in GENERATED_MODULES:
        return
    # Tests often contain tables, and may be longer.
    is_long = module.shown in LONG_MODULES or module.shown.startswith("tests/")
    limit = MODULE_LINES_HARD if is_long else MODULE_LINES_MAX
    if lines > limit:
        yield module.fault(lines, f"{lines} lines, more than {limit}: it is two modules")


def function_lines(node: Function) -> int:
    """Return the number of lines from `def` to the end, without the docstring."""
    assert node.end_lineno is not None
    lines = node.end_lineno - node.lineno + 1
    if ast.get_docstring(node) is None:
        return lines
    docstring = node.body[0]
    assert docstring.end_lineno is not None
    return lines - (docstring.end_lineno - docstring.lineno + 1)


def imports(module: Module, names: set[str]) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each imported module and statement; `from a import b` is a.b if that is a module."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield node, inner if inner in names else node.module


def check_imports(module: Module, names: set[str]) -> Iterator[str]:
    if module.part and module.part not in MAY_IMPORT:
        yield module.fault(1, f"the part {module.part} has no place in MAY_IMPORT of tools/tidy.py")
        return
    is_pure = module.part in CORE or (module.compiled and module.name not in EDGE)
    for node, target in imports(module, names):
        top, _, rest = target.partition(".")
        if top == "leveret":
            part = rest.partition(".")[0]
            allowed = MAY_IMPORT.get(module.part, frozenset()) | {module.part, ""}
            if part not in allowed:
                yield module.fault(node, f"{module.part or 'leveret'} may not import {target}")
            elif part == module.part:
                yield from check_order_inside(module, node, target)
        elif top in BANNED_IN_CORE and is_pure:
            yield module.fault(node, f"the core may not import {target}")
        elif top in ONLY_IN and module.part not in ONLY_IN[top].split():
            yield module.fault(node, f"{top} belongs to {ONLY_IN[top]} alone")


def check_order_inside(module: Module, node: ast.stmt, target: str) -> Iterator[str]:
    """Compare an import within a part with the order in ORDER_INSIDE."""
    order = ORDER_INSIDE.get(module.part)
    source, target_name = inner_name(module.name), inner_name(target)
    if order is None or not source or not target_name or source == target_name:
        return
    places = {name: at for at, names in enumerate(order.split()) for name in names.split("|")}
    if source not in places:
        yield module.fault(1, f"{module.part}/{source} has no place in ORDER_INSIDE")
    elif target_name not in places or places[target_name] >= places[source]:
        yield module.fault(node, f"{module.part}/{source} may not import {target}")


def inner_name(module_name: str) -> str:
    """Return `backlog` for leveret.engine.backlog.ready, and nothing for a part itself."""
    names = module_name.split(".")
    return names[2] if len(names) > 2 else ""


def check_cycles(modules: list[Module], names: set[str]) -> Iterator[str]:
    """Yield each ring of imports once."""
    graph = {
        m.name: sorted({t for _, t in imports(m, names) if t in names and t != m.name})
        for m in modules
        if m.name
    }
    done: set[str] = set()
    for start in sorted(graph):
        ring = find_ring(graph, start, [], done)
        if ring:
            yield f"imports go in a ring: {' -> '.join(ring)}"


def find_ring(
    graph: dict[str, list[str]], name: str, trail: list[str], done: set[str]
) -> list[str] | None:
    if name in trail:
        return [*trail[trail.index(name) :], name]
    if name in done:
        return None
    for target in graph[name]:
        ring = find_ring(graph, target, [*trail, name], done)
        if ring:
            done.update(ring)
            return ring
    done.add(name)
    return None


def check_source(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and word(node) == "TYPE_CHECKING":
            yield module.fault(node, "TYPE_CHECKING hides a ring of imports")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "print" and module.part != "cli":
                yield module.fault(node, "only the command line prints")
        if isinstance(node, ast.Expr) and makes_task(node.value):
            yield module.fault(node, "a task without an owner can vanish: use a task group")


def makes_task(node: ast.expr) -> bool:
    """Return True if it starts a task that only the event loop refers to."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = word(node.func.value).removeprefix("_")
    return node.func.attr in TASK_MAKERS and owner in ("asyncio", "loop", "get_running_loop")


def word(node: ast.expr) -> str:
    """Return the last name of an expression: c of a.b.c, and of a.b.c()."""
    if isinstance(node, ast.Call):
        return word(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def check_compiled(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.text.splitlines(), 1):
        if "# type: ignore" in line:
            yield module.fault(number, "compiled code trusts its types: no type: ignore")
    for node in module.nodes:
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.Yield | ast.YieldFrom):
            yield module.fault(node, "compiled code has no coroutines and no generators")
        if isinstance(node, ast.Lambda):
            yield module.fault(node, "compiled code has no lambdas")
        for inner in nested(node):
            yield module.fault(inner, f"{inner.name} is nested: mypyc makes it slow or refuses it")


def nested(outer: ast.AST) -> Iterator[Function | ast.ClassDef]:
    """Yield functions and classes inside a function, and classes inside a class."""
    if isinstance(outer, Function):
        for node in ast.walk(outer):
            if node is not outer and isinstance(node, Function | ast.ClassDef):
                yield node
    elif isinstance(outer, ast.ClassDef):
        yield from (node for node in outer.body if isinstance(node, ast.ClassDef))


def check_pins(root: Path) -> Iterator[str]:
    """Check that constraints.txt pins each dependency of pyproject.toml."""
    facts = project(root).get("project", {})
    wanted = list(facts.get("dependencies", []))
    for extra in facts.get("optional-dependencies", {}).values():
        wanted += extra
    pins = (root / "constraints.txt").read_text() if wanted else ""
    pinned = {plain(line) for line in pins.splitlines() if "==" in line}
    for name in sorted({plain(requirement) for requirement in wanted} - pinned):
        yield f"constraints.txt:1: {name} is not pinned"


def plain(requirement: str) -> str:
    """Return the normalised package name of a requirement."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def check_pages(root: Path) -> Iterator[str]:
    for shown, maker in GENERATED_PAGES.items():
        if (root / "src" / Path(*maker.split("."))).with_suffix(".py").exists():
            page = root / shown
            if not page.exists() or page.read_text() != made_page(root, maker):
                yield f"{shown}:1: is not what {maker} prints; run make gen"


def made_page(root: Path, maker: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(root / "src")}
    command = [sys.executable, "-m", maker]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


def write_pages(root: Path) -> None:
    for shown, maker in GENERATED_PAGES.items():
        if (root / "src" / Path(*maker.split("."))).with_suffix(".py").exists():
            (root / shown).write_text(made_page(root, maker))


def main() -> int:
    gc.disable()  # all trees stay in memory: collecting garbage would double the time
    root = Path(__file__).resolve().parent.parent
    if "--write" in sys.argv[1:]:
        write_pages(root)
    faults = check(root)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
