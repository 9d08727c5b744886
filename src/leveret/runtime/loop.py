"""Choose the event loop: uvloop if it is installed, otherwise the standard one."""

import asyncio
from collections.abc import Callable

from leveret.errors import ConfigError


def loop_factory(name: str = "auto") -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the factory for the setting `event_loop`. Raises ConfigError if uvloop is missing."""
    if name == "asyncio":
        return asyncio.new_event_loop
    try:
        import uvloop
    except ImportError as fault:
        if name == "uvloop":
            raise ConfigError(
                "event_loop: uvloop is not installed: run pip install uvloop, or choose auto"
            ) from fault
        return asyncio.new_event_loop
    return uvloop.new_event_loop
