"""What the commands of `leveret bus dlq` do: progress, words and exit codes.

Exit code 0: all of it is done. 1: some messages stay where they were, and why; or nothing was
found. 130: stopped by Ctrl+C or SIGTERM between two messages.
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
from leveret.cli.bus.options import Asked, Place, on_signal, place_of, quieten_client
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
_STOPPED: Final = 130  # as a shell says it of Ctrl+C
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


def list_letters(asked: Asked, limit: int) -> None:
    """The table of `list`."""
    place = _place(asked)
    rows: list[Row] = []

    def see(letter: DeadLetter) -> None:
        rows.append(_row(letter, place, is_full=asked.output.as_json))

    selection = _selection(asked, limit)
    outcome = _run(asked, place, lambda queue, report: queue.look(selection, see, report))
    asked.output.table(rows, _COLUMNS)
    left = outcome.total - outcome.seen
    if left > 0 and not asked.output.as_json:
        typer.echo(f"{outcome.total} messages in {place.dlq}, {left} not looked at", err=True)


def show(asked: Asked, message: str) -> None:
    """One letter, by its id or its position: the first that has either."""
    place = _place(asked)
    found: list[DeadLetter] = []

    async def work(queue: DeadLetterQueue, report: OnProgress) -> DeadLetterProgress:
        def see(letter: DeadLetter) -> None:
            if message in (letter.message_id, str(letter.position)):
                found.append(letter)
                queue.stop.set()

        return await queue.look(_selection(asked, None), see, report)

    _run(asked, place, work)
    if not found:
        typer.echo(f"leveret bus: {place.dlq} has no message {message}", err=True)
        raise typer.Exit(1)
    asked.output.facts(_row(found[0], place, is_full=True))


def redrive(
    asked: Asked,
    *,
    to: str | None,
    reset: bool,
    limit: int | None,
    rate: float | None,
    dry_run: bool,
) -> None:
    """Send letters back."""
    place = _place(asked)
    selection = _selection(asked, limit)

    def target(letter: DeadLetter) -> str | None:
        return to or letter.target(place.queue)

    async def work(queue: DeadLetterQueue, report: OnProgress) -> DeadLetterProgress:
        return await queue.redrive(
            selection, target, reset=reset, rate=rate, dry_run=dry_run, report=report
        )

    outcome = _run(asked, place, work)
    _tell(asked.output, place, outcome, "redriven", dry_run=dry_run)


def drop(asked: Asked, *, everything: bool, limit: int | None, dry_run: bool, yes: bool) -> None:
    """Remove letters."""
    place = _place(asked)
    selection = _selection(asked, limit)
    if selection.filter.is_empty and not everything:
        raise typer.BadParameter("say which messages, or --all")

    async def work(queue: DeadLetterQueue, report: OnProgress) -> DeadLetterProgress:
        async def agreed(outcome: DeadLetterProgress) -> bool:
            text = f"Drop {outcome.matched} of {outcome.total} messages of {place.dlq} for good?"
            return yes or await _confirmed(text, queue.stop)

        if dry_run:
            return await queue.look(selection, lambda _: None, report)
        return await queue.drop(selection, agreed, report)

    outcome = _run(asked, place, work)
    _tell(asked.output, place, outcome, "dropped", dry_run=dry_run)


async def _confirmed(text: str, stop: asyncio.Event) -> bool:
    """Asks, and hears the broker and Ctrl+C while somebody thinks."""
    typer.echo(f"{text} [y/N]: ", nl=False, err=True)
    loop = asyncio.get_running_loop()
    answered = loop.create_task(_line(), name="answer")
    stopping = loop.create_task(stop.wait(), name="stop")
    await asyncio.wait((answered, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stop.is_set():
        answered.cancel()
        return False
    return answered.result().strip().lower() in ("y", "yes")


async def _line() -> str:
    """A line of standard input, without a thread: none could be ended while it reads."""
    loop = asyncio.get_running_loop()
    is_there = asyncio.Event()
    try:
        number = sys.stdin.fileno()
        loop.add_reader(number, is_there.set)
    except (OSError, ValueError):  # a file: it has its line already
        return sys.stdin.readline()
    try:
        await is_there.wait()
    finally:
        loop.remove_reader(number)
    return sys.stdin.readline()


def _place(asked: Asked) -> Place:
    return place_of(asked.service, asked.queue, asked.dlq)


def _selection(asked: Asked, limit: int | None) -> Selection:
    return Selection(DeadLetterFilter(**asked.conditions), limit, asked.scan_max)


def _run(asked: Asked, place: Place, work: Work) -> DeadLetterProgress:
    """Does the work with a progress bar, and lets signals end it between two messages."""
    known = DeadLetterProgress()
    quieten_client()

    async def worked() -> DeadLetterProgress:
        nonlocal known
        async with open_dead_letter_queue(asked.amqp_url, place.dlq) as queue:
            on_signal(queue.stop.set)
            with _progress(asked.output) as show_progress:

                def report(outcome: DeadLetterProgress) -> None:
                    nonlocal known
                    known = outcome
                    show_progress(outcome)

                return await work(queue, report)

    try:
        return asyncio.run(worked())
    except ClosedError as fault:
        if known.done:
            raise ClosedError(f"{fault}; {known.done} messages were done before") from fault
        raise


@contextmanager
def _progress(output: Output) -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=output.as_json or not console.is_terminal) as bars:
        bar = bars.add_task("messages", total=None)
        yield lambda found: bars.update(bar, completed=found.seen, total=found.total)


def _tell(
    output: Output, place: Place, outcome: DeadLetterProgress, verb: str, *, dry_run: bool
) -> None:
    """The end of redrive and drop, in words or as JSON, and the exit code."""
    count = outcome.matched - outcome.failed if dry_run else outcome.done
    word = f"would be {verb}" if dry_run else verb
    text = f"{count} of {outcome.total} messages of {place.dlq} {word}"
    if outcome.stopped:
        text += "; stopped, the others are where they were"
    found = {
        "dlq": place.dlq,
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
        _tell_more(outcome)
    if outcome.stopped:
        raise typer.Exit(_STOPPED)
    if outcome.failed:
        raise typer.Exit(1)


def _tell_more(outcome: DeadLetterProgress) -> None:
    for queue, count in outcome.targets.items():
        typer.echo(f"  {count} to {queue}")
    for letter, why in outcome.failures[:_FAILURES_SHOWN]:
        name = letter.message_id or f"at {letter.position}"
        typer.echo(f"leveret bus: message {name} stays: {why}", err=True)
    if outcome.failed > _FAILURES_SHOWN:
        typer.echo(f"leveret bus: {outcome.failed} messages stay in all", err=True)
    if outcome.truncated:
        typer.echo("leveret bus: the queue holds more than were looked at (--scan)", err=True)


def _name(letter: DeadLetter) -> Row:
    return {"position": letter.position, "message_id": letter.message_id}


def _row(letter: DeadLetter, place: Place, *, is_full: bool) -> Row:
    row: Row = {
        **_name(letter),
        "status": letter.status,
        "error": letter.error,
        "retries": letter.retries,
        "died_at_ms": None if letter.died_s is None else round(letter.died_s * 1000),
        "target": letter.target(place.queue),
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
    """A value of AMQP as JSON can say it."""
    return json.loads(json.dumps(value, default=str))
