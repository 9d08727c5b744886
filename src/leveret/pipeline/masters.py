"""Spark's masters: is the one that was given of a kind that there is, and does it answer?

Spark itself tries an address that nobody answers for a minute, and says so with a page of Java.
"""

import os
import re
import socket
from typing import Final

from leveret.errors import ConfigError

MASTER_WITHIN_S: Final = 5.0
MASTERS: Final = "local[*], local[4], spark://host:7077, yarn or k8s://…"

_LOCAL: Final = re.compile(r"local(\[(\*|[1-9]\d*)(, *\d+)?\])?|local-cluster\[.+\]")
_SPARK: Final = "spark://"
_YARN_FOLDERS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


def require_master(master: str) -> None:
    """Spark knows this kind of master, and one that has an address answers. ConfigError."""
    if master.startswith(_SPARK):
        _require_answer(master)
    elif master == "yarn":
        if not any(os.environ.get(name) for name in _YARN_FOLDERS):
            raise ConfigError(f"--master yarn needs {' or '.join(_YARN_FOLDERS)} to be set")
    elif not _LOCAL.fullmatch(master) and not master.startswith("k8s://"):
        raise ConfigError(f"--master is one of {MASTERS}, not '{master}'")


def _require_answer(master: str) -> None:
    """One of the addresses of a master takes connections."""
    fault: OSError | None = None
    for place in master.removeprefix(_SPARK).split(","):
        host, _, port = place.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ConfigError(f"--master is {_SPARK}host:port, not '{master}'")
        try:
            socket.create_connection((host, int(port)), MASTER_WITHIN_S).close()
            return
        except OSError as found:
            fault = found
    raise ConfigError(f"no Spark master answers at {master}: {fault}")
