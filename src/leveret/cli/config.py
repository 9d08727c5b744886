"""`leveret config check|show`: read the configuration as `leveret serve` would, and print it."""

import os
from typing import Annotated

import typer

from leveret.cli.shared.groups import GROUPS
from leveret.cli.shared.options import Json, print_json
from leveret.config.load import load
from leveret.config.settings import Settings, options
from leveret.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help=GROUPS["config"])

File = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="TOML file. Default: $LEVERET_CONFIG."),
]
_MASK = "***"


def _load(file: str | None) -> Settings:
    try:
        return load({}, os.environ, file)
    except ConfigError as fault:
        for line in str(fault).splitlines():
            typer.echo(f"leveret config: {line}", err=True)
        raise typer.Exit(2) from fault


@app.command()
def check(config: File = None) -> None:
    """Check the configuration. Prints every error of the file and the environment."""
    _load(config)
    typer.echo("the configuration is valid")


@app.command()
def show(config: File = None, as_json: Json = False) -> None:
    """Print the settings a broker would start with, as TOML. Secrets are masked."""
    settings = _load(config)
    values: dict[str, object] = {}
    for name, option in options().items():
        value = getattr(settings, name)
        if value is None:
            continue  # TOML has no null
        if option.secret and value:
            value = _MASK
        values[name] = value if isinstance(value, bool | int | float) else str(value)
    if as_json:
        print_json(values)
        return
    for name, value in values.items():
        typer.echo(f"{name} = {_toml(value)}")


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
