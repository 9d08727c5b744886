"""Version, and whether the core is compiled or plain Python.

The form is found without importing the core: it depends on whether Python would load one module of
the compiled set from machine code or from source. Machine code comes before the source beside it,
and PYTHONPATH=src puts the sources before both.
"""

import platform
from importlib.util import find_spec
from typing import Final

from leveret import __version__

# Any module of the compiled set would do.
_PROBED_MODULE: Final = "leveret.wire.tables"


def is_compiled() -> bool:
    """Return True if the core is machine code."""
    spec = find_spec(_PROBED_MODULE)
    assert spec is not None and spec.origin is not None, f"{_PROBED_MODULE} is not installed"
    return not spec.origin.endswith(".py")


def form() -> str:
    return "compiled" if is_compiled() else "pure Python"


def python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def describe() -> str:
    """Return one line: `leveret 0.1.0 (compiled, CPython 3.11.7)`."""
    return f"leveret {__version__} ({form()}, {python()})"
