"""Conditions on JSON bodies."""

import pytest

from leveret.errors import PreconditionFailedError
from leveret.http.insight.json_paths import JsonCondition, parse_path

BODY = b' {"a": {"b": [10, {"c": "x"}, [true]], "d.e": null}, "n": 1.5, "a2": {}}'


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("$", []),
        ("$.a.b[0].c", ["a", "b", 0, "c"]),
        ('$["a b"][12]["c.d"]', ["a b", 12, "c.d"]),
        ("$.grüße", ["grüße"]),
    ],
)
def test_path_is_read_as_its_steps(path: str, steps: list[str | int]) -> None:
    assert parse_path(path) == steps


@pytest.mark.parametrize(
    "path",
    ["", "a.b", "$a", "$.", "$..a", "$.a[", "$.a[x]", "$.a[01]", "$.a[-1]", "$.*[*]", "$[ 1]"],
)
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(PreconditionFailedError, match="JSON path"):
        JsonCondition(path, 1)


@pytest.mark.parametrize(
    ("path", "wanted", "is_match"),
    [
        ("$.a.b[0]", 10, True),
        ("$.a.b[0]", 10.0, True),
        ("$.a.b[1].c", "x", True),
        ("$.a.b[2][0]", True, True),
        ("$.a.b[2][0]", 1, False),
        ('$.a["d.e"]', None, True),
        ("$.a.missing", None, False),
        ("$.n", 1.5, True),
        ("$.n", "1.5", False),
        ("$.a.b[9]", 1, False),
        ("$.a.b.c", 1, False),
        ("$.n.x", 1, False),
        ("$.a2", 1, False),
        ("$[0]", 1, False),
    ],
)
def test_value_at_a_path(path: str, wanted: object, is_match: bool) -> None:
    assert JsonCondition(path, wanted).is_match(BODY) is is_match


@pytest.mark.parametrize("body", [b"", b"no json", b'{"a": 1', b'{"a": \xff}', b"[" * 100_000])
def test_body_that_is_not_json_does_not_match(body: bytes) -> None:
    for path in ("$", "$.a", "$[0]"):
        assert not JsonCondition(path, 1).is_match(body)


def test_single_values_and_lists_are_bodies_too() -> None:
    assert JsonCondition("$", 5).is_match(b"5")
    assert JsonCondition("$[1].a", 2).is_match(b'[1, {"a": 2}]')
    assert JsonCondition("$.a", 2).is_match(b'{"a": 1, "a": 2}')


@pytest.mark.parametrize(
    ("wanted", "needle"),
    [
        (5, b"5"),
        (-12, b"-12"),
        ("sku-77", b"sku-77"),
        ("a/b", b""),
        ('a"b', b""),
        ("grüße", b""),
        (1.5, b""),
        (True, b""),
        (None, b""),
        ("", b""),
    ],
)
def test_needle_is_given_only_where_it_cannot_be_escaped(wanted: object, needle: bytes) -> None:
    assert JsonCondition("$.a", wanted).needle == needle
