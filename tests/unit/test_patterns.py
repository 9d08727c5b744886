"""Patterns that users write: matches, refusals, and linear time."""

import time

import pytest

from leveret.errors import PreconditionFailedError
from leveret.patterns import LENGTH_MAX, Pattern, escape


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("", "anything", True),
        ("b", "abc", True),
        ("^b", "abc", False),
        ("^(a|b)-.*$", "b-1", True),
        ("^$", "", True),
        ("^$", "x", False),
        ("ü+$", "grüü", True),
        ("^.$", "\udcff", False),
        (r"^\w+\.\d$", "abc.1", True),
    ],
)
def test_pattern_matches_anywhere_unless_anchored(pattern: str, text: str, matches: bool) -> None:
    assert Pattern(pattern).matches(text) is matches


def test_exploding_pattern_takes_linear_time() -> None:
    began = time.perf_counter()
    for pattern in ("(a+)+$", "^(a|a)*$", "^(([a-z])+.)+[A-Z]([a-z])+$", "(.*a){20}$"):
        assert not Pattern(pattern).matches("a" * 30_000 + "!")
    assert time.perf_counter() - began < 30  # a backtracking engine would not end in this life


@pytest.mark.parametrize("pattern", ["(?=a)b", "(?<!a)b", r"(a)\1", "(", "[", "a{1001}", "*"])
def test_what_cannot_be_matched_in_linear_time_is_refused(pattern: str) -> None:
    with pytest.raises(PreconditionFailedError, match="is not a regular expression of RE2's kind"):
        Pattern(pattern)


def test_pattern_that_is_too_large_is_refused() -> None:
    with pytest.raises(PreconditionFailedError, match="more than 4096 characters"):
        Pattern("a" * (LENGTH_MAX + 1))
    with pytest.raises(PreconditionFailedError, match="too large"):
        Pattern("(\\pL{30}){30}")


def test_escaped_text_matches_itself_alone() -> None:
    pattern = Pattern(f"^{escape('a.b*{c}')}$")
    assert pattern.matches("a.b*{c}")
    assert not pattern.matches("axb*{c}")
