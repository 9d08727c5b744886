"""Values of the command line."""

import pytest

from leveret.errors import ConfigError
from leveret.perf import flag_values


def test_sizes_have_binary_units() -> None:
    assert flag_values.parse_sizes("16,4k, 1MiB,2KB") == (16, 4096, 1048576, 2048)


def test_schedule_is_a_list_of_values_and_seconds() -> None:
    assert flag_values.parse_schedule(["1000:10", "0:0.5"], "rate") == ((1000, 10.0), (0, 0.5))
    assert flag_values.parse_schedule(["1k:1"], "size") == ((1024, 1.0),)


def test_pairs_have_types() -> None:
    found = flag_values.parse_pairs(["x-max-length=5", "x=true", "name=a=b", "n=-1"], "--queue-arg")
    assert found == (("x-max-length", 5), ("x", True), ("name", "a=b"), ("n", -1))


def test_range_of_keys() -> None:
    assert flag_values.parse_keys(["a", "k.{8..10}.x"]) == ("a", "k.8.x", "k.9.x", "k.10.x")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: flag_values.parse_sizes("16,big"), "'big' is not a size"),
        (lambda: flag_values.parse_schedule(["100"], "rate"), "'100' is not RATE:SECONDS"),
        (lambda: flag_values.parse_schedule(["x:1"], "rate"), "'x:1' is not RATE:SECONDS"),
        (
            lambda: flag_values.parse_pairs(["novalue"], "--header"),
            "--header 'novalue' is not KEY=VALUE",
        ),
        (lambda: flag_values.parse_keys(["{5..1}"]), "not a range"),
        (lambda: flag_values.parse_keys(["{1..9999999}"]), "not a range"),
    ],
)
def test_wrong_values_are_refused_with_a_sentence(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises(ConfigError, match=said):
        make()
