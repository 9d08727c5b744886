"""A Spark session: finds Java, makes executors use this Python, and starts.

Spark needs Java 17 or newer. It is looked for where `JAVA_HOME` points, on the path, and where
Linux distributions put it; where there is none, one sentence says how to get it.
"""

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from leveret.errors import ConfigError

JAVA_MIN: Final = 17
VERSION_WITHIN_S: Final = 30.0
NO_JAVA: Final = (
    f"Spark needs Java {JAVA_MIN} or newer, and none was found: install it (on Debian:"
    f" apt-get install openjdk-{JAVA_MIN}-jre-headless), or set JAVA_HOME to where it is"
)
LOCAL: Final = "local[*]"

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

_FOLDERS: Final = ("/usr/lib/jvm", "/opt", "/Library/Java/JavaVirtualMachines")
_VERSION: Final = re.compile(r'version "(\d+)')
# Within which a Python process of Spark's and the JVM must have found each other. Spark's own 15 s
# are too few for a machine that is busy; some of its processes go by the variable only.
CONNECT_S: Final = 120
_CONNECT: Final = "SPARK_AUTH_SOCKET_TIMEOUT"
_SETTINGS: Final = {
    "spark.python.authenticate.socketTimeout": f"{CONNECT_S}s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
# For log4j; without a place to write to, Spark would take its own settings, and without a level
# for the gateway it would set its own one, and say so.
_QUIET: Final = """\
rootLogger.level = off
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = off
"""
# Of PySpark itself: they write a failed query with all of its Java to stderr.
_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
# Small and quick to start: one shuffle partition, no adaptive plans, a JVM that compiles little.
QUICK_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def spark_session(
    name: str,
    *,
    master: str = LOCAL,
    settings: dict[str, str] | None = None,
    is_quick: bool = False,
    is_quiet: bool = False,
) -> SparkSession:
    """A session, made or found. Raises ConfigError where there is no Java.

    `is_quick` is for tests: less than half of the start-up, and slower queries. `is_quiet` is for
    commands: Spark says nothing by itself, whoever started it tells what fails.
    """
    home = find_java()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    # Otherwise executors take whatever python3 is first on their path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault(_CONNECT, str(CONNECT_S))
    builder = SparkSession.builder.appName(name).master(master)
    chosen = {**_SETTINGS, **(QUICK_SETTINGS if is_quick else {}), **(settings or {})}
    if is_quiet:
        for logger in _LOGGERS:
            PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL + 1)
        quiet = f"-Dlog4j2.configurationFile={_quiet_logging()}"
        chosen[JAVA_OPTIONS] = f"{chosen.get(JAVA_OPTIONS, '')} {quiet}".strip()
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _quiet_logging() -> Path:
    """A file for Spark's logging that lets nothing through; it goes with this process."""
    with tempfile.NamedTemporaryFile("w", suffix=".properties", delete=False) as file:
        file.write(_QUIET)
    atexit.register(Path(file.name).unlink, missing_ok=True)
    return Path(file.name)


def find_java() -> Path | None:
    """The home of a Java that is new enough; None where the one on the path is. ConfigError."""
    on_path = shutil.which("java")
    given = os.environ.get("JAVA_HOME")
    if given and _version(Path(given) / "bin" / "java") >= JAVA_MIN:
        return Path(given)
    if on_path is not None and _version(Path(on_path)) >= JAVA_MIN:
        return Path(on_path).resolve().parent.parent
    for home in _homes():
        if _version(home / "bin" / "java") >= JAVA_MIN:
            return home
    raise ConfigError(NO_JAVA)


def _homes() -> Iterator[Path]:
    """Where Java may be."""
    for folder in _FOLDERS:
        if Path(folder).is_dir():
            for home in sorted(Path(folder).iterdir(), reverse=True):
                yield home
                yield home / "Contents" / "Home"


def _version(java: Path) -> int:
    """The major version of a Java; 0 where it is none, or cannot be run."""
    if not java.is_file():
        return 0
    try:
        done = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=VERSION_WITHIN_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(done.stderr)
    return int(found[1]) if found else 0
