"""`leveret bus dlq list|show|redrive|drop`: the commands and their options.

What they do is in `dlq_work.py`, which is imported when a command runs. Looking changes nothing;
redrive and drop end between two messages on Ctrl+C, with the rest of the queue as it was.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from leveret.cli.bus.options import (
    DEFAULT_AMQP_URL,
    AmqpUrl,
    Asked,
    PrintJson,
    Queue,
    Service,
    one_line_on_failure,
)
from leveret.cli.ctl.objects import arguments_of
from leveret.cli.shared.output import Output, with_parameters

SCAN_MAX: Final = 100_000  # messages that one command looks at, if nothing else is said
LISTED: Final = 100  # rows of a list, if nothing else is said

app = typer.Typer(no_args_is_help=True, help="Look at dead letters, send them back, drop them.")

Limit = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")]


def _asked(
    service: Service = None,
    queue: Queue = None,
    dlq: Annotated[str | None, typer.Option("--dlq", help="A dead-letter queue by name.")] = None,
    id_: Annotated[
        list[str] | None, typer.Option("--id", help="Only the message with this id; repeat it.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", help="A header has this value: KEY=VALUE; repeat it."),
    ] = None,
    status: Annotated[int | None, typer.Option("--status", help="Its last status code.")] = None,
    error: Annotated[str | None, typer.Option("--error", help="Text in its last error.")] = None,
    json_path: Annotated[
        list[str] | None, typer.Option("--json-path", help="In a JSON body: $.order.id=5.")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="The body holds this text.")] = None,
    older_than_s: Annotated[
        float | None, typer.Option("--older-than-s", min=0, help="Died so long ago.")
    ] = None,
    scan: Annotated[
        int, typer.Option("--scan", min=1, help="Look at no more than so many messages.")
    ] = SCAN_MAX,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    print_json: PrintJson = False,
) -> Asked:
    conditions = {
        "ids": frozenset(id_ or ()),
        "headers": arguments_of(header),
        "json_fields": arguments_of(json_path),
        "status": status,
        "error": error,
        "text": text,
        "older_than_s": older_than_s,
    }
    return Asked(amqp_url, service, queue, dlq, conditions, scan, Output(print_json))


def _works(function: Callable[..., None]) -> Callable[..., None]:
    """A command of a function whose first parameter is what was asked."""
    options = inspect.signature(_asked, eval_str=True).parameters
    _, *own = inspect.signature(function, eval_str=True).parameters.values()

    def command(**given: Any) -> None:
        with one_line_on_failure():
            function(_asked(**{name: given.pop(name) for name in options}), **given)

    # What has no default, an argument, stands first.
    return with_parameters(command, function, [*own, *options.values()])


@_works
def list_letters(
    asked: Asked,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = LISTED,
) -> None:
    """List dead letters: how each ended, where it would go back to. The queue stays as it is."""
    from leveret.cli.bus import dlq_work

    dlq_work.list_letters(asked, limit)


@_works
def show(
    asked: Asked,
    message: Annotated[str, typer.Argument(help="Its message id, or its place in the list.")],
) -> None:
    """Show everything of one dead letter: headers, properties, body. The queue stays as it is."""
    from leveret.cli.bus import dlq_work

    dlq_work.show(asked, message)


@_works
def redrive(
    asked: Asked,
    to: Annotated[str | None, typer.Option("--to", help="Another queue than they died in.")] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Count their retries from zero again.")
    ] = False,
    limit: Limit = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="At most so many a second.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Send dead letters back to the queue they died in; each leaves only after the confirm."""
    from leveret.cli.bus import dlq_work

    dlq_work.redrive(asked, to=to, reset=reset, limit=limit, rate=rate, dry_run=dry_run)


@_works
def drop(
    asked: Asked,
    everything: Annotated[
        bool, typer.Option("--all", help="Without any condition: all of them.")
    ] = False,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove dead letters for good; asks first."""
    from leveret.cli.bus import dlq_work

    dlq_work.drop(asked, everything=everything, limit=limit, dry_run=dry_run, yes=yes)


app.command("list")(list_letters)
for _command in (show, redrive, drop):
    app.command()(_command)
