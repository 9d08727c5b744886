"""Entry point of the command `leveret`.

Two commands run without Typer. `leveret serve` saves 60 ms, a third of the time in which a broker
should accept connections. `leveret ctl status` is a health check; Typer with pydantic would take
three quarters of its CPU time. All other commands go through the Typer application.
"""

import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

_STDERR: Final = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Object names may contain characters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    if words[:1] == ["serve"]:
        _exit_quietly_on_signals()
        _fill_standard_files()
        from leveret.cli.serve import serve

        return serve(words[1:])
    if words[:2] == ["ctl", "status"]:
        from leveret.cli.ctl.status import read_plain, run

        if (options := read_plain(words[2:])) is not None:
            return run(options)
    from leveret.cli.app import is_overview, make_app, make_overview

    first = words[0] if words else ""
    app = make_overview() if is_overview(first) else make_app(first)
    app(words, prog_name="leveret")
    raise AssertionError("Typer ends by SystemExit")


def _exit_quietly_on_signals() -> None:
    """Exit with code 0 on SIGTERM and SIGINT until the node installs its own signal handlers.

    Ignore SIGHUP: the files that it asks to reload have not been read yet.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit_at_once)
    if hasattr(signal, "SIGHUP"):  # not on Windows
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _fill_standard_files() -> None:
    """Open /dev/null for stdin, stdout and stderr if the parent process has closed them.

    Otherwise a file or socket of the node gets their numbers. Text written to stderr would then end
    up in the log file, and the event loop would abort at shutdown.
    """
    number = os.open(os.devnull, os.O_RDWR)
    while number <= _STDERR:
        os.set_inheritable(number, True)
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)


def _exit_at_once(*_: object) -> None:
    os._exit(0)
