"""Carry out the commands of `leveret bus dlq`: call the event bus, show progress, print results.

Exit codes: 0 if everything was done; 1 if some messages could not be handled, or the message to
show was not found; 130 if stopped by Ctrl+C or SIGTERM.
"""

import asyncio
import json
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import typer

from leveret.bus.dead_letters.dead_letter import DeadLetter
from leveret.bus.dead_letters.dead_letter_filter import DeadLetterFilter
from leveret.bus.dead_letters.dead_letter_queue import (
    DeadLetterProgress,
    DeadLetterQueue,
    OnProgress,
    Selection,
    open_dead_letter_queue,
)
from leveret.cli.bus.options import (
    DlqNames,
    DlqRequest,
    dlq_names,
    silence_client_log,
    stop_on_signal,
)
from leveret.cli.shared.output import Output, Row
from leveret.errors import ClosedError

_COLUMNS: Final = (
    "position",
    "message_id",
    "status",
    "error",
    "retries",
    "died_at_ms",
    "target",
    "bytes",
    "body",
)
_SHOWN_CHARS: Final = 60  # of a body or an error in a table
_FAILURES_SHOWN: Final = 10
_STOPPED: Final = 130  # the exit code of shells for Ctrl+C
_PROPERTIES: Final = (
    "content_type",
    "content_encoding",
    "message_type",
    "app_id",
    "correlation_id",
    "reply_to",
    "delivery_mode",
    "priority",
    "expiration",
    "timestamp",
    "user_id",
)

Work = Callable[[DeadLetterQueue, OnProgress], Awaitable[DeadLetterProgress]]


def list_letters(request: DlqRequest, limit: int) -> None:
    """Print the table of `list`."""
    names = _names(request)
    rows: list[Row] = []

    def see(letter: DeadLetter) -> None:
        rows.append(_letter_row(letter, names, is_full=request.output.as_json))

    selection = _selection(request, limit)
    outcome = _run(request, names, lambda queue, report: queue.look(selection, see, report))
    request.output.table(rows, _COLUMNS)
    left = outcome.total - outcome.seen
    if left > 0 and not request.output.as_json:
        typer.echo(f"{outcome.total} messages in {names.dlq}, {left} not read", err=True)


def show(request: DlqRequest, message: str) -> None:
    """Print the first dead letter with this id or position."""
    names = _names(request)
    found: list[DeadLetter] = []

    async def work(queue: DeadLetterQueue, report: OnProgress) -> DeadLetterProgress:
        def see(letter: DeadLetter) -> None:
            if message in (letter.message_id, str(letter.position)):
                found.append(letter)
                queue.stop.set()

        return await queue.look(_selection(request, None), see, report)

    _run(request, names, work)
    if not found:
        typer.echo(f"leveret bus: {names.dlq} has no message {message}", err=True)
        raise typer.Exit(1)
    request.output.facts(_letter_row(found[0], names, is_full=True))


def redrive(
    request: DlqRequest,
    *,
    to: str | None,
    reset: bool,
    limit: int | None,
    rate: float | None,
    dry_run: bool,
) -> None:
    """Send dead letters back to their queues."""
    names = _names(request)
    selection = _selection(request, limit)

    def target(letter: DeadLetter) -> str | None:
        return to or letter.target(names.queue)

    async def work(queue: DeadLetterQueue, report: OnProgress) -> DeadLetterProgress:
        return await queue.redrive(
            selection, target, reset=reset, rate=rate, dry_run=dry_run, report=report
        )

    outcome = _run(request, names, work)
    _print_result(request.output, names, outcome, "redriven", dry_run=dry_run)


def drop(
    request: DlqRequest, *, everything: bool, limit: int | None, dry_run: bool, yes: bool
) -> None:
    """Delete dead letters."""
    names = _names(request)
    selection = _selection(request, limit)
    if selection.filter.is_empty and not everything:
        raise typer.BadParameter("give a filter, or --all")

    async def work(queue: DeadLetterQueue, report: OnProgress) -> DeadLetterProgress:
        async def agreed(outcome: DeadLetterProgress) -> bool:
            text = f"Delete {outcome.matched} of {outcome.total} messages of {names.dlq}?"
            return yes or await _confirmed(text, queue.stop)

        if dry_run:
            return await queue.look(selection, lambda _: None, report)
        return await queue.drop(selection, agreed, report)

    outcome = _run(request, names, work)
    _print_result(request.output, names, outcome, "dropped", dry_run=dry_run)


