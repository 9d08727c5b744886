"""The tables of arguments, and how their reasons print text."""

import pytest

from leveret.engine.arguments.rules import (
    CONSUMER_RULES,
    QUEUE_KINDS,
    QUEUE_RULES,
    TIME_MS_MAX,
    ArgumentRule,
    age_ms,
    erlang_string,
)


@pytest.mark.parametrize("rules", [QUEUE_RULES, CONSUMER_RULES])
def test_each_argument_has_one_row_with_known_kinds(rules: list[ArgumentRule]) -> None:
    names = [rule.name for rule in rules]
    assert len(names) == len(set(names))
    for rule in rules:
        assert rule.name.startswith("x-")
        assert rule.kinds
        assert set(rule.kinds) <= set(QUEUE_KINDS)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", '""'),
        ("it's", '"it\'s"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("\b\t\n\v\f\r\x1b", '"\\b\\t\\n\\v\\f\\r\\e"'),
        ("é\xa0", '"é\xa0"'),  # octets of 160 and over are printable Latin-1
        ("€", "[226,130,172]"),  # 130 is not
        ("a\0", "[97,0]"),
        ("\x7f", "[127]"),
        ("\udcff", '"\udcff"'),
        ("\udc80", "[128]"),
    ],
)
def test_text_is_printed_as_erlang_does(text: str, printed: str) -> None:
    assert erlang_string(text) == printed


@pytest.mark.parametrize(
    "text", ["", "D", "5", "0D", "-1D", "+1D", " 1D", "1.5D", "1DD", "1d", "٣D"]
)
def test_invalid_age_is_zero(text: str) -> None:
    assert age_ms(text) == 0


def test_age_is_limited_to_ten_years() -> None:
    assert age_ms("10Y") == TIME_MS_MAX
    assert age_ms("9" * 5_000 + "s") == TIME_MS_MAX
