"""Wait for a change of roles in the cluster: whether a node leads, serves clients, or follows."""

import asyncio
import logging
from collections.abc import Callable

from leveret.errors import LeveretError

log = logging.getLogger(__name__)


class RoleChanges:
    """Wakes everybody who waits for a change of roles."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()  # set at every change, and replaced

    def tell(self) -> None:
        """Wake all who wait."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def next(self) -> None:
        """Return at the next change."""
        await self._changed.wait()

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Return when something is true. It is asked at once, and after every change."""
        while not is_true():
            await self._changed.wait()


def failure_text(fault: Exception) -> str:
    """Return why a change of roles failed, for the operator. Log the traceback of a bug."""
    if isinstance(fault, LeveretError | OSError):
        return str(fault)
    log.error("a change of roles failed because of a bug: please report it", exc_info=fault)
    return f"{type(fault).__name__}: {fault}"
