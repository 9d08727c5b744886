"""A thread around one connection, with an error that is not lost and an end that comes for sure."""

import threading
from collections.abc import Sequence
from typing import Final

from leveret.perf.client import Client

STOP_S: Final = 5.0  # after which a worker that does not end is cut off


class Worker(threading.Thread):
    """Does `work` until it is told to stop."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.stopping = False
        self.start_s = 0.0  # when the run begins, by the monotonic clock
        self.error: Exception | None = None  # what ended it before its time

    def work(self) -> None:
        """Load the broker until `stopping`."""
        raise NotImplementedError

    def run(self) -> None:
        try:
            self.work()
            self.client.close()
        except Exception as error:  # raised again by raise_error, in the main thread
            if not self.client.is_hung_up:
                self.error = error


def stop(workers: Sequence[Worker]) -> None:
    """Tell all to stop and wait for them, a while; those that hang are cut off."""
    for worker in workers:
        worker.stopping = True
        if not worker.client.wakes:
            worker.client.hang_up()
    for worker in workers:
        worker.join(STOP_S)
        if worker.is_alive():
            worker.client.hang_up()
            worker.join(STOP_S)


def raise_error(workers: Sequence[Worker]) -> None:
    """Raise the first error that ended a worker."""
    for worker in workers:
        if worker.error is not None:
            raise worker.error
