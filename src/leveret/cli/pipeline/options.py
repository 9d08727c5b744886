"""Shared options and decorator of the `leveret pipeline` commands, their progress and errors.

`@pipeline_command` makes a command of a function `(Environment, Output, *options)`.
It adds `--url`, `--user`, `--password`, `--vhost`, `--lake`, `--master` and `--json`, and turns an
error into one line and exit code 1. `@lake_command` does the same for a command that starts no
Spark: it has no `--master`. PySpark is imported only when a command runs.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, Protocol

import typer

from leveret.cli.shared.broker_address import DEFAULT_URL
from leveret.cli.shared.failures import describe_failure
from leveret.cli.shared.options import Json, Password, Url, User
from leveret.cli.shared.output import Output, set_parameters
from leveret.pipeline.environment import LOCAL, Environment, require_spark, with_login

Vhost = Annotated[str, typer.Option("--vhost", help="Vhost of the streams, queues and exchanges.")]
Lake = Annotated[
    str | None,
    typer.Option("--lake", envvar="LEVERET_LAKE", help="Directory of the data lake."),
]
Master = Annotated[
    str,
    typer.Option("--master", envvar="LEVERET_SPARK_MASTER", help="URL of the Spark master."),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="LEVERET_JOBS_TOKEN",
        help="Token for the jobs service. Default: a token for the login.",
    ),
]
UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}  # of ages and windows
# delta-rs writes an error and its causes as lines, with red arrows.
_ARROW: Final = re.compile("\x1b\\[31m↳\x1b\\[0m")
SHARED_OPTIONS: Final[dict[str, tuple[Any, Any]]] = {
    "url": (Url, DEFAULT_URL),
    "user": (User, None),
    "password": (Password, None),
    "vhost": (Vhost, "/"),
    "lake": (Lake, None),
    "master": (Master, LOCAL),
    "as_json": (Json, False),
}


def pipeline_command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function whose first parameters are environment and output."""
    return _make_command(function, SHARED_OPTIONS)


def lake_command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command that starts no Spark, and so has no `--master`."""
    options = {name: option for name, option in SHARED_OPTIONS.items() if name != "master"}
    return _make_command(function, options)


def _make_command(
    function: Callable[..., None], options: dict[str, tuple[Any, Any]]
) -> Callable[..., None]:
    """Make a command with its own and these shared options."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[2:]

    def command(**given: Any) -> None:
        shared = {name: given.pop(name) for name in options}
        with one_line_on_failure():
            require_spark()
            url = with_login(shared["url"], shared["user"], shared["password"])
            master = shared.get("master", LOCAL)
            environment = Environment(url, shared["vhost"], shared["lake"], master)
            function(environment, Output(shared["as_json"]), **given)

    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]
    return set_parameters(command, function, [*own, *shared])


@contextmanager
def one_line_on_failure() -> Iterator[None]:
    """Turn an error into one line on stderr and exit code 1, and Ctrl+C into exit code 130."""
    try:
        yield
    except typer.Exit:
        raise
    except (KeyboardInterrupt, Exception) as fault:
        if _is_interrupt(fault):
            typer.echo("leveret pipeline: interrupted", err=True)
            raise typer.Exit(130) from None
        text = _user_message(fault)
        if text is None:
            raise
        raise _exit_with(text) from fault


def _is_interrupt(fault: BaseException | None) -> bool:
    """Return True if Ctrl+C caused the error. Cleanup may fail, as Spark gets the signal too."""
    while fault is not None and not isinstance(fault, KeyboardInterrupt):
        fault = fault.__context__
    return fault is not None


def _user_message(fault: BaseException) -> str | None:
    """Return the error as one line for the user, or None for a bug, which needs its traceback."""
    text = describe_failure(fault) or _spark_message(fault)
    lines = _ARROW.sub("", text or "").splitlines()
    return ": ".join(part for line in lines if (part := line.strip())) or None


def _spark_message(fault: BaseException) -> str | None:
    """Return the text of an error from Spark, or None for other errors."""
    if "pyspark" not in sys.modules:
        return None
    from leveret.pipeline.spark_errors import SPARK_ERRORS, error_sentence

    return error_sentence(fault) if isinstance(fault, SPARK_ERRORS) else None


def _exit_with(text: str) -> typer.Exit:
    typer.echo(f"leveret pipeline: {text}", err=True)
    return typer.Exit(1)


class Progress(Protocol):
    """Progress of a flow."""

    def line(self) -> str: ...

    def change_key(self) -> object:
        """Return a value that changes whenever the flow advances; falsy before it has."""


@contextmanager
def show_progress() -> Iterator[Callable[[Progress], None]]:
    """Show progress on stderr: on a terminal one updated line, otherwise a line per change."""
    is_shown = sys.stderr.isatty()
    last: object = None

    def show(progress: Progress) -> None:
        nonlocal last
        key = progress.change_key()
        if is_shown:
            sys.stderr.write(f"\r\x1b[K{progress.line()}")
        elif key and key != last:
            sys.stderr.write(f"{progress.line()}\n")
            last = key
        sys.stderr.flush()

    try:
        yield show
    finally:
        if is_shown:
            sys.stderr.write("\n")
