"""Let the Python processes of a local Spark start fast.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` first on the path of each Python process that it
starts: workers, planners of data sources, readers of streaming queries. Python keeps no bytecode of
modules in a zip file, so each process compiles PySpark again. That takes 1.7 s of CPU. With the
installed package it takes 0.4 s. Spark gives up on a reader that takes ten seconds to start.

This module makes a home without the zip file: links to the installed one, in the user's cache. The
processes then import the installed package.
"""

import hashlib
import importlib.util
import os
from pathlib import Path
from typing import Final

HOME: Final = "SPARK_HOME"
_LINKED: Final = ("bin", "jars", "sbin")


def use_home_without_zip() -> Path | None:
    """Set SPARK_HOME for this process, unless the user has set it, or the cache is not writable.

    Return the home if it is one that this module has made, now or for an earlier session.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    installed = Path(found.origin).parent
    if not (installed / "jars").is_dir():
        return None  # PySpark without Spark itself
    try:
        home = _home_of(installed)
        if os.environ.get(HOME, str(home)) != str(home):
            return None
        _link(home, installed)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return None
    os.environ[HOME] = str(home)
    return home


def _home_of(installed: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(str(installed).encode()).hexdigest()[:16]
    return cache / "leveret" / f"spark-{name}"


def _link(home: Path, installed: Path) -> None:
    """Make a folder with links to an installed Spark."""
    home.mkdir(parents=True, exist_ok=True)
    for each in _LINKED:
        if not (home / each).is_symlink():
            (home / each).symlink_to(installed / each)
