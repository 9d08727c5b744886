"""Commands `leveret ctl move`, `copy`, `drop` and `redrive`: start a task and watch it.

The broker does the work. The command shows the progress. Ctrl+C cancels the task: each message is
then either moved or still in its queue.
"""

import time
from typing import Annotated, Any, Final

import typer

from leveret.cli.ctl.messages import Header, JsonPath, OlderThan, Property, Queue, Text, make_filter
from leveret.cli.shared.management import ManagementClient, RefusedError, quote_path
from leveret.cli.shared.options import Vhost
from leveret.cli.shared.output import Output, Row, broker_command, with_options_of

POLL_S: Final = 0.2

app = typer.Typer(no_args_is_help=True, help="List and cancel tasks.")

To = Annotated[str, typer.Option("--to", help="The destination queue.")]
ToVhost = Annotated[
    str | None, typer.Option("--to-vhost", help="Vhost of the destination, if it is another one.")
]
TaskBody = dict[str, Any]  # a task, as the HTTP API takes it


def _task_body(
    queue: Queue,
    id_: Annotated[
        list[str] | None, typer.Option("--id", help="Only the message with this id. Repeatable.")
    ] = None,
    header: Header = None,
    property_: Property = None,
    json_path: JsonPath = None,
    text: Text = None,
    older_than_s: OlderThan = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Maximum number of messages.")
    ] = None,
    rate: Annotated[int | None, typer.Option("--rate", help="Maximum messages per second.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")
    ] = False,
    vhost: Vhost = "/",
) -> TaskBody:
    """Return the fields that all kinds of task have."""
    chosen = make_filter(header, property_, json_path, text, older_than_s)
    return {
        "vhost": vhost,
        "queue": queue,
        "ids": id_,
        "filter": chosen or None,
        "limit": limit,
        "rate": rate,
        "dry_run": dry_run,
    }


@broker_command
@with_options_of(_task_body)
def move(
    broker: ManagementClient, output: Output, task: TaskBody, to: To, to_vhost: ToVhost = None
) -> None:
    """Move messages to another queue. No message is ever in both queues, or in neither."""
    _run(broker, output, "move", {**task, "to": {"vhost": to_vhost or task["vhost"], "queue": to}})


@broker_command
@with_options_of(_task_body)
def copy(
    broker: ManagementClient, output: Output, task: TaskBody, to: To, to_vhost: ToVhost = None
) -> None:
    """Copy messages to another queue."""
    _run(broker, output, "copy", {**task, "to": {"vhost": to_vhost or task["vhost"], "queue": to}})


@broker_command
@with_options_of(_task_body)
def drop(broker: ManagementClient, output: Output, task: TaskBody) -> None:
    """Delete selected messages of a queue. `purge` deletes all of them."""
    if task["filter"] is None and not task["ids"]:
        raise typer.BadParameter("give a filter or --id; `leveret ctl purge` deletes all messages")
    _run(broker, output, "delete", task)


@broker_command
@with_options_of(_task_body)
def redrive(
    broker: ManagementClient,
    output: Output,
    task: TaskBody,
    to: Annotated[
        str | None,
        typer.Option("--to", help="Send them to this queue instead of their original queue."),
    ] = None,
    keep_attempts: Annotated[
        bool, typer.Option("--keep-attempts", help="Keep the counted delivery attempts.")
    ] = False,
) -> None:
    """Send dead letters back to the queues in which they died."""
    target = None if to is None else {"vhost": task["vhost"], "queue": to}
    _run(broker, output, "redrive", {**task, "to": target, "keep_attempts": keep_attempts})


@app.command("list")
@broker_command
def list_tasks(broker: ManagementClient, output: Output) -> None:
    """List running and finished tasks."""
    columns = "id,kind,state,done,total,rate,source,target,user,error"
    output.table(broker.get("/api/tasks"), columns.split(","))


@app.command("cancel")
@broker_command
def cancel(
    broker: ManagementClient,
    output: Output,
    task: Annotated[str, typer.Argument(help="Id of the task.")],
) -> None:
    """Cancel a task. Messages that it has handled stay as they are."""
    broker.delete(f"/api/tasks/{quote_path(task)}")
    output.done(f"task {task} is cancelled")


def _run(broker: ManagementClient, output: Output, kind: str, task: TaskBody) -> None:
    """Start a task and watch it, or show what it would do."""
    found = broker.post("/api/tasks", {**task, "kind": kind})
    if task["dry_run"]:
        if output.as_json:
            output.facts(found)
            return
        typer.echo(f"{found['matched']} messages match")
        output.table(found["targets"], ("vhost", "queue", "messages"))
        return
    ended = _watch(broker, output, str(found["id"]))
    text = f"{ended['kind']}: {ended['done']} of {ended['total']} messages, {ended['state']}"
    output.done(text, ended)
    if ended["state"] != "done":
        if ended.get("error") and not output.as_json:
            typer.echo(f"leveret ctl: {ended['error']}", err=True)
        raise typer.Exit(1)


def _watch(broker: ManagementClient, output: Output, task: str) -> Row:
    """Wait for the end of a task, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    path = f"/api/tasks/{quote_path(task)}"
    console = Console(stderr=True)
    with Progress(console=console, disable=output.as_json or not console.is_terminal) as progress:
        bar = progress.add_task("messages", total=None)
        try:
            while True:
                found: Row = broker.get(path)
                progress.update(bar, completed=found["done"], total=found["total"])
                if found["state"] != "running":
                    return found
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            _cancel(broker, path)
            raise typer.Exit(130) from None


def _cancel(broker: ManagementClient, path: str) -> None:
    try:
        broker.delete(path)
        typer.echo("cancelled", err=True)
    except RefusedError:
        typer.echo("the task had already ended", err=True)