async def _confirmed(text: str, stop: asyncio.Event) -> bool:
    """Ask for confirmation, and keep handling the connection and Ctrl+C while waiting."""
    typer.echo(f"{text} [y/N]: ", nl=False, err=True)
    loop = asyncio.get_running_loop()
    answered = loop.create_task(_read_line(), name="answer")
    stopping = loop.create_task(stop.wait(), name="stop")
    await asyncio.wait((answered, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stop.is_set():
        answered.cancel()
        return False
    return answered.result().strip().lower() in ("y", "yes")


async def _read_line() -> str:
    """Read a line of standard input. A thread would do, but could not be stopped while it reads."""
    loop = asyncio.get_running_loop()
    is_there = asyncio.Event()
    try:
        number = sys.stdin.fileno()
        loop.add_reader(number, is_there.set)
    except (OSError, ValueError):  # a regular file never blocks
        return sys.stdin.readline()
    try:
        await is_there.wait()
    finally:
        loop.remove_reader(number)
    return sys.stdin.readline()


def _names(request: DlqRequest) -> DlqNames:
    return dlq_names(request.service, request.queue, request.dlq)


def _selection(request: DlqRequest, limit: int | None) -> Selection:
    return Selection(DeadLetterFilter(**request.conditions), limit, request.scan_max)


def _run(request: DlqRequest, names: DlqNames, work: Work) -> DeadLetterProgress:
    """Run the work with a progress bar. Signals stop it between two messages."""
    known = DeadLetterProgress()
    silence_client_log()

    async def connect_and_work() -> DeadLetterProgress:
        nonlocal known
        async with open_dead_letter_queue(request.amqp_url, names.dlq) as queue:
            stop_on_signal(queue.stop.set)
            with _progress(request.output) as show_progress:

                def report(outcome: DeadLetterProgress) -> None:
                    nonlocal known
                    known = outcome
                    show_progress(outcome)

                return await work(queue, report)

    try:
        return asyncio.run(connect_and_work())
    except ClosedError as fault:
        if known.done:
            raise ClosedError(f"{fault}; {known.done} messages were handled before") from fault
        raise


@contextmanager
def _progress(output: Output) -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=output.as_json or not console.is_terminal) as bars:
        bar = bars.add_task("messages", total=None)
        yield lambda found: bars.update(bar, completed=found.seen, total=found.total)


def _print_result(
    output: Output, names: DlqNames, outcome: DeadLetterProgress, verb: str, *, dry_run: bool
) -> None:
    """Print the result of redrive or drop, and exit with its code if that is not 0."""
    count = outcome.matched - outcome.failed if dry_run else outcome.done
    word = f"would be {verb}" if dry_run else verb
    text = f"{count} of {outcome.total} messages of {names.dlq} {word}"
    if outcome.stopped:
        text += "; stopped, the others are still in the queue"
    found = {
        "dlq": names.dlq,
        "total": outcome.total,
        "seen": outcome.seen,
        "matched": outcome.matched,
        "done": outcome.done,
        "failed": outcome.failed,
        "failures": [{**_name(each), "why": why} for each, why in outcome.failures],
        "targets": outcome.targets,
        "stopped": outcome.stopped,
        "truncated": outcome.truncated,
        "dry_run": dry_run,
    }
    output.done(text, found)
    if not output.as_json:
        _print_details(outcome)
    if outcome.stopped:
        raise typer.Exit(_STOPPED)
    if outcome.failed:
        raise typer.Exit(1)


def _print_details(outcome: DeadLetterProgress) -> None:
    for queue, count in outcome.targets.items():
        typer.echo(f"  {count} to {queue}")
    for letter, why in outcome.failures[:_FAILURES_SHOWN]:
        name = letter.message_id or f"at {letter.position}"
        typer.echo(f"leveret bus: message {name} was not handled: {why}", err=True)
    if outcome.failed > _FAILURES_SHOWN:
        typer.echo(f"leveret bus: {outcome.failed} messages in total were not handled", err=True)
    if outcome.truncated:
        typer.echo("leveret bus: the queue holds more messages than were read (--scan)", err=True)


def _name(letter: DeadLetter) -> Row:
    return {"position": letter.position, "message_id": letter.message_id}


def _letter_row(letter: DeadLetter, names: DlqNames, *, is_full: bool) -> Row:
    row: Row = {
        **_name(letter),
        "status": letter.status,
        "error": letter.error,
        "retries": letter.retries,
        "died_at_ms": None if letter.died_s is None else round(letter.died_s * 1000),
        "target": letter.target(names.queue),
        "bytes": len(letter.body),
    }
    if not is_full:
        short = {"error": (letter.error or "")[:_SHOWN_CHARS]}
        return {**row, **short, "body": letter.body[:_SHOWN_CHARS].decode(errors="replace")}
    known = {name: getattr(letter.properties, name) for name in _PROPERTIES}
    properties = {name: value for name, value in known.items() if value not in (None, "")}
    came = {"exchange": letter.exchange, "routing_key": letter.routing_key}
    headers = {name: _plain(value) for name, value in letter.headers.items()}
    return {**row, **came, "properties": _plain(properties), "headers": headers, **_body(letter)}


def _body(letter: DeadLetter) -> Row:
    try:
        return {"body": letter.body.decode(), "body_encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"body": b64encode(letter.body).decode(), "body_encoding": "base64"}


def _plain(value: Any) -> Any:
    """Return an AMQP value as one that JSON can express."""
    return json.loads(json.dumps(value, default=str))
