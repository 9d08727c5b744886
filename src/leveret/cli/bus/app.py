"""`leveret bus …`: the event bus from a shell.

`run` posts the messages of a service to a URL; the words and options are here, the work is in
`bus_run.py`, which is imported when the command runs. `dlq` is in `dlq.py`.
"""

from enum import StrEnum
from typing import Annotated

import typer

from leveret.cli.bus import dlq
from leveret.cli.bus.options import (
    DEFAULT_AMQP_URL,
    AmqpUrl,
    PrintJson,
    RunOptions,
    one_line_on_failure,
)
from leveret.cli.ctl.objects import arguments_of

app = typer.Typer(no_args_is_help=True, help="The event bus: webhooks and dead letters.")
app.add_typer(dlq.app, name="dlq")


class TopologyName(StrEnum):
    """Which topology a service uses."""

    FANOUT = "fanout"
    TOPIC = "topic"


class QueueTypeName(StrEnum):
    """How the queues of the topic topology are kept."""

    QUORUM = "quorum"
    CLASSIC = "classic"


@app.command()
def run(
    service: Annotated[
        str, typer.Option("--service", help="The service; with topic, the name of its queue.")
    ],
    target_url: Annotated[str, typer.Option("--url", help="Where each message is posted.")],
    topology: Annotated[
        TopologyName, typer.Option("--topology", help="fanout or topic.")
    ] = TopologyName.FANOUT,
    exchange: Annotated[
        str, typer.Option("--exchange", help="With topic: the exchange it listens to.")
    ] = "",
    routing_key: Annotated[
        list[str] | None, typer.Option("--routing-key", help="With topic: repeat it.")
    ] = None,
    queue_type: Annotated[
        QueueTypeName, typer.Option("--queue-type", help="With topic: quorum or classic.")
    ] = QueueTypeName.QUORUM,
    max_retries: Annotated[
        int | None, typer.Option("--max-retries", min=0, help="Before it is a dead letter.")
    ] = None,
    retry_delay_s: Annotated[
        float | None,
        typer.Option("--retry-delay-s", min=0.001, help="Seconds between two attempts."),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, help="Requests that run at once.")
    ] = 8,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.001, help="Seconds for a whole request.")
    ] = 30.0,
    header: Annotated[
        list[str] | None, typer.Option("--header", help="Sent with each request: KEY=VALUE.")
    ] = None,
    health_port: Annotated[
        int | None,
        typer.Option("--health-port", min=0, help="Answers probes: 200 while it consumes."),
    ] = None,
    health_host: Annotated[
        str, typer.Option("--health-host", help="Address of the health port.")
    ] = "127.0.0.1",
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    print_json: PrintJson = False,
) -> None:
    """Post each message of a service to a URL; the status of the answer settles it."""
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
            headers={name: str(value) for name, value in arguments_of(header).items()},
            health_host=health_host,
            health_port=health_port,
            amqp_url=amqp_url,
            as_json=print_json,
        )
        run.run(options)
