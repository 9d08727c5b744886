"""Reasons of the broker in plain words."""

import pytest

from leveret.cli.shared.reasons import plain_reason


@pytest.mark.parametrize(
    ("reason", "plain"),
    [
        (
            'Validation failed\n\n[{<<"ttl">>,<<"5">>}] are not recognised policy settings\n',
            "'ttl' is not a policy setting",
        ),
        (
            '[{<<"a">>,[1]},{<<"b">>,<<"}">>}] are not recognised policy settings',
            "'a', 'b' are not policy settings",
        ),
        ('<<"x">> is not valid, actually was <<>>', "'x' is not valid, not an empty text"),
        ("[{key_missing,pattern}]", "'pattern' is missing"),
        (
            'max-length: "expected integer, got longstr"',
            "max-length: must be a whole number, not a text",
        ),
        ("no queue 'q' in vhost '/'", "no queue 'q' in vhost '/'"),
    ],
)
def test_reason_has_no_erlang_terms(reason: str, plain: str) -> None:
    assert plain_reason(reason) == plain
