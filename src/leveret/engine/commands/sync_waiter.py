"""A session that only waits for the log. It learns when everything of a turn is on disk."""

from collections.abc import Callable

from mypy_extensions import i64

from leveret.engine.turns.session import Outlet, Session
from leveret.engine.turns.turn import Turn


class SyncWaiter(Session):
    """Calls back once: True if everything up to its turn is on disk, False if it failed."""

    def __init__(self, turn: Turn, tell: Callable[[bool], None]) -> None:
        super().__init__(Outlet(), turn)
        self._tell = tell

    def on_synced(self, seq: i64) -> None:
        self._tell(True)

    def on_unsafe(self, seq: i64) -> None:
        self._tell(False)
