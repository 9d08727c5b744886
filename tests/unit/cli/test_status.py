"""`leveret ctl status` without Typer reads its options as Typer does."""

import pytest

from leveret.cli.ctl.status import StatusOptions, read_plain
from leveret.cli.shared.broker_address import DEFAULT_URL


def test_defaults_come_from_the_environment_and_then_from_the_program() -> None:
    assert read_plain([], {}) == StatusOptions(DEFAULT_URL, None, None, as_json=False)
    env = {"LEVERET_URL": "http://b:1", "LEVERET_USER": "anna", "LEVERET_PASSWORD": ""}
    assert read_plain([], env) == StatusOptions("http://b:1", "anna", None, as_json=False)


def test_options_are_taken_from_the_next_word_or_after_an_equals_sign() -> None:
    words = ["--url", "http://a:1", "--user=anna", "--json", "--password", "p=w"]
    wanted = StatusOptions("http://a:1", "anna", "p=w", as_json=True)
    assert read_plain(words, {"LEVERET_URL": "http://b:1"}) == wanted


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--ulr", "x"],
        ["queue"],
        ["--url"],
        ["--url", "--json"],
        ["--json=1"],
        ["--", "x"],
    ],
)
def test_everything_else_is_left_to_typer(words: list[str]) -> None:
    assert read_plain(words, {}) is None
