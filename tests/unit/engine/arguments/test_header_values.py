"""Values in the notation of RabbitMQ's error texts."""

import pytest

from leveret.engine.arguments.header_values import parse_integer, shown_text, shown_value
from leveret.wire.tables import Field, field_of


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "<<>>"),
        ("nope", '<<"nope">>'),
        ('a"b', '<<"a\\"b">>'),
        ("a\\b", '<<"a\\\\b">>'),
        ("ü", '<<"ü">>'),
        ("漢", '<<"漢">>'),
        ("\n\t\x1b", '<<"\\n\\t\\e">>'),
        ("\xa0", '<<"\xa0">>'),
        ("\x00", "<<0>>"),
        ("\x7f", "<<127>>"),
        ("\x80", "<<194,128>>"),
        ("a\x00", "<<97,0>>"),
        ("\udcff", "<<255>>"),
    ],
)
def test_text_is_quoted_if_printable(text: str, shown: str) -> None:
    assert shown_text(text) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (5, "5"),
        (-7, "-7"),
        (2**40, "1099511627776"),
        (True, "true"),
        (False, "false"),
        (None, "undefined"),
        ("a", '<<"a">>'),
        (b"x", '<<"x">>'),
        (1.5, "1.5"),
        (1.0, "1.0"),
        (1e22, "1.0e22"),
        (1e-7, "1.0e-7"),
        (1.25e-7, "1.25e-7"),
        (123456789.0, "123456789.0"),
        ([], "[]"),
        ([1], "[{signedint,1}]"),
        (["a", [True]], '[{longstr,<<"a">>},{array,[{bool,true}]}]'),
        ({}, "[]"),
        ({"a": 1}, '[{<<"a">>,signedint,1}]'),
    ],
)
def test_value_is_shown_as_an_erlang_term(value: object, shown: str) -> None:
    assert shown_value(field_of(value)) == shown


def test_decimal_is_shown_as_scale_and_number() -> None:
    assert shown_value(Field(ord("D"), (1, 15))) == "{1,15}"


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("12", 12), ("+3", 3), ("-4", -4)])
def test_integer_is_parsed(text: str, number: int) -> None:
    assert parse_integer(text) == number


@pytest.mark.parametrize("text", ["", "+", "1.0", " 1", "1_0", "0x1", "--1", "٣", "9" * 5000])
def test_text_that_is_not_an_integer_gives_none(text: str) -> None:
    assert parse_integer(text) is None
