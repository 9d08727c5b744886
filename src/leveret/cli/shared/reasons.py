"""Reasons of the broker as people read them, as `http/page/reasons.js` shows them on the page.

Some reasons are RabbitMQ's words, which its clients compare: a policy with an unknown key is
refused with `[{<<"ttl">>,<<"5">>}] are not recognised policy settings`. These are Erlang terms.
"""

import re
from typing import Final

_UNKNOWN_KEYS: Final = re.compile(
    r'\[((?:\{<<"[^"]*">>,.*?\},?)+)\] are not recognised policy settings', re.DOTALL
)
_TYPES: Final = {
    "longstr": "a text",
    "integer": "a whole number",
    "bool": "true or false",
    "table": "a table",
}


def plain_reason(reason: str) -> str:
    """Return a reason of the broker without Erlang terms."""
    text = re.sub(r"^Validation failed\s*", "", reason)
    text = _UNKNOWN_KEYS.sub(_name_unknown_keys, text)
    text = re.sub(r"\[\{key_missing,(\w+)\}\]", r"'\1' is missing", text)
    text = re.sub(r'<<"([^"]*)">>', r"'\1'", text)
    text = text.replace("<<>>", "an empty text").replace(", actually was ", ", not ")
    text = re.sub(r': "expected (\w+), got (\w+)"', _name_types, text)
    text = text.replace(" of RE2's kind, which has neither look-around nor back-references", "")
    return text.strip()


def _name_unknown_keys(found: re.Match[str]) -> str:
    names = [f"'{name}'" for name in re.findall(r'\{<<"([^"]*)">>,', found[1])]
    if len(names) == 1:
        return f"{names[0]} is not a policy setting"
    return f"{', '.join(names)} are not policy settings"


def _name_types(found: re.Match[str]) -> str:
    wanted, got = (_TYPES.get(name, name) for name in found.groups())
    return f": must be {wanted}, not {got}"
