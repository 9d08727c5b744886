"""A thread that uses the broker whenever it is up."""

import contextlib
import threading
from random import Random
from typing import Final

from leveret.clock import Clock
from tests.compat.client import NoAnswerError
from tools.server import Server

ENDED: Final = (NoAnswerError, OSError)  # how a connection ends whose broker was killed
END_WITHIN_S: Final = 60.0


class Actor(threading.Thread):
    """Repeats its work until it is told to stop."""

    def __init__(self, name: str, server: Server, rng: Random) -> None:
        super().__init__(name=name, daemon=True)
        self.server = server
        self.rng = rng
        self.clock = Clock()
        self.stopping = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                with contextlib.suppress(*ENDED):
                    self.work()
        except Exception as error:  # raised again by `join`
            self._error = error

    def work(self) -> None:
        """Use one connection until it ends or the actor is told to stop."""
        raise NotImplementedError

    def end(self) -> None:
        """Wait until it has stopped, as it has been told to."""
        self.join(END_WITHIN_S)
        if self.is_alive():
            raise RuntimeError(f"{self.name} does not end")
        if self._error is not None:
            raise self._error
