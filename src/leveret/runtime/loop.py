"""Which event loop a node runs on: uvloop where it is installed, the standard one elsewhere."""

import asyncio
from collections.abc import Callable

from leveret.errors import ConfigError


def loop_factory(name: str = "auto") -> Callable[[], asyncio.AbstractEventLoop]:
    """The maker of loops by the setting `event_loop`; ConfigError when there is no uvloop."""
    if name == "asyncio":
        return asyncio.new_event_loop
    try:
        import uvloop
    except ImportError as fault:
        if name == "uvloop":
            raise ConfigError("event_loop: uvloop is not installed") from fault
        return asyncio.new_event_loop
    return uvloop.new_event_loop
