"""`leveret ctl move`, `copy`, `drop` and `redrive`: long work of the broker, watched to its end.

The broker does the work; the command shows how far it is. Ctrl+C stops the watching and cancels
the task: every message is either moved or where it was.
"""

import time
from typing import Annotated, Any, Final

import typer

from leveret.cli.asking import Output, Row, asks
from leveret.cli.management import Broker, Refused, in_path
from leveret.cli.messages import (
    Header,
    JsonPath,
    OlderThan,
    Property,
    Queue,
    Text,
    filter_of,
)
from leveret.cli.options import Vhost

POLL_S: Final = 0.2

app = typer.Typer(no_args_is_help=True, help="Long work of the broker.")

Ids = Annotated[list[str] | None, typer.Option("--id", help="Only this message; repeat it.")]
Limit = Annotated[int | None, typer.Option("--limit", help="At most so many.")]
Rate = Annotated[int | None, typer.Option("--rate", help="At most so many a second.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")]
To = Annotated[str, typer.Option("--to", help="The queue that they go to.")]
ToVhost = Annotated[str | None, typer.Option("--to-vhost", help="Its vhost, if another.")]


@asks
def move(
    broker: Broker,
    output: Output,
    queue: Queue,
    to: To,
    to_vhost: ToVhost = None,
    id_: Ids = None,
    header: Header = None,
    property_: Property = None,
    json_path: JsonPath = None,
    text: Text = None,
    older_than_s: OlderThan = None,
    limit: Limit = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    vhost: Vhost = "/",
) -> None:
    """Move messages to another queue; each is in exactly one of the two at any time."""
    chosen = filter_of(header, property_, json_path, text, older_than_s)
    task = _task("move", vhost, queue, id_, chosen, limit, rate, dry_run)
    task["to"] = {"vhost": to_vhost or vhost, "queue": to}
    _run(broker, output, task)


@asks
def copy(
    broker: Broker,
    output: Output,
    queue: Queue,
    to: To,
    to_vhost: ToVhost = None,
    id_: Ids = None,
    header: Header = None,
    property_: Property = None,
    json_path: JsonPath = None,
    text: Text = None,
    older_than_s: OlderThan = None,
    limit: Limit = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    vhost: Vhost = "/",
) -> None:
    """Copy messages to another queue."""
    chosen = filter_of(header, property_, json_path, text, older_than_s)
    task = _task("copy", vhost, queue, id_, chosen, limit, rate, dry_run)
    task["to"] = {"vhost": to_vhost or vhost, "queue": to}
    _run(broker, output, task)


@asks
def drop(
    broker: Broker,
    output: Output,
    queue: Queue,
    id_: Ids = None,
    header: Header = None,
    property_: Property = None,
    json_path: JsonPath = None,
    text: Text = None,
    older_than_s: OlderThan = None,
    limit: Limit = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    vhost: Vhost = "/",
) -> None:
    """Delete chosen messages of a queue; `purge` drops all."""
    chosen = filter_of(header, property_, json_path, text, older_than_s)
    if not chosen and not id_:
        raise typer.BadParameter("say which messages; `leveret ctl purge` drops all")
    _run(broker, output, _task("delete", vhost, queue, id_, chosen, limit, rate, dry_run))


@asks
def redrive(
    broker: Broker,
    output: Output,
    queue: Queue,
    to: Annotated[str | None, typer.Option("--to", help="Another queue than they died in.")] = None,
    keep_attempts: Annotated[
        bool, typer.Option("--keep-attempts", help="Do not begin to count anew.")
    ] = False,
    id_: Ids = None,
    header: Header = None,
    property_: Property = None,
    json_path: JsonPath = None,
    text: Text = None,
    older_than_s: OlderThan = None,
    limit: Limit = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    vhost: Vhost = "/",
) -> None:
    """Send dead letters back to where they died."""
    chosen = filter_of(header, property_, json_path, text, older_than_s)
    task = _task("redrive", vhost, queue, id_, chosen, limit, rate, dry_run)
    task["keep_attempts"] = keep_attempts
    if to is not None:
        task["to"] = {"vhost": vhost, "queue": to}
    _run(broker, output, task)


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


def _task(
    kind: str,
    vhost: str,
    queue: str,
    ids: list[str] | None,
    chosen: dict[str, Any],
    limit: int | None,
    rate: int | None,
    dry_run: bool,
) -> dict[str, Any]:
    return {
        "kind": kind,
        "vhost": vhost,
        "queue": queue,
        "ids": ids,
        "filter": chosen or None,
        "limit": limit,
        "rate": rate,
        "dry_run": dry_run,
    }


def _run(broker: Broker, output: Output, task: dict[str, Any]) -> None:
    """Have a task done and watch it, or show what it would do."""
    found = broker.post("/api/tasks", task)
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
    except Refused:
        typer.echo("it had ended", err=True)
