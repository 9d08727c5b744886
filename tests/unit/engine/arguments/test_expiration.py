"""The expiration property: which texts are numbers, and the error texts for the others.

Every text was recorded from RabbitMQ.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.engine.arguments.expiration import read_expiration
from leveret.errors import PreconditionFailedError


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("5", 5),
        ("00005", 5),
        ("+5", 5),
        ("-0", 0),
        ("4294967296", 2**32),
        ("315360000000", 315_360_000_000),
    ],
)
def test_number_of_milliseconds_is_read(text: str, milliseconds: int) -> None:
    assert read_expiration(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_integer"),
        ("abc", "no_integer"),
        (" 5", "no_integer"),
        ("+", "no_integer"),
        ("-", "no_integer"),
        ("--5", "no_integer"),
        ("- 5", "no_integer"),
        ("٣", "no_integer"),
        ("a'b", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("315360000001", "{value_too_large,315360000001}"),
        ("1.5", '{leftover_string,".5"}'),
        ("5abc", '{leftover_string,"abc"}'),
        ("-5x", '{leftover_string,"x"}'),
        ("5 ", '{leftover_string," "}'),
        ("1_0", '{leftover_string,"_0"}'),
        ("0x10", '{leftover_string,"x10"}'),
        ("99999999999999x", '{leftover_string,"x"}'),
        ("5\n", '{leftover_string,"\\n"}'),
        ('5"q"', '{leftover_string,"\\"q\\""}'),
        ("5\\", '{leftover_string,"\\\\"}'),
        ("5'", '{leftover_string,"\'"}'),
        ("5é", '{leftover_string,"é"}'),
        ("5\udcff", '{leftover_string,"\udcff"}'),
        ("5\x01", "{leftover_string,[1]}"),
        ("5\x7f", "{leftover_string,[127]}"),
        ("5€", "{leftover_string,[226,130,172]}"),
        ("5\t\v\f\r\x1b\b\0", "{leftover_string,[9,11,12,13,27,8,0]}"),
        ("9" * 18, "{value_too_large," + "9" * 18 + "}"),
        ("9" * 19, "{value_too_large,\n" + " " * 43 + "9" * 19 + "}"),
        ("-" + "9" * 18, "{value_negative,-" + "9" * 18 + "}"),
        ("-" + "9" * 19, "{value_negative,\n" + " " * 44 + "-" + "9" * 19 + "}"),
        ("5" + "a" * 17, '{leftover_string,"' + "a" * 17 + '"}'),
        ("5" + "a" * 18, "{leftover_string,\n" + " " * 43 + '"' + "a" * 18 + '"}'),
    ],
)
def test_other_text_is_refused_in_rabbitmqs_words(text: str, reason: str) -> None:
    with pytest.raises(PreconditionFailedError) as refused:
        read_expiration(text)
    assert str(refused.value) == f"invalid expiration '{text}': {reason}"


@given(st.one_of(st.text(max_size=60), st.text("0123456789+- x", max_size=255)))
def test_any_text_gives_a_time_in_range_or_a_refusal(text: str) -> None:
    try:
        milliseconds = read_expiration(text)
    except PreconditionFailedError:
        return
    assert 0 <= milliseconds <= 315_360_000_000
    assert milliseconds == int(text)
