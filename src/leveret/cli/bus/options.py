"""Shared options of `leveret bus`, the names of dead-letter queues, and one-line errors.

The event bus is an optional extra of Leveret, and its client library takes a while to import. The
commands therefore import `leveret.bus` when they run.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

import typer

from leveret.cli.shared.output import Output
from leveret.errors import LeveretError

DEFAULT_AMQP_URL: Final = "amqp://guest:guest@127.0.0.1:5672/"

AmqpUrl = Annotated[
    str, typer.Option("--amqp-url", envvar="LEVERET_AMQP_URL", help="AMQP address of the broker.")
]
AmqpUrls = Annotated[
    list[str] | None,
    typer.Option(
        "--amqp-url",
        envvar="LEVERET_AMQP_URL",
        help="AMQP address of the broker. Repeatable: one for each node of a cluster.",
    ),
]
Service = Annotated[
    str | None,
    typer.Option("--service", help="A service of the fanout topology, such as wms-orders."),
]
Queue = Annotated[
    str | None,
    typer.Option("--queue", help="A queue of the topic topology, such as my-service.events."),
]
PrintJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@dataclass(frozen=True)
class DlqRequest:
    """Options of all `dlq` commands: the broker, the queue, and a filter for its messages."""

    amqp_url: str
    service: str | None
    queue: str | None
    dlq: str | None
    conditions: dict[str, Any]  # fields of DeadLetterFilter
    scan_max: int
    output: Output


@dataclass(frozen=True)
class RunOptions:
    """Options of `leveret bus run`."""

    service: str
    target_url: str
    is_topic: bool
    exchange: str
    routing_keys: tuple[str, ...]
    queue_type: str
    max_retries: int | None  # None = the topology's default
    retry_delay_s: float | None
    concurrency: int
    timeout_s: float
    headers: dict[str, str]
    health_host: str
    health_port: int | None  # None = no health port
    amqp_urls: tuple[str, ...]
    as_json: bool


class DlqNames(NamedTuple):
    """Names of a dead-letter queue and of the queue that its messages came from."""

    dlq: str
    queue: str | None  # None = unknown; the headers of each message tell it


def dlq_names(service: str | None, queue: str | None, dlq: str | None) -> DlqNames:
    """Return the queue names for the one option of the three that is given."""
    from leveret.bus import fanout, topic

    if sum(given is not None for given in (service, queue, dlq)) != 1:
        raise typer.BadParameter("give exactly one of --service, --queue and --dlq")
    if service is not None:
        return DlqNames(fanout.dlq_name(service), fanout.queue_name(service))
    if queue is not None:
        return DlqNames(topic.dlq_name(queue), queue)
    assert dlq is not None
    return DlqNames(dlq, None)


@contextmanager
def one_line_on_failure() -> Iterator[None]:
    """Turn an error into one line on stderr and exit code 1."""
    try:
        yield
    except (LeveretError, ValueError) as fault:
        typer.echo(f"leveret bus: {fault}", err=True)
        raise typer.Exit(1) from fault
    except ModuleNotFoundError as fault:
        text = f"{fault.name} is missing: pip install 'leveret[bus]'"
        typer.echo(f"leveret bus: {text}", err=True)
        raise typer.Exit(1) from fault


def silence_client_log() -> None:
    """Hide the client library's tracebacks for lost connections: our own error line is enough."""
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)


def stop_on_signal(stop: Callable[[], object]) -> None:
    """Call `stop` on Ctrl+C and SIGTERM, so that work ends between two messages."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
