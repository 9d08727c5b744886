"""A thread with one connection. Its error is kept, and it can always be stopped."""

import threading
from collections.abc import Sequence
from typing import Final

from leveret.perf.client import Client

STOP_S: Final = 5.0  # then the socket of a worker that does not end is shut down


class Worker(threading.Thread):
    """Runs `work` until `stopping` is set."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.stopping = False
        self.start_s = 0.0  # when the run starts, by the monotonic clock
        self.error: Exception | None = None  # the error that ended `work` early

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


def stop_workers(workers: Sequence[Worker]) -> None:
    """Stop all workers and wait for them. Shut down the socket of a worker that hangs."""
    for worker in workers:
        worker.stopping = True
        if not worker.client.has_read_timeout:
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
