"""Bindings: what makes two of them the same, and rows."""

import random

from leveret.engine.exchanges.binding import Binding, add_to_row, append_targets, remove_from_row
from leveret.engine.target import Target
from leveret.wire.tables import Field, Table, table_of


def make(
    name: str = "q", is_queue: bool = True, key: str = "k", arguments: Table | None = None
) -> Binding:
    return Binding("x", Target(name), is_queue, key, arguments or {})


def same(a: Binding, b: Binding) -> bool:
    return a.identity() == b.identity()


def test_same_parts_make_the_same_binding() -> None:
    assert same(make(), make())


def test_each_part_makes_a_difference() -> None:
    assert not same(make(), make(name="other"))
    assert not same(make(), make(is_queue=False))
    assert not same(make(), make(key="other"))
    assert not same(make(), make(arguments=table_of({"a": 1})))


def test_order_of_arguments_makes_no_difference() -> None:
    assert same(
        make(arguments=table_of({"a": 1, "b": 2})), make(arguments=table_of({"b": 2, "a": 1}))
    )


def test_type_of_an_argument_makes_a_difference() -> None:
    assert not same(make(arguments=table_of({"a": 1})), make(arguments=table_of({"a": 1.0})))
    assert not same(make(arguments=table_of({"a": "s"})), make(arguments=table_of({"a": b"s"})))
    assert not same(
        make(arguments={"a": Field(ord("I"), 1)}), make(arguments={"a": Field(ord("l"), 1)})
    )


def test_row_loses_exactly_the_removed_bindings(seed: int) -> None:
    rng = random.Random(seed)
    row: list[Binding] = []
    model: list[Binding] = []
    for step in range(2000):
        if model and rng.random() < 0.48:
            gone = model.pop(rng.randrange(len(model)))
            remove_from_row(row, gone)
            assert gone.position == -1
        else:
            model.append(make(name=f"q{step}"))
            add_to_row(row, model[-1])
        assert len(row) == len(model), f"seed {seed}"
        assert all(member.position == place for place, member in enumerate(row)), f"seed {seed}"
    assert {id(member) for member in row} == {id(member) for member in model}, f"seed {seed}"


def test_targets_of_a_row_are_appended() -> None:
    row: list[Binding] = []
    for name in ("a", "b"):
        add_to_row(row, make(name=name))
    found: list[Target] = []
    append_targets(row, found)
    assert [target.name for target in found] == ["a", "b"]
