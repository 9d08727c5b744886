"""The Typer application `leveret bus`, and the options of its command `run`.

`run.py` carries out `run` and is imported when the command runs. `dlq.py` has the commands `dlq`.
"""

from enum import StrEnum
from typing import Annotated

import typer

from leveret.cli.bus import dlq
from leveret.cli.bus.options import (
    DEFAULT_AMQP_URL,
    AmqpUrls,
    PrintJson,
    RunOptions,
    one_line_on_failure,
)
from leveret.cli.ctl.objects import parse_pairs
from leveret.cli.shared.groups import GROUPS

app = typer.Typer(no_args_is_help=True, help=GROUPS["bus"])
app.add_typer(dlq.app, name="dlq")


class TopologyName(StrEnum):
    """The topologies a service can use."""

    FANOUT = "fanout"
    TOPIC = "topic"


class QueueTypeName(StrEnum):
    """The queue types of the topic topology."""

    QUORUM = "quorum"
    CLASSIC = "classic"


ServiceName = Annotated[
    str,
    typer.Option(
        "--service", help="Name of the service; with the topic topology, name of its queue."
    ),
]
MaxRetries = Annotated[
    int | None,
    typer.Option("--max-retries", min=0, help="Retries before a message becomes a dead letter."),
]


@app.command()
def run(
    service: ServiceName,
    target_url: Annotated[str, typer.Option("--url", help="URL that each message is posted to.")],
    topology: Annotated[
        TopologyName, typer.Option("--topology", help="fanout or topic.")
    ] = TopologyName.FANOUT,
    exchange: Annotated[
        str, typer.Option("--exchange", help="Topic topology: the exchange to consume from.")
    ] = "",
    routing_key: Annotated[
        list[str] | None,
        typer.Option("--routing-key", help="Topic topology: a routing key. Repeatable."),
    ] = None,
    queue_type: Annotated[
        QueueTypeName, typer.Option("--queue-type", help="Topic topology: quorum or classic.")
    ] = QueueTypeName.QUORUM,
    max_retries: MaxRetries = None,
    retry_delay_s: Annotated[
        float | None,
        typer.Option("--retry-delay-s", min=0.001, help="Seconds between two attempts."),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, help="Maximum number of concurrent requests.")
    ] = 8,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.001, help="Timeout of a request in seconds.")
    ] = 30.0,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", help="HTTP header KEY=VALUE for each request. Repeatable."),
    ] = None,
    health_port: Annotated[
        int | None,
        typer.Option(
            "--health-port", min=0, help="Port for health checks: answers 200 while it consumes."
        ),
    ] = None,
    health_host: Annotated[
        str, typer.Option("--health-host", help="Address that the health port listens on.")
    ] = "127.0.0.1",
    amqp_url: AmqpUrls = None,
    print_json: PrintJson = False,
) -> None:
    """Post each message of a service to a URL. The HTTP status decides how it is settled."""
    with one_line_on_failure():
        from leveret.cli.bus import run

        options = RunOptions(
            service=service,
            target_url=target_url,
            is_topic=topology is TopologyName.TOPIC,
            exchange=exchange,
            routing_keys=tuple(routing_key or ()),
            queue_type=str(queue_type),
            max_retries=max_retries,
            retry_delay_s=retry_delay_s,
            concurrency=concurrency,
            timeout_s=timeout_s,
            headers={name: str(value) for name, value in parse_pairs(header).items()},
            health_host=health_host,
            health_port=health_port,
            amqp_urls=tuple(amqp_url or (DEFAULT_AMQP_URL,)),
            as_json=print_json,
        )
        run.run(options)


@app.command()
def asyncapi(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:BUS", help="Module and name of a Bus or SyncBus.")
    ],
) -> None:
    """Print the events of a service as an AsyncAPI document. Connects to no broker."""
    with one_line_on_failure():
        from leveret.cli.bus import asyncapi

        typer.echo(asyncapi.document(target))
