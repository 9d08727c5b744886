"""The worker: a program that calls functions with jobs until it is told to stop.

```python
worker = Worker(namespace="payments")

@worker.task("refund", concurrency=20)
async def refund(job: Job) -> None:
    await send(job.decode(Refund))

worker.run()
```

A job is done when its function returns. It has failed when the function raises, and is tried again
by the settings of its topic. Coroutines run on the event loop, plain functions in threads.
"""

import asyncio
import logging
import signal
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from leveret.http_client.async_connections import CONNECTIONS_MAX
from leveret.http_client.tokens import AsyncTokenSource
from leveret.job_model import LEASE_MS_DEFAULT, LEASE_MS_MAX, LEASE_MS_MIN
from leveret.jobs.client.async_client import AsyncClient
from leveret.jobs.client.service_address import DEFAULT_NAMESPACE, find_service, make_encoder
from leveret.jobs.worker.topic_runner import Handler, Task, TopicRunner

_LOG = logging.getLogger("leveret.jobs")
CONCURRENCY: Final = 10
STOP_S: Final = 25.0  # less than the 30 s that supervisors wait before they kill
_WAIT_S: Final = 20.0  # of one dequeue, at the service
_LEASE_S: Final = LEASE_MS_DEFAULT / 1000

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Worker:
    """Functions by topic, and the program that calls them with jobs."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | AsyncTokenSource | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        concurrency: int = CONCURRENCY,
        lease_s: float = _LEASE_S,
        stop_s: float = STOP_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        # Raises for a wrong address or token here, and not at every call.
        make_encoder(find_service(url, tls), None if callable(token) else token)
        self._url = url
        self._token = token
        self._tls = tls
        self.namespace = namespace
        self.concurrency = concurrency
        self.lease_s = lease_s
        self.stop_s = stop_s
        self._tasks: dict[tuple[str, str], Task] = {}
        self._stop: asyncio.Event | None = None

    def task(
        self,
        topic: str,
        *,
        namespace: str | None = None,
        concurrency: int | None = None,
        lease_s: float | None = None,
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Call the decorated function with each job of a topic, `concurrency` at a time.

        The lease is renewed while the function runs. With a short lease the job comes back soon
        when this program dies.
        """
        given = Task(
            namespace=namespace or self.namespace,
            topic=topic,
            handler=_not_yet,
            concurrency=concurrency or self.concurrency,
            lease_s=lease_s or self.lease_s,
            wait_s=_WAIT_S,
        )
        if given.concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        if not LEASE_MS_MIN <= given.lease_s * 1000 <= LEASE_MS_MAX:
            raise ValueError(
                f"a lease must be from {LEASE_MS_MIN / 1000} s to {LEASE_MS_MAX / 1000} s"
            )

        def decorate(handler: AnyHandler) -> AnyHandler:
            key = (given.namespace, topic)
            if key in self._tasks:
                raise ValueError(f"topic {topic!r} has a task already")
            self._tasks[key] = Task(**{**vars(given), "handler": handler})
            return handler

        return decorate

    def run(self) -> None:
        """Work until SIGTERM or SIGINT; a second one ends the program at once."""
        with asyncio.Runner() as runner:
            runner.run(self._run_with_signals())

    def stop(self) -> None:
        """Take no more jobs; finish running jobs or give them back. Call it on the event loop."""
        if self._stop is not None:
            self._stop.set()

    async def work(self) -> None:
        """Work like `run`, in a program with an event loop and signal handlers of its own."""
        if not self._tasks:
            raise ValueError("the worker has no task")
        self._stop = asyncio.Event()
        client = AsyncClient(
            self._url,
            token=self._token,
            namespace=self.namespace,
            tls=self._tls,
            # Each task waits for jobs on one connection; acks must not wait for that one.
            connections_max=CONNECTIONS_MAX + len(self._tasks),
        )
        async with client, asyncio.TaskGroup() as group:
            for task in self._tasks.values():
                group.create_task(TopicRunner(client, task).run(self._stop, self.stop_s))
        _LOG.info("the worker has stopped")

    async def _run_with_signals(self) -> None:
        loop = asyncio.get_running_loop()
        this = asyncio.current_task()
        assert this is not None

        def on_signal() -> None:
            if self._stop is None or self._stop.is_set():
                this.cancel()
            self.stop()

        with suppress(NotImplementedError):  # Windows: KeyboardInterrupt cancels this task
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, on_signal)
        with suppress(asyncio.CancelledError):
            await self.work()


def _not_yet(_job: object) -> None:
    """Stand in for the handler until the decorator has it."""
