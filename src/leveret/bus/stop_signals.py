"""Turn SIGTERM and SIGINT into a request to stop.

A service that is told to end finishes its running handlers first. A second signal has its usual
effect, so that an operator can end a service whose handlers hang. Python lets only the main thread
handle signals; in another thread nothing is changed.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_TERMINATED: Final = 128 + signal.SIGTERM  # the exit code that shells give to an end by SIGTERM


@contextlib.contextmanager
def on_stop_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the running event loop at the first signal, within the block."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        remove()
        stop()

    def remove() -> None:
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with contextlib.suppress(NotImplementedError):  # Windows
        for number in SIGNALS:
            loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        with contextlib.suppress(NotImplementedError):
            remove()


class StoppedBySignal(SystemExit):
    """SIGTERM came. If nobody catches it, the program ends with the usual exit code."""


class ExitOnTerminate:
    """Turns SIGTERM into StoppedBySignal in the main thread, as SIGINT is a KeyboardInterrupt.

    So `with` blocks end in order. A handler of the program itself is left in place.
    """

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Begin, if this is the main thread and SIGTERM would kill the process."""
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _exit)
            self._is_set = True

    def reset(self) -> None:
        """End, if it was begun."""
        if self._is_set and signal.getsignal(signal.SIGTERM) is _exit:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._is_set = False


def _exit(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one kills
    raise StoppedBySignal(_TERMINATED)
