"""The Typer application `leveret` with every command, for help texts and for callers in Python."""

from leveret.cli.tree import app_for

app = app_for("")
