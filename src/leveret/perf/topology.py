"""Declare the queues, exchange and bindings of a run, and delete them after it."""

import contextlib
import secrets
from collections.abc import Iterator

from leveret.errors import ClosedError
from leveret.perf.client import Client
from leveret.perf.load import Load
from leveret.perf.protocol import Parser


@contextlib.contextmanager
def declared_topology(load: Load) -> Iterator[list[str]]:
    """Declare the topology, yield the queue names, and clean up. Only yield if predeclared."""
    names = queue_names(load)
    if load.predeclared:
        yield names
        return
    control = Client(load, Parser())
    made: list[str] = []
    has_exchange = False
    try:
        has_exchange = _declare_exchange(control, load)
        for name in names:
            control.declare(name, load)
            made.append(name)
            if load.exchange:
                control.bind(name, load.exchange, binding_keys(load, name), load.binding_arguments)
        yield names
    except BaseException:
        with contextlib.suppress(
            OSError, ClosedError
        ):  # report the first error, not one of the cleanup
            _clean_up(control, made, load.exchange if has_exchange else "")
        raise
    _clean_up(control, made, load.exchange if has_exchange else "")


def queue_names(load: Load) -> list[str]:
    """Return the given or a random name; several queues get numbers."""
    base = load.queue or f"leveret.perf.{secrets.token_hex(4)}"
    return [base] if load.queues == 1 else [f"{base}-{number}" for number in range(load.queues)]


def queues_for_worker(names: list[str], number: int, workers: int) -> list[str]:
    """Return the queues of one worker: a shared one, or several if there are more queues."""
    if workers >= len(names):
        return [names[number % len(names)]]
    return names[number::workers]


def binding_keys(load: Load, queue: str) -> tuple[str, ...]:
    """Return the keys with which a queue is bound to the exchange of the load."""
    return load.binding_keys or load.routing_keys or (queue,)


def _declare_exchange(control: Client, load: Load) -> bool:
    """Declare the exchange, unless it is one of the broker's. Return True if declared."""
    if not load.exchange or load.exchange.startswith("amq."):
        return False
    control.declare_exchange(load.exchange, load.exchange_type, load.durable)
    return True


def _clean_up(control: Client, queues: list[str], exchange: str) -> None:
    try:
        for name in queues:
            control.delete(name)
        if exchange:
            control.delete_exchange(exchange)
    finally:
        control.close()
