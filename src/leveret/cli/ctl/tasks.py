"""`leveret ctl move`, `copy`, `drop` and `redrive`: long work of the broker, watched to its end.

The broker does the work; the command shows how far it is. Ctrl+C stops the watching and cancels
the task: every message is either moved or where it was.
"""

import time
from typing import Annotated, Any, Final

import typer

from leveret.cli.ctl.messages import Header, JsonPath, OlderThan, Property, Queue, Text, filter_of
from leveret.cli.shared.management import Broker, RefusedError, in_path
from leveret.cli.shared.options import Vhost
from leveret.cli.shared.output import Output, Row, asks, takes

POLL_S: Final = 0.2

app = typer.Typer(no_args_is_help=True, help="Long work of the broker.")

To = Annotated[str, typer.Option("--to", help="The queue that they go to.")]
ToVhost = Annotated[str | None, typer.Option("--to-vhost", help="Its vhost, if another.")]
Asked = dict[str, Any]  # a task as the broker takes it


def _which(
    queue: Queue,
    id_: Annotated[
        list[str] | None, typer.Option("--id", help="Only this message; repeat it.")
    ] = None,
    header: Header = None,
    property_: Property = None,
    json_path: JsonPath = None,
    text: Text = None,
    older_than_s: OlderThan = None,
    limit: Annotated[int | None, typer.Option("--limit", help="At most so many.")] = None,
    rate: Annotated[int | None, typer.Option("--rate", help="At most so many a second.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    vhost: Vhost = "/",
) -> Asked:
    """What every such task is told: which messages, and how."""
    chosen = filter_of(header, property_, json_path, text, older_than_s)
    return {
        "vhost": vhost,
        "queue": queue,
        "ids": id_,
        "filter": chosen or None,
        "limit": limit,
        "rate": rate,
        "dry_run": dry_run,
    }


@asks
@takes(_which)
def move(broker: Broker, output: Output, task: Asked, to: To, to_vhost: ToVhost = None) -> None:
    """Move messages to another queue; each is in exactly one of the two at any time."""
    _run(broker, output, "move", {**task, "to": {"vhost": to_vhost or task["vhost"], "queue": to}})


@asks
@takes(_which)
def copy(broker: Broker, output: Output, task: Asked, to: To, to_vhost: ToVhost = None) -> None:
    """Copy messages to another queue."""
    _run(broker, output, "copy", {**task, "to": {"vhost": to_vhost or task["vhost"], "queue": to}})


@asks
@takes(_which)
def drop(broker: Broker, output: Output, task: Asked) -> None:
    """Delete chosen messages of a queue; `purge` drops all."""
    if task["filter"] is None and not task["ids"]:
        raise typer.BadParameter("say which messages; `leveret ctl purge` drops all")
    _run(broker, output, "delete", task)


@asks
@takes(_which)
def redrive(
    broker: Broker,
    output: Output,
    task: Asked,
    to: Annotated[str | None, typer.Option("--to", help="Another queue than they died in.")] = None,
    keep_attempts: Annotated[
        bool, typer.Option("--keep-attempts", help="Do not begin to count anew.")
    ] = False,
) -> None:
    """Send dead letters back to where they died."""
    target = None if to is None else {"vhost": task["vhost"], "queue": to}
    _run(broker, output, "redrive", {**task, "to": target, "keep_attempts": keep_attempts})


@app.command("list")
@asks
def list_tasks(broker: Broker, output: Output) -> None:
    """List running and finished work."""
    columns = "id,kind,state,done,total,rate,source,target,user,error"
    output.table(broker.get("/api/tasks"), columns.split(","))


@app.command("cancel")
@asks
def cancel(
    broker: Broker, output: Output, task: Annotated[str, typer.Argument(help="Its id.")]
) -> None:
    """Stop a task; what it has done stays done."""
    broker.delete(f"/api/tasks/{in_path(task)}")
    output.done(f"task {task} is cancelled")


def _run(broker: Broker, output: Output, kind: str, task: Asked) -> None:
    """Have a task done and watch it, or show what it would do."""
    found = broker.post("/api/tasks", {**task, "kind": kind})
    if task["dry_run"]:
        if output.as_json:
            output.facts(found)
            return
        typer.echo(f"{found['matched']} messages would be taken")
        output.table(found["targets"], ("vhost", "queue", "messages"))
        return
    ended = _watch(broker, output, str(found["id"]))
    text = f"{ended['kind']}: {ended['done']} of {ended['total']} messages, {ended['state']}"
    output.done(text, ended)
    if ended["state"] != "done":
        if ended.get("error") and not output.as_json:
            typer.echo(f"leveret ctl: {ended['error']}", err=True)
        raise typer.Exit(1)


def _watch(broker: Broker, output: Output, task: str) -> Row:
    """Follow a task to its end, with a bar where somebody looks."""
    from rich.console import Console
    from rich.progress import Progress

    path = f"/api/tasks/{in_path(task)}"
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


def _cancel(broker: Broker, path: str) -> None:
    try:
        broker.delete(path)
        typer.echo("cancelled", err=True)
    except RefusedError:
        typer.echo("it had ended", err=True)
