"""What was installed: the version, and whether the core runs compiled or as Python.

The form is told by looking for one module of the compiled set without importing it: a machine-code
file goes before the source beside it, and PYTHONPATH=src puts the sources before both.
"""

import platform
from importlib.util import find_spec
from typing import Final

from leveret import __version__

# Any module of the compiled set would do.
_WITNESS: Final = "leveret.wire.tables"


def is_compiled() -> bool:
    """Whether the hot core is machine code."""
    spec = find_spec(_WITNESS)
    assert spec is not None and spec.origin is not None, f"{_WITNESS} is not installed"
    return not spec.origin.endswith(".py")


def form() -> str:
    return "compiled" if is_compiled() else "pure Python"


def python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def describe() -> str:
    """One line: `leveret 0.1.0 (compiled, CPython 3.11.7)`."""
    return f"leveret {__version__} ({form()}, {python()})"
