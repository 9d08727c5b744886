"""Keep the output of Spark's JVM away from the terminal, and its last lines for errors.

A JVM prints lines that no log setting turns off, such as `WARNING: Using incubator modules`. A
thread reads them, so that the JVM never waits for a full pipe, and keeps the last `LINES_MAX`.
"""

import os
import threading
from collections import deque
from typing import Any, Final, TextIO

from pyspark import SparkConf
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from leveret.errors import ConfigError

LINES_MAX: Final = 50
LINE_CHARACTERS_MAX: Final = 1_000
_END_WITHIN_S: Final = 5.0  # for the last lines of a JVM that has ended
# Lines that say nothing about a failure.
_NOISE: Final = ("WARNING: Using incubator modules", "log4j", "Picked up ")

_last: deque[str] = deque(maxlen=LINES_MAX)


def launch_quietly(settings: dict[str, str]) -> None:
    """Start the JVM of this process, unless it runs. Raise ConfigError with its last line."""
    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    read, write = os.pipe()
    output = os.fdopen(read, errors="replace")
    reader = threading.Thread(target=_keep, args=[output], name="jvm output", daemon=True)
    reader.start()
    try:
        launch: Any = launch_gateway  # it has no types
        gateway = launch(conf, {"stdout": write, "stderr": write})
    except PySparkRuntimeError as fault:
        os.close(write)
        reader.join(_END_WITHIN_S)
        text = last_line() or "it printed nothing"
        raise ConfigError(f"Java could not be started for Spark: {text}") from fault
    os.close(write)
    SparkContext._ensure_initialized(gateway=gateway)


def last_line() -> str:
    """Return the last line that the JVM printed about itself; empty if there is none."""
    for line in reversed(_last):
        if line.strip() and not line.startswith(_NOISE):
            return line.strip()
    return ""


def _keep(output: TextIO) -> None:
    with output:
        while line := output.readline(LINE_CHARACTERS_MAX):
            _last.append(line)
