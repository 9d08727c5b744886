"""Check the address of the Spark master before Spark starts.

Spark itself tries an address without a master for a minute, then prints a Java stack trace.
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
    """Raise ConfigError if the kind of master is unknown, or no master answers at its address."""
    if master.startswith(_SPARK):
        _require_answer(master)
    elif master == "yarn":
        if not any(os.environ.get(name) for name in _YARN_FOLDERS):
            raise ConfigError(f"--master yarn needs {' or '.join(_YARN_FOLDERS)} to be set")
    elif not _LOCAL.fullmatch(master) and not master.startswith("k8s://"):
        raise ConfigError(f"--master is one of {MASTERS}, not '{master}'")


def _require_answer(master: str) -> None:
    """Raise ConfigError unless one of the addresses of a master accepts connections."""
    error: OSError | None = None
    for place in master.removeprefix(_SPARK).split(","):
        host, _, port = place.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ConfigError(f"--master is {_SPARK}host:port, not '{master}'")
        try:
            socket.create_connection((host, int(port)), MASTER_WITHIN_S).close()
            return
        except OSError as found:
            error = found
    raise ConfigError(f"no Spark master answers at {master}: {error}")
