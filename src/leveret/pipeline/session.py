"""Start a Spark session: find Java, and make executors use this Python.

Spark needs Java 17 or newer. This module looks in `JAVA_HOME`, on the path, and in the usual
folders of Linux and macOS. If there is none, the error says how to install it.
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

from py4j.protocol import INPUT_CONVERTER  # type: ignore[import-untyped]
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from leveret.errors import ConfigError
from leveret.pipeline.class_archive import archive_options
from leveret.pipeline.jvm_output import launch_quietly
from leveret.pipeline.spark_home import use_home_without_zip

JAVA_MIN: Final = 17
VERSION_WITHIN_S: Final = 30.0
NO_JAVA: Final = (
    f"Spark needs Java {JAVA_MIN} or newer, and none was found: install it (on Debian:"
    f" apt-get install openjdk-{JAVA_MIN}-jre-headless), or set JAVA_HOME to its folder"
)
LOCAL: Final = "local[*]"

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

_FOLDERS: Final = ("/usr/lib/jvm", "/opt", "/Library/Java/JavaVirtualMachines")
_VERSION: Final = re.compile(r'version "(\d+)')  # printed by `java -version`
_RELEASE: Final = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)  # in the file `release`
# Limit for the connection between the JVM and a Python process of Spark. Spark's default of 15 s is
# too short on a busy machine. Some of its processes read only the environment variable.
CONNECT_S: Final = 120
_CONNECT: Final = "SPARK_AUTH_SOCKET_TIMEOUT"
_SETTINGS: Final = {
    "spark.python.authenticate.socketTimeout": f"{CONNECT_S}s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Parquet files with times of the default kind have no statistics of them: no row is skipped.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
# For log4j. Without an appender Spark would use its own settings. Without a level for the gateway
# Spark would set one and print a line about it.
_QUIET: Final = """\
rootLogger.level = off
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = off
"""
# Loggers of PySpark that write a failed query with its Java stack trace to stderr.
_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
# For commands, most of which are short. The JVM's second compiler takes half of the CPU time of a
# start. With these limits, ten times the default ones, it compiles the code of long scans, and
# little of the code of a start.
_LATE_COMPILING: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=50000"
    " -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000"
    " -XX:Tier4BackEdgeThreshold=400000"
)
# For a fast start: one shuffle partition, no adaptive plans, no Java code generated for a query (a
# tenth of the CPU time of the tests), plans without checks, a JVM that compiles little.
QUICK_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
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
    """Return the running session, or start one. Raise ConfigError if there is no Java.

    `is_quick` is for tests: less than half of the start-up time, but slower queries. `is_quiet` is
    for commands, which report errors themselves: Spark logs nothing, and the JVM prints nothing.
    Its JVM also compiles less of the code that runs seldom.
    """
    home = find_java()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    # Otherwise executors use the first python3 on their path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault(_CONNECT, str(CONNECT_S))
    chosen = {**_SETTINGS, **(QUICK_SETTINGS if is_quick else {}), **(settings or {})}
    if master.startswith("local"):
        spark_home = use_home_without_zip()
        if spark_home is not None and home is not None:
            _add_java_options(chosen, archive_options(spark_home, home))
    builder = SparkSession.builder.appName(name).master(master)
    if is_quiet:
        for logger in _LOGGERS:
            PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL + 1)
        pass_no_numpy_values()
        _add_java_options(chosen, _LATE_COMPILING)
        _add_java_options(chosen, f"-Dlog4j2.configurationFile={_quiet_logging()}")
        launch_quietly({"spark.app.name": name, "spark.master": master, **chosen})
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def pass_no_numpy_values() -> None:
    """Remove PySpark's converters of NumPy values, which commands do not pass to the JVM.

    At their first call the converters import the test helpers of PySpark, with pandas.
    """
    numpy = NumpyArrayConverter, NumpyScalarConverter
    INPUT_CONVERTER[:] = [each for each in INPUT_CONVERTER if not isinstance(each, numpy)]


def _add_java_options(settings: dict[str, str], options: str) -> None:
    """Add options in front of those that are there: the JVM takes the last of two."""
    settings[JAVA_OPTIONS] = f"{options} {settings.get(JAVA_OPTIONS, '')}".strip()


def _quiet_logging() -> Path:
    """Write a logging configuration that logs nothing; it is deleted when this process exits."""
    with tempfile.NamedTemporaryFile("w", suffix=".properties", delete=False) as file:
        file.write(_QUIET)
    atexit.register(Path(file.name).unlink, missing_ok=True)
    return Path(file.name)


def find_java() -> Path | None:
    """Return the home of a Java that is new enough; raise ConfigError if there is none."""
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
    """Yield folders that may hold a Java."""
    for folder in _FOLDERS:
        if Path(folder).is_dir():
            for home in sorted(Path(folder).iterdir(), reverse=True):
                yield home
                yield home / "Contents" / "Home"


def _version(java: Path) -> int:
    """Return the major version of a Java; 0 if it does not exist or cannot run.

    The file `release` beside `bin` has it. Only a Java without this file is started.
    """
    if not os.access(java, os.X_OK):
        return 0
    try:
        found = _RELEASE.search((java.resolve().parent.parent / "release").read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        found = None
    return int(found[1]) if found else _printed_version(java)


def _printed_version(java: Path) -> int:
    """Start a Java and return the major version that it prints; 0 if it cannot run."""
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
