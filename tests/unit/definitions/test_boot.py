"""Definitions from a file at the start: imported as a whole, or an error and no change."""

from pathlib import Path

import pytest

from leveret.auth import UserDirectory
from leveret.definitions import Definitions
from leveret.definitions.boot import load_definitions
from leveret.engine.broker import Broker
from leveret.errors import ConfigError


def node() -> tuple[Definitions, UserDirectory]:
    broker = Broker(1)
    return Definitions(broker, "hare", "4.3.0"), UserDirectory(broker.register, lambda: 1)


def test_a_file_is_taken_in(tmp_path: Path) -> None:
    definitions, directory = node()
    path = tmp_path / "d.json"
    path.write_text('{"vhosts": [{"name": "v"}], "queues": [{"name": "q", "vhost": "v"}]}')
    load_definitions(str(path), definitions, directory)
    assert list(definitions.broker.vhost("v").queues) == ["q"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "truncated"),
        ("[]", "the definitions are not an object"),
        ("[" * 100_000, "nested too deep"),
        (
            '{"vhosts": [{"name": "v"}], "queues": [{"name": "x", "vhost": "none"}]}',
            'create virtual host "none"',
        ),
    ],
)
def test_a_fault_stops_the_start_and_changes_nothing(
    tmp_path: Path, text: str, reason: str
) -> None:
    definitions, directory = node()
    path = tmp_path / "d.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"load_definitions: .*{reason}"):
        load_definitions(str(path), definitions, directory)
    assert list(definitions.broker.vhosts) == ["/"]


def test_a_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_definitions(str(tmp_path / "none"), *node())
