"""Commands of `leveret pipeline`: what they share.

`@flow` turns a function of a `Site`, an `Output` and its own options into a command: it adds
`--url`, `--user`, `--password`, `--vhost`, `--lake`, `--master` and `--json`, and lets whatever
goes wrong end in one line and exit code 1. Spark is imported when a command runs, not before.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, Protocol

import typer

from leveret.cli.shared.options import DEFAULT_URL, Json, Password, Url, User
from leveret.cli.shared.output import Output, with_parameters
from leveret.errors import LeveretError
from leveret.pipeline.site import LOCAL, Site, require_spark, with_login

Vhost = Annotated[str, typer.Option("--vhost", help="Vhost of streams, queues and exchanges.")]
Lake = Annotated[
    str | None,
    typer.Option("--lake", envvar="LEVERET_LAKE", help="Directory of the lake."),
]
Master = Annotated[
    str,
    typer.Option("--master", envvar="LEVERET_SPARK_MASTER", help="Spark's master."),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", envvar="LEVERET_JOBS_TOKEN", help="Of the jobs service; else by the login."
    ),
]
SHARED: Final[dict[str, tuple[Any, Any]]] = {
    "url": (Url, DEFAULT_URL),
    "user": (User, None),
    "password": (Password, None),
    "vhost": (Vhost, "/"),
    "lake": (Lake, None),
    "master": (Master, LOCAL),
    "as_json": (Json, False),
}


def flow(function: Callable[..., None]) -> Callable[..., None]:
    """A command of a function whose first two parameters are the site and the output."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[2:]

    def command(**given: Any) -> None:
        shared = {name: given.pop(name) for name in SHARED}
        with one_line_on_failure():
            require_spark()
            url = with_login(shared["url"], shared["user"], shared["password"])
            site = Site(url, shared["vhost"], shared["lake"], shared["master"])
            function(site, Output(shared["as_json"]), **given)

    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in SHARED.items()
    ]
    return with_parameters(command, function, [*own, *shared])


@contextmanager
def one_line_on_failure() -> Iterator[None]:
    """What goes wrong is one line and exit code 1; Ctrl+C is 130."""
    try:
        yield
    except typer.Exit:
        raise
    except (KeyboardInterrupt, Exception) as fault:
        if _is_interrupt(fault):
            typer.echo("leveret pipeline: interrupted", err=True)
            raise typer.Exit(130) from None
        text = _sentence_of(fault)
        if text is None:
            raise
        raise _failed(text) from fault


def _is_interrupt(fault: BaseException | None) -> bool:
    """Whether Ctrl+C is behind it: tidying up may fail too, as Spark has heard the signal."""
    while fault is not None and not isinstance(fault, KeyboardInterrupt):
        fault = fault.__context__
    return fault is not None


def _sentence_of(fault: BaseException) -> str | None:
    """What went wrong, where a user can do something about it."""
    if isinstance(fault, LeveretError):
        return str(fault)
    if isinstance(fault, OSError):
        reason = fault.strerror or str(fault)
        return f"{fault.filename}: {reason}" if fault.filename else reason
    return _of_spark(fault)


def _of_spark(fault: BaseException) -> str | None:
    """What Spark says; None where it is not Spark who says it."""
    if "pyspark" not in sys.modules:
        return None
    from leveret.pipeline.faults import FAULTS, sentence

    return sentence(fault) if isinstance(fault, FAULTS) else None


def _failed(text: str) -> typer.Exit:
    typer.echo(f"leveret pipeline: {text}", err=True)
    return typer.Exit(1)


class Telling(Protocol):
    """How far a flow is."""

    def line(self) -> str: ...

    def place(self) -> object:
        """Another one each time that the flow got on; false before it has."""


@contextmanager
def told() -> Iterator[Callable[[Telling], None]]:
    """Tells on stderr how far a flow is: one line that moves, or for a log a line when it moved."""
    is_shown = sys.stderr.isatty()
    last: object = None

    def show(progress: Telling) -> None:
        nonlocal last
        place = progress.place()
        if is_shown:
            sys.stderr.write(f"\r\x1b[K{progress.line()}")
        elif place and place != last:
            sys.stderr.write(f"{progress.line()}\n")
            last = place
        sys.stderr.flush()

    try:
        yield show
    finally:
        if is_shown:
            sys.stderr.write("\n")
