"""Entry point of the command `leveret`.

`leveret serve` is told apart before Typer is imported: Typer costs 60 ms, a third of the time in
which a broker should be accepting connections. Every other command belongs to the Typer
application.
"""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["serve"]:
        from leveret.cli.serve import serve

        return serve(words[1:])
    from leveret.cli.tree import app_for

    app_for(words[0] if words else "")(words, prog_name="leveret")
    raise AssertionError("Typer ends by SystemExit")
