"""Runs one node until it is told to stop: loop, logging, signals, the ready line.

The ready line on stdout is a promise to scripts and is printed once, when all ports accept
connections. SIGTERM and SIGINT drain the node and the exit code is 0; a second signal ends the
process at once; SIGHUP reads certificates again. Until the node has recovered there is nothing to
drain, and the loop would not run for as long: one signal ends the process at once, with code 0,
which recovery survives as it survives a kill. A node that cannot start says why in one line on
stderr, and the code is 1.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys

from leveret import build_info
from leveret.clock import Clock
from leveret.config.settings import Settings
from leveret.errors import ConfigError, StorageError
from leveret.runtime import logs
from leveret.runtime.loop import loop_factory
from leveret.runtime.node import Node
from leveret.storage.disk import Disk

log = logging.getLogger(__name__)

# Full collections walk every message object; at the default thresholds a million of them stopped
# the loop for 171 ms. The core's objects are acyclic, so collecting rarely loses nothing.
GC_THRESHOLDS = (100_000, 50, 1000)


def serve(settings: Settings) -> int:
    """Runs a node in this thread; returns the exit code of the process."""
    logs.configure(settings.log_level, settings.log_format)
    with asyncio.Runner(loop_factory=loop_factory(settings.event_loop)) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    stopping = asyncio.Event()
    _raise_descriptor_limit()
    node = Node(settings, Clock(), disk=Disk(settings.data))
    gc.disable()  # a start makes many objects that stay: looking through them is most of its time
    try:
        await node.start(on_recovered=lambda: _stop_on_signals(stopping))
    except OSError as fault:
        sys.stderr.write(f"leveret serve: cannot start: {_reason(fault, settings)}\n")
        return 1
    except (ConfigError, StorageError) as fault:
        sys.stderr.write(f"leveret serve: cannot start: {fault}\n")
        return 1
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(*GC_THRESHOLDS)
    _reload_on_hangup(node)
    try:
        _say_ready(node)
    except OSError as fault:  # nobody reads it, or the file is on a full disk: the node runs
        log.warning("the ready line was not printed: %s", fault.strerror)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _log_start(node)
    await stopping.wait()
    log.info("the node stops")
    await node.stop()
    log.info("the node has stopped")
    return 1 if node.jobs.has_failed else 0


def _reason(fault: OSError, settings: Settings) -> str:
    """Why a file or an address cannot be used, and which one."""
    reason = fault.strerror or str(fault)
    if isinstance(fault, socket.gaierror):
        return f"host is {settings.host}: {reason}"
    if fault.filename is not None:
        return f"{os.fsdecode(fault.filename)}: {reason}"
    return reason


def _log_start(node: Node) -> None:
    told: dict[str, object] = {
        "version": build_info.describe(),
        "node": node.settings.node,
        "amqp": _shown(node.amqp_address),
        "http": _shown(node.http_address),
        "durability": node.view.durability,
        "memory_limit": node.memory_limit_bytes,
    }
    if node.recovered is not None:
        told["messages"] = node.recovered.messages
        told["log_files"] = len(node.recovered.files)
    log.info("the node has started", extra={"facts": told})


def _raise_descriptor_limit() -> None:
    """Every connection is a descriptor: take as many as this process may have."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _stop_on_signals(stopping: asyncio.Event) -> None:
    """Drain from now on; before, signals ended the process (`cli.main`)."""
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


def _reload_on_hangup(node: Node) -> None:
    """SIGHUP: read certificates again."""
    with contextlib.suppress(AttributeError, NotImplementedError):  # Windows has no such signal
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, node.reload)


def _say_ready(node: Node) -> None:
    if sys.stdout is None:  # it was closed before the node began
        return
    amqp = _shown(node.amqp_address)
    http = _shown(node.http_address)
    ways = [f"amqp={amqp}", f"http={http}"]
    for name, address in (("amqps", node.amqps_address), ("https", node.https_address)):
        if address is not None:
            ways.append(f"{name}={_shown(address)}")
    sys.stdout.write(f"leveret ready {' '.join(ways)}\n")
    if sys.stdout.isatty():
        settings = node.settings
        is_public = settings.default_pass == "guest"  # everybody knows this one
        login = f"{settings.default_user}:{'guest' if is_public else '…'}"
        sys.stdout.write(
            f"\n  Publish and consume   amqp://{login}@{amqp}/ with any RabbitMQ client\n"
            f"  Look inside           http://{http}/ in a browser, or leveret ctl --help\n"
            f"  First message         README.md; Ctrl+C stops the broker\n\n"
        )
    sys.stdout.flush()


def _shown(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
