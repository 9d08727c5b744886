"""Commands and options of `leveret bus dlq list|show|redrive|drop`.

`dlq_actions.py` carries them out and is imported when a command runs. `list` and `show` change
nothing. On Ctrl+C, `redrive` and `drop` stop between two messages and leave the rest in the queue.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from leveret.cli.bus.options import (
    DEFAULT_AMQP_URL,
    AmqpUrl,
    DlqRequest,
    PrintJson,
    Queue,
    Service,
    one_line_on_failure,
)
from leveret.cli.ctl.objects import parse_pairs
from leveret.cli.shared.output import Output, set_parameters

SCAN_MAX: Final = 100_000  # default of --scan: messages that one command reads
LIST_LIMIT: Final = 100  # default of `list --limit`

app = typer.Typer(no_args_is_help=True, help="List, show, redrive and delete dead letters.")

Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of messages.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]


def _make_request(
    service: Service = None,
    queue: Queue = None,
    dlq: Annotated[str | None, typer.Option("--dlq", help="Name of a dead-letter queue.")] = None,
    id_: Annotated[
        list[str] | None, typer.Option("--id", help="Only the message with this id. Repeatable.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", help="Messages with this header: KEY=VALUE. Repeatable."),
    ] = None,
    status: Annotated[
        int | None, typer.Option("--status", help="Messages with this last HTTP status.")
    ] = None,
    error: Annotated[
        str | None, typer.Option("--error", help="Messages whose last error contains this text.")
    ] = None,
    json_path: Annotated[
        list[str] | None,
        typer.Option("--json-path", help="JSON bodies with this value: $.order.id=5. Repeatable."),
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", help="Bodies that contain this text.")
    ] = None,
    older_than_s: Annotated[
        float | None,
        typer.Option("--older-than-s", min=0, help="Dead-lettered at least this many seconds ago."),
    ] = None,
    scan: Annotated[
        int, typer.Option("--scan", min=1, help="Maximum number of messages to read.")
    ] = SCAN_MAX,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    print_json: PrintJson = False,
) -> DlqRequest:
    conditions = {
        "ids": frozenset(id_ or ()),
        "headers": parse_pairs(header),
        "json_fields": parse_pairs(json_path),
        "status": status,
        "error": error,
        "text": text,
        "older_than_s": older_than_s,
    }
    return DlqRequest(amqp_url, service, queue, dlq, conditions, scan, Output(print_json))


def _dlq_command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function whose first parameter is a DlqRequest."""
    options = inspect.signature(_make_request, eval_str=True).parameters
    _, *own = inspect.signature(function, eval_str=True).parameters.values()

    def command(**given: Any) -> None:
        with one_line_on_failure():
            function(_make_request(**{name: given.pop(name) for name in options}), **given)

    # Parameters without a default must come first.
    return set_parameters(command, function, [*own, *options.values()])


@_dlq_command
def list_letters(
    request: DlqRequest,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Maximum number of messages.")
    ] = LIST_LIMIT,
) -> None:
    """List dead letters with their error and original queue. Does not change the queue."""
    from leveret.cli.bus import dlq_actions

    dlq_actions.list_letters(request, limit)


@_dlq_command
def show(
    request: DlqRequest,
    message: Annotated[str, typer.Argument(help="Message id, or position in the list.")],
) -> None:
    """Show headers, properties and body of one dead letter. Does not change the queue."""
    from leveret.cli.bus import dlq_actions

    dlq_actions.show(request, message)


@_dlq_command
def redrive(
    request: DlqRequest,
    to: Annotated[
        str | None,
        typer.Option("--to", help="Send them to this queue instead of their original queue."),
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Reset their retry counters.")] = False,
    limit: Limit = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="Maximum messages per second.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Send dead letters back to their original queue. Each is removed only after the confirm."""
    from leveret.cli.bus import dlq_actions

    dlq_actions.redrive(request, to=to, reset=reset, limit=limit, rate=rate, dry_run=dry_run)


@_dlq_command
def drop(
    request: DlqRequest,
    everything: Annotated[
        bool, typer.Option("--all", help="Required without a filter: delete all messages.")
    ] = False,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete dead letters. Asks for confirmation first."""
    from leveret.cli.bus import dlq_actions

    dlq_actions.drop(request, everything=everything, limit=limit, dry_run=dry_run, yes=yes)


app.command("list")(list_letters)
for _command in (show, redrive, drop):
    app.command()(_command)
