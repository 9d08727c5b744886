"""Say why a node cannot start: the option at fault as the operator gave it, and what to do.

Faults of addresses are found where the node listens: `naming` gives them the names of their
options. `start_fault` makes the one line for the operator, for these and for all other faults.
"""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from leveret.config.settings import Settings
from leveret.errors import ConfigError
from leveret.storage.disk import LOCK_FILE

# Faults of a path whose own text does not say what is wrong with a data directory.
_PATH_FAULTS: Final = {
    errno.EEXIST: "it is a file",
    errno.ENOTDIR: "a part of this path is a file",
    errno.ENOENT: "it cannot be created there",
}
# Faults of listening, each with the reason and the advice.
_IN_USE: Final = "another program uses this port: stop it, or choose another port"
_NOT_HERE: Final = (
    "this machine does not have this address: give an address of this machine, or 0.0.0.0 for all"
)
_FORBIDDEN: Final = (
    "this user may not use this port: choose a port from 1024 on, or give the process the"
    " capability CAP_NET_BIND_SERVICE"
)
_UNKNOWN_NAME: Final = "this host name has no address: correct it, or give an address instead"


@contextmanager
def naming(host_option: str, host: str, port_option: str, port: int) -> Iterator[None]:
    """Raise ConfigError with the name of the option if an address cannot be listened on."""
    try:
        yield
    except socket.gaierror as fault:
        text = f"{host_option}: cannot listen on {host} ({fault.strerror}): {_UNKNOWN_NAME}"
        raise ConfigError(text) from fault
    except OSError as fault:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if fault.errno == errno.EADDRNOTAVAIL:
            text = f"{host_option}: cannot listen on {host}: {_NOT_HERE}"
        elif fault.errno == errno.EADDRINUSE:
            text = f"{port_option}: cannot listen on {where}: {_IN_USE}"
        elif fault.errno in (errno.EACCES, errno.EPERM) and fault.filename is None:
            text = f"{port_option}: cannot listen on {where}: {_FORBIDDEN}"
        else:
            raise
        raise ConfigError(text) from fault


def start_fault(fault: Exception, settings: Settings) -> str:
    """Return why a node cannot start: the option, file or address at fault, and what to do."""
    if isinstance(fault, OSError):
        return _file_fault(fault, settings)
    return settings.placed(str(fault))


def _file_fault(fault: OSError, settings: Settings) -> str:
    reason = fault.strerror or str(fault)
    if fault.filename is None:
        return reason
    path = Path(os.fsdecode(fault.filename))
    data = settings.data
    place = settings.place("data")
    is_data = path in (data, *data.parents, data / LOCK_FILE)
    is_denied = fault.errno == errno.EACCES and os.path.exists(data)
    if is_denied and (is_data or path.is_relative_to(data)):
        advice = f"give {data} and its files to the user of the node (chown -R)"
        return f"{place}: {path}: {reason}; {advice}"
    if not is_data:
        return f"{path}: {reason}"
    reason = _PATH_FAULTS.get(fault.errno or 0, reason)
    return f"{place}: {path}: {reason}; choose a data directory that this user can write to"
