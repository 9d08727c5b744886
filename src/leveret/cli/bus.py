"""`leveret bus …`: the event bus from a shell."""

import typer

from leveret.cli import dlq

app = typer.Typer(no_args_is_help=True, help="The event bus: webhooks and dead letters.")
app.add_typer(dlq.app, name="dlq")
