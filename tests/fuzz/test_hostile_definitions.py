"""Definitions with hostile values in any field: a refusal changes nothing, and no start fails.

Each import is a valid document with one random value replaced. `check` may refuse it. Whatever it
lets through must be carried out without an error, and a restart must find the same definitions.
"""

import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from leveret.auth import UserDirectory
from leveret.definitions.exporting import categories
from leveret.definitions.importing import Importer
from leveret.errors import LeveretError
from leveret.testing.disk import FakeDisk
from tests.simulation.storage_stage import StorageStage

FILES = Path(__file__).parent.parent / "http"
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    -5,
    2**31,
    2**63 - 1,
    2**63,
    2**70,
    -(2**70),
    0.5,
    1e308,
    "",
    "0",
    "x",
    "x" * 256,
    "ä" * 200,
    "a\x00b",
    "a\nb",
    "amq.mine",
    "\x7f",
    "(",
    "(a*)*$",
    "\U0001f430",
    [],
    [1],
    ["a", None],
    [[]],
    {},
    {"a": {"b": [None, {"c": 2**70}]}},
    {"": ""},
)
PASSES = 2  # each ends with a restart
TRIES = 100  # of about 500 values in a document, in each pass


class Target:
    """A node that takes definitions, on a disk that survives it."""

    def __init__(self, disk: FakeDisk) -> None:
        self.stage = StorageStage(disk)
        stage = self.stage
        self.directory = UserDirectory(stage.broker.register, lambda: stage.now_ms)
        stage.broker.begin_turn(stage.now_ms)
        self.directory.load("guest", "guest")
        stage.end_turn()

    def take(self, document: object) -> str | None:
        """Import a document. Return the reason of a refusal."""
        stage = self.stage
        try:
            importer = Importer(stage.definitions, self.directory, document, owner="guest")
            deque(importer.check(), maxlen=0)
        except LeveretError as refusal:
            return str(refusal)
        stage.broker.begin_turn(stage.now_ms)
        deque(importer.steps(), maxlen=0)
        stage.end_turn()
        return None

    def settle(self) -> None:
        """Let policies take effect, and write everything."""
        for _ in range(3):
            self.stage.now_ms += 1_000
            self.stage.broker.on_pulse(self.stage.now_ms)
            self.stage.end_turn()
        self.stage.sync_all()

    def export(self) -> str:
        """Return all definitions that survive a restart."""
        found: dict[str, list[dict[str, Any]]] = {}
        for name, rows in categories(self.stage.definitions, self.directory):
            found[name] = [row for row in rows if row.get("durable", True)]
        names = {row["name"] for name in ("queues", "exchanges") for row in found[name]}
        found["bindings"] = [
            row
            for row in found["bindings"]
            if row["destination"] in names
            and (row["source"] in names or row["source"].startswith("amq."))
        ]
        texts = {name: sorted(map(shown, rows)) for name, rows in found.items()}
        return json.dumps(texts, indent=1)


def shown(row: dict[str, Any]) -> str:
    return msgspec.json.encode(row).decode()


def documents() -> list[dict[str, Any]]:
    return [
        json.loads((FILES / name).read_text())
        for name in ("definitions_3.10.json", "definitions_4.1.json")
    ]


def paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a document."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from paths(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield (*path, at)
            yield from paths(inner, (*path, at))


def changed(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> object:
    """Return the document with one value replaced, as the HTTP API reads it."""
    copy: Any = msgspec.json.decode(msgspec.json.encode(document))  # deepcopy takes most of a try
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return msgspec.json.decode(json.dumps(copy).encode())


@pytest.mark.parametrize("number", range(2))
def test_hostile_definitions_are_refused_or_survive_a_restart(number: int, seed: int) -> None:
    rng = Random(f"{seed} {number}")
    document = documents()[number]
    target = Target(FakeDisk())
    assert target.take(document) is None
    taken = refused = 0
    for _ in range(PASSES):
        for path in rng.sample(list(paths(document)), TRIES):
            value = rng.choice(VALUES)
            where = f"seed {seed}: {path} = {value!r}"
            try:
                outcome = target.take(changed(document, path, value))
            except Exception as fault:
                raise AssertionError(where) from fault
            taken += outcome is None
            refused += outcome is not None
            assert target.stage.broker.turn.fault_count == 0, where
        target.settle()
        before = target.export()
        target = Target(target.stage.killed())
        assert target.stage.broker.turn.fault_count == 0, f"seed {seed}"
        target.settle()
        assert target.export() == before, f"seed {seed}"
    assert taken > 0
    assert refused > 0
