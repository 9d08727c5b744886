"""The JavaScript modules of the page: every import leads to a file, and no imports form a ring."""

import re
from pathlib import Path

from leveret.http import framework

PAGE = Path(framework.__file__).parent.parent / "page"
COMMENT = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.DOTALL)
# `import … from "x"`, `export … from "x"`, `import "x"`, and `import("x")` at run time.
IMPORT = re.compile(r"""(?:\bfrom|\bimport)\s*\(?\s*["'](\.[^"']*)["']""")

Imports = dict[str, list[str]]


def imports_of(module: Path) -> list[str]:
    """Return the modules that a module imports, as paths below the page."""
    text = COMMENT.sub("", module.read_text())
    found = [(module.parent / name).resolve() for name in IMPORT.findall(text)]
    return [path.relative_to(PAGE).as_posix() for path in found]


def maybe_ring(imports: Imports) -> list[str] | None:
    """Return the modules of one ring in their order, or None."""
    finished: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str] | None:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in finished:
            return None
        for imported in imports[module]:
            ring = visit(imported, [*path, module])
            if ring is not None:
                return ring
        finished.add(module)
        return None

    rings = (visit(module, []) for module in imports)
    return next((ring for ring in rings if ring is not None), None)


def page_imports() -> Imports:
    modules = sorted(PAGE.rglob("*.js"))
    return {path.relative_to(PAGE).as_posix(): imports_of(path) for path in modules}


def test_imports_of_the_page_form_no_ring() -> None:
    assert maybe_ring(page_imports()) is None


def test_imports_of_the_page_lead_to_files() -> None:
    imports = page_imports()
    missing = {name for names in imports.values() for name in names if name not in imports}
    assert missing == set()


def test_all_views_are_imported() -> None:
    """The expression above finds the imports, those at run time included."""
    imports = page_imports()
    reached: set[str] = set()
    waiting = ["main.js"]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += imports[module]
    assert reached == set(imports) - {"theme.js"}


def test_a_ring_is_found() -> None:
    assert maybe_ring({"a": ["b"], "b": ["c"], "c": []}) is None
    assert maybe_ring({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
