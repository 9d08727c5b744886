"""What the commands of `leveret bus` share: the broker's address, a place, and how they end.

The event bus is an extra of Leveret and its client library takes a while to import: both are why
`leveret.bus` is imported by the commands that run, not with the command line.
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
    str, typer.Option("--amqp-url", envvar="LEVERET_AMQP_URL", help="Address of the broker.")
]
Service = Annotated[
    str | None, typer.Option("--service", help="A service of the fanout bus: wms-orders.")
]
Queue = Annotated[
    str | None, typer.Option("--queue", help="A queue of the topic topology: my-service.events.")
]
PrintJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@dataclass(frozen=True)
class Asked:
    """What every command is told: the broker, the queue, and which of its messages."""

    amqp_url: str
    service: str | None
    queue: str | None
    dlq: str | None
    conditions: dict[str, Any]  # fields of LetterFilter
    scan_max: int
    output: Output


@dataclass(frozen=True)
class RunOptions:
    """What `leveret bus run` is told."""

    service: str
    target_url: str
    is_topic: bool
    exchange: str
    routing_keys: tuple[str, ...]
    queue_type: str
    max_retries: int | None  # None = as the topology has it
    retry_delay_s: float | None
    concurrency: int
    timeout_s: float
    headers: dict[str, str]
    health_host: str
    health_port: int | None  # None = no health port
    amqp_url: str
    as_json: bool


class Place(NamedTuple):
    """A dead-letter queue, and where its messages came from."""

    dlq: str
    queue: str | None  # None = only the messages themselves can say


def place_of(service: str | None, queue: str | None, dlq: str | None) -> Place:
    """The place that the options name: exactly one of the three."""
    from leveret.bus import fanout, topic

    if sum(given is not None for given in (service, queue, dlq)) != 1:
        raise typer.BadParameter("say --service, --queue or --dlq, one of them")
    if service is not None:
        return Place(fanout.dlq_name(service), fanout.queue_name(service))
    if queue is not None:
        return Place(topic.dlq_name(queue), queue)
    assert dlq is not None
    return Place(dlq, None)


@contextmanager
def one_line_on_failure() -> Iterator[None]:
    """What goes wrong is one line and exit code 1."""
    try:
        yield
    except (LeveretError, ValueError) as fault:
        typer.echo(f"leveret bus: {fault}", err=True)
        raise typer.Exit(1) from fault
    except ModuleNotFoundError as fault:
        text = f"{fault.name} is missing: install leveret with its extra `bus`"
        typer.echo(f"leveret bus: {text}", err=True)
        raise typer.Exit(1) from fault


def quieten_client() -> None:
    """The client library tells of each lost connection by a traceback; one line is enough."""
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)


def on_signal(stop: Callable[[], object]) -> None:
    """Ctrl+C and SIGTERM end the work between two messages, instead of breaking it off."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
