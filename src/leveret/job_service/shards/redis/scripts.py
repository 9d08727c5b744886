"""Loads the Lua scripts. Each `<name>.lua` describes its KEYS, its ARGV and what it returns.

Redis runs a script in one step: no other command comes between its commands.
"""

from importlib.resources import files


def load_script(name: str) -> str:
    """Return the text of `<name>.lua`."""
    return files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
