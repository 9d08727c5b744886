"""Carry out `leveret bus asyncapi`: import a program's bus and describe its events."""

import importlib
import json
import sys

from leveret.bus import Bus, SyncBus
from leveret.errors import ConfigError


def document(target: str) -> str:
    """Return the AsyncAPI document of `module:bus`. Raise ConfigError."""
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise ConfigError(f"{target!r} must have the form module:bus")
    sys.path.insert(0, "")  # as `python -m` does: modules of the present folder
    try:
        module = importlib.import_module(module_name)
    except ImportError as fault:
        raise ConfigError(f"the module {module_name} cannot be imported: {fault}") from fault
    found = getattr(module, name, None)
    if not isinstance(found, Bus | SyncBus):
        raise ConfigError(f"{module_name} has no Bus or SyncBus named {name}")
    return json.dumps(found.asyncapi(), indent=2, default=str)
