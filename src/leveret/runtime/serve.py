"""Run one node until it is told to stop: event loop, logging, signals, the ready line.

The ready line on stdout is an interface for scripts. It is printed once, when all ports accept
connections. SIGTERM and SIGINT drain the node, and the exit code is 0; a second signal ends the
process at once. SIGHUP reads certificates and keys of tokens again. During recovery the loop does
not run and there is nothing to drain, so one signal ends the process at once, with code 0; the next
start recovers as after a kill. A node that cannot start prints the reason as one line on stderr;
the exit code is 1.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from leveret import build_info
from leveret.addresses import shown_address
from leveret.clock import Clock
from leveret.config.settings import Settings
from leveret.errors import ConfigError, LeveretError, StorageError
from leveret.runtime import logs
from leveret.runtime.clustered import ClusteredNode
from leveret.runtime.loop import loop_factory
from leveret.runtime.node import Node
from leveret.runtime.start_faults import start_fault
from leveret.storage.disk import Disk

log = logging.getLogger(__name__)

# A full collection visits every message object: with a million messages it blocked the loop for
# 171 ms at the default thresholds. The core's objects form no cycles, so rare collections suffice.
GC_THRESHOLDS = (100_000, 50, 1000)
DESCRIPTORS_FEW: Final = 1024  # a node that may open fewer files warns
DESCRIPTORS_MIN: Final = 64  # with fewer, HTTP refuses its first client: an idle node uses 20
YEAR_MAX: Final = 2080  # a clock that shows a later one is wrong
RAISE_DESCRIPTORS: Final = "raise the limit (`ulimit -Hn`, LimitNOFILE of systemd)"


def serve(settings: Settings) -> int:
    """Run a node in this thread. Return the exit code of the process."""
    year = datetime.fromtimestamp(Clock().now_ms() / 1000, UTC).year
    if year > YEAR_MAX:
        sys.stderr.write(
            f"leveret serve: cannot start: the clock of this machine shows the year {year}: set "
            "it, because the log keeps the newest time, and ids of jobs end in 2089\n"
        )
        return 1
    logs.configure(settings.log_level, settings.log_format)
    descriptors = _raise_descriptor_limit()
    if 0 <= descriptors < DESCRIPTORS_MIN:
        sys.stderr.write(
            f"leveret serve: cannot start: only {descriptors} files may be open, and a node needs "
            f"at least {DESCRIPTORS_MIN}: {RAISE_DESCRIPTORS}\n"
        )
        return 1
    if 0 <= descriptors < DESCRIPTORS_FEW:
        log.warning(
            "only %d files may be open, and each client needs one: %s",
            descriptors,
            RAISE_DESCRIPTORS,
        )
    try:
        factory = loop_factory(settings.event_loop)
    except ConfigError as fault:
        sys.stderr.write(f"leveret serve: cannot start: {start_fault(fault, settings)}\n")
        return 1
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    if settings.cluster_listen:
        return await _serve_in_cluster(settings)
    stopping = asyncio.Event()
    gc.disable()  # a start makes many objects that stay; collections would take most of its time
    try:
        node = Node(settings, Clock(), disk=Disk(settings.data))
        await node.start(on_recovered=lambda: _stop_on_signals(stopping))
    except (OSError, ConfigError, StorageError) as fault:
        sys.stderr.write(f"leveret serve: cannot start: {start_fault(fault, settings)}\n")
        return 1
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(*GC_THRESHOLDS)
    _reload_on_hangup(node.reload)
    try:
        _say_ready(node)
    except OSError as fault:  # stdout is a closed pipe or on a full disk: go on without it
        log.warning("the ready line was not printed: %s", fault.strerror)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _log_start(node)
    await stopping.wait()
    log.info("the node stops")
    await node.stop()
    log.info("the node has stopped")
    return 1 if node.jobs.has_failed else 0


async def _serve_in_cluster(settings: Settings) -> int:
    stopping = asyncio.Event()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        clustered = ClusteredNode(settings, Clock())
        await clustered.start()
    except (OSError, LeveretError) as fault:
        sys.stderr.write(f"leveret serve: cannot start: {start_fault(fault, settings)}\n")
        return 1
    _stop_on_signals(stopping)
    _reload_on_hangup(clustered.reload)
    loop = asyncio.get_running_loop()
    ready = loop.create_task(_say_ready_in_cluster(clustered))
    told = loop.create_task(stopping.wait())
    await asyncio.wait((told, clustered.node.ended), return_when=asyncio.FIRST_COMPLETED)
    log.info("the node stops")
    for task in (ready, told):
        task.cancel()
    await clustered.stop()
    log.info("the node has stopped")
    if clustered.node.ended.done():
        sys.stderr.write(f"leveret serve: {clustered.node.ended.result()}\n")
        return 1
    return 0


async def _say_ready_in_cluster(clustered: ClusteredNode) -> None:
    """Print the ready line when clients are served, by this node or through it."""
    await clustered.serves()
    ways = [f"{name}={shown_address(found)}" for name, found in clustered.addresses.items()]
    ways.append(f"cluster={clustered.settings.cluster_listen}")
    if sys.stdout is not None:
        sys.stdout.write(f"leveret ready {' '.join(ways)}\n")
        sys.stdout.flush()


def _log_start(node: Node) -> None:
    facts: dict[str, object] = {
        "version": build_info.describe(),
        "node": node.settings.node,
        "amqp": shown_address(node.amqp_address),
        "http": shown_address(node.http_address),
        "durability": node.view.durability,
        "memory_limit": node.memory_limit_bytes,
        **node.recovered_facts,
    }
    log.info("the node has started", extra={"facts": facts})


def _raise_descriptor_limit() -> int:
    """Raise the limit of descriptors to its maximum and return it; -1 if there is none."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return -1
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _stop_on_signals(stopping: asyncio.Event) -> None:
    """Let signals drain the node from now on; before, they ended the process (`cli.main`)."""
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, on_signal, number)
        except NotImplementedError:  # Windows: Ctrl+C still ends the runner
            signal.signal(number, lambda n, frame: loop.call_soon_threadsafe(on_signal, n))


def _reload_on_hangup(reload: Callable[[], None]) -> None:
    """Read certificates and keys of tokens again on SIGHUP."""
    with contextlib.suppress(AttributeError, NotImplementedError):  # Windows has no such signal
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)


def _say_ready(node: Node) -> None:
    if sys.stdout is None:  # the parent process has closed it
        return
    amqp = shown_address(node.amqp_address)
    http = shown_address(node.http_address)
    ways = [f"amqp={amqp}", f"http={http}"]
    for name, address in (("amqps", node.amqps_address), ("https", node.https_address)):
        if address is not None:
            ways.append(f"{name}={shown_address(address)}")
    sys.stdout.write(f"leveret ready {' '.join(ways)}\n")
    if sys.stdout.isatty():
        url = "" if http == "127.0.0.1:15672" else f" --url http://{http}"
        login = "guest:guest@" if node.directory.has_public_login() else ""
        sys.stdout.write(
            f"\n  Publish and consume   amqp://{login}{amqp}/ with any RabbitMQ client\n"
            f"  Look inside           http://{http}/ in a browser\n"
            f"  First message         leveret ctl declare queue hello{url}\n"
            f"                        leveret ctl publish -k hello 'Hello, hare!'{url}\n"
            f"  Documents             http://{http}/#/manual/docs/index.md\n"
            f"  All commands          leveret --help; Ctrl+C stops the broker\n\n"
        )
    sys.stdout.flush()
