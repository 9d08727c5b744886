"""Entry point of the command `leveret`.

`leveret serve` is told apart before Typer is imported: Typer costs 60 ms, a third of the time in
which a broker should be accepting connections. Every other command belongs to the Typer
application.
"""

import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

_STDERR: Final = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of objects may have characters that a terminal has not.
        sys.stdout.reconfigure(errors="backslashreplace")
    if words[:1] == ["serve"]:
        _end_quietly()
        _fill_standard_files()
        from leveret.cli.serve import serve

        return serve(words[1:])
    from leveret.cli.tree import app_for

    app_for(words[0] if words else "")(words, prog_name="leveret")
    raise AssertionError("Typer ends by SystemExit")


def _end_quietly() -> None:
    """Until the node listens to signals itself there is nothing to stop: it ends as it would then.

    One that asks for files to be read again is not lost: they are still to be read.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    if hasattr(signal, "SIGHUP"):  # not on Windows
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _fill_standard_files() -> None:
    """Whoever starts a node may have closed them: no file or socket of it may get their numbers.

    What is written to stderr would end in a file of the log, and the event loop aborts at its end.
    """
    number = os.open(os.devnull, os.O_RDWR)
    while number <= _STDERR:
        os.set_inheritable(number, True)
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)


def _leave(*_: object) -> None:
    os._exit(0)
