"""`leveret serve`: parse the flags, load the settings, and run the broker until it is stopped.

Each option of `leveret.config.settings` becomes a flag; this module lists none. All configuration
errors are printed to stderr, and the exit code is then 2.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from leveret.config.load import load
from leveret.config.option import Option
from leveret.config.settings import Settings, flag_name, options
from leveret.errors import ConfigError


def serve(words: Sequence[str]) -> int:
    """Run the broker with these flags and return its exit code."""
    flags = vars(_parser().parse_args(words))
    config_file = flags.pop("config", None)
    try:
        settings = load(flags, os.environ, config_file)
        from leveret.runtime.serve import serve as run  # late: errors are reported without it

        return run(settings)
    except ConfigError as fault:
        for line in str(fault).splitlines():
            print(f"leveret serve: {line}", file=sys.stderr)
        return 2


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the list of all options."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args(args, namespace)
        for word in unknown:
            from difflib import get_close_matches  # imported here, because a start must be quick

            flag = word.partition("=")[0]
            near = get_close_matches(flag, self._option_string_actions, n=1)
            hint = f"; did you mean {near[0]}?" if near else "; see leveret serve --help"
            self.error(f"no such option: {flag}{hint}")
        return found

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"leveret serve: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="leveret serve",
        description="Run the broker.",
        epilog="Every option can also be set in the file, or as LEVERET_… in the environment.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file with any of these options.")
    defaults = Settings()
    for name, option in options().items():
        _add_flag(parser, name, option, getattr(defaults, name))
    return parser


def _add_flag(parser: argparse.ArgumentParser, name: str, option: Option, default: object) -> None:
    help_text = option.help if default in ("", None) else f"{option.help} Default: {default}."
    help_text = help_text.replace("%", "%%")
    if option.kind == "bool":
        parser.add_argument(flag_name(name), action=argparse.BooleanOptionalAction, help=help_text)
        return
    metavar = option.metavar or "|".join(option.choices) or option.unit.upper() or "N"
    action = "append" if option.repeats else "store"
    parser.add_argument(flag_name(name), metavar=metavar, help=help_text, action=action)
