"""Faults of request bodies as sentences for people, instead of msgspec's names of types."""

import re
from typing import Final

from leveret.shortened import shortened

_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
    "bytes": "a text in base64",
    "datetime": "a time",
}
_PLACE: Final = r"(?: - at `(?:key in )?\$(?P<place>[^`]*)`)?$"
_WRONG_TYPE: Final = re.compile(r"Expected `(?P<wanted>[a-z |]+)`, got `(?P<got>[a-z]+)`" + _PLACE)
_WRONG_VALUE: Final = re.compile(r"Invalid enum value (?P<got>.+?)" + _PLACE, re.DOTALL)
_CUT_OFF: Final = "Input data was truncated"
_MISSING: Final = re.compile(r"Object missing required field `(?P<field>[^`]+)`" + _PLACE)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<field>[^`]+)`" + _PLACE)


def plain_fault(text: str) -> str:
    """Return the text of a decoding error in plain words. Other texts are only shortened."""
    text = shortened(text)  # the search for the place takes long in a text of megabytes
    if found := _WRONG_TYPE.match(text):
        wanted = " or ".join(map(_type_name, found["wanted"].split(" | ")))
        return f"{_subject(found['place'])} must be {wanted}, not {_type_name(found['got'])}"
    if found := _WRONG_VALUE.match(text):
        return f"{_subject(found['place'])} cannot be {found['got']}"
    if found := _MISSING.match(text):
        return f"'{found['field']}' is missing{_within(found['place'])}"
    if found := _UNKNOWN.match(text):
        return f"'{found['field']}' is not a known field{_within(found['place'])}"
    if text == _CUT_OFF:
        return "the body is empty, or ends too early"
    return text


def _type_name(name: str) -> str:
    return _TYPES.get(name, name)


def _subject(place: str | None) -> str:
    return f"'{place.removeprefix('.')}'" if place else "the body"


def _within(place: str | None) -> str:
    return f" in '{place.removeprefix('.')}'" if place else ""
