"""A session that only waits for the log: for whoever is no channel and must know what is safe."""

from collections.abc import Callable

from mypy_extensions import i64

from leveret.engine.turns.session import Outlet, Session
from leveret.engine.turns.turn import Turn


class Waiting(Session):
    """Tells once whether everything up to the turn that it was listed in is on disk."""

    def __init__(self, turn: Turn, tell: Callable[[bool], None]) -> None:
        super().__init__(Outlet(), turn)
        self._tell = tell

    def on_synced(self, seq: i64) -> None:
        self._tell(True)

    def on_unsafe(self, seq: i64) -> None:
        self._tell(False)
