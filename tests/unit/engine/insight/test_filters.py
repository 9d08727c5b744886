"""Which messages match a filter."""

import pytest

from leveret.engine.insight.filters import CONDITIONS_MAX, Filter, age_of, find_header
from leveret.engine.message import Address, Message
from leveret.errors import PreconditionFailedError
from leveret.wire.properties import Properties, encode_header
from leveret.wire.tables import table_of

NOW_MS = 1_800_000_000_000


def made(body: bytes = b"body", key: str = "k", **fields: object) -> Message:
    properties = Properties()
    for name, value in fields.items():
        setattr(properties, name, table_of(value) if isinstance(value, dict) else value)
    header = encode_header(properties, len(body))
    return Message(Address("", key), header, body, 7, 0, 0, 0, 0)


def matches(wanted: Filter, message: Message, arrived_ms: int = 0) -> bool:
    return wanted.matches(message, arrived_ms, NOW_MS)


def test_without_conditions_everything_matches() -> None:
    assert matches(Filter(), made())


def test_properties_are_compared_whole() -> None:
    wanted = Filter()
    wanted.require_property("message_id", "m1")
    wanted.require_property("priority", 3)
    assert matches(wanted, made(message_id="m1", priority=3))
    assert not matches(wanted, made(message_id="m1", priority=4))
    assert not matches(wanted, made(message_id="m10", priority=3))
    assert not matches(wanted, made(correlation_id="m1", priority=3))
    assert not matches(wanted, made())


@pytest.mark.parametrize(
    ("value", "wanted", "is_match"),
    [
        ("a", "a", True),
        ("a", "b", False),
        (1, 1, True),
        (1, 1.0, True),
        (1, True, False),
        (True, True, True),
        (True, 1, False),
        (None, None, True),
        (1.5, 1.5, True),
        (b"bytes", "bytes", True),
        ("1", 1, False),
    ],
)
def test_header_values_are_compared_as_json_would(
    value: object, wanted: object, is_match: bool
) -> None:
    made_filter = Filter()
    made_filter.require_header("h", wanted)
    assert matches(made_filter, made(headers={"h": value})) is is_match


def test_dots_lead_into_tables_and_lists_unless_the_name_has_them() -> None:
    table = table_of({"a.b": 1, "a": {"b": 2, "c": [{"d": 3}]}})
    for name, value in (("a.b", 1), ("a.c.0.d", 3)):
        field = find_header(table, name)
        assert field is not None
        assert field.value == value
    for name in ("a.x", "a.c.1.d", "a.c.0", "a.b.c", "x.y", "a.c.-1.d"):
        found = find_header(table, name)
        assert found is None or name == "a.c.0"
    wanted = Filter()
    wanted.require_header("x-death.0.reason", "expired")
    assert matches(wanted, made(headers={"x-death": [{"reason": "expired"}]}))


def test_text_and_key() -> None:
    wanted = Filter()
    wanted.require_text("grüß")
    wanted.require_routing_key("k")
    assert matches(wanted, made("xx grüß yy".encode()))
    assert not matches(wanted, made("xx grüß yy".encode(), key="k2"))
    assert not matches(wanted, made(b"gruss"))


def test_age_is_that_in_the_queue_or_else_by_the_timestamp() -> None:
    assert age_of(made(), 0, NOW_MS) == -1
    assert age_of(made(), NOW_MS - 500, NOW_MS) == 500
    assert age_of(made(timestamp=NOW_MS // 1000 - 60), 0, NOW_MS) == 60_000
    assert age_of(made(timestamp=1), NOW_MS - 500, NOW_MS) == 500
    assert age_of(made(timestamp=NOW_MS), 0, NOW_MS) == -1, "milliseconds in place of seconds"
    old = Filter()
    old.require_older(1000)
    young = Filter()
    young.require_newer(1000)
    for age_ms, is_old in ((0, False), (1000, False), (1001, True)):
        assert matches(old, made(), NOW_MS - age_ms) is is_old
        assert matches(young, made(), NOW_MS - age_ms) is not is_old
    assert not matches(old, made())
    assert not matches(young, made())


@pytest.mark.parametrize(
    "message",
    [
        made(message_id="m1", headers={"tenant": "t7"}),
        made(b"m1 t7", message_id="m1", headers={"tenant": b"t7", "x": {"y": ["t7"]}}),
        made(message_id="m1", headers={"tenant": "t7", "n": 5, "x.y.0": "t7"}, type="long type"),
    ],
)
def test_needle_is_in_everything_that_matches(message: Message) -> None:
    record = message.address.record() + message.header + message.body
    for wanted in _filters():
        if matches(wanted, message):
            assert wanted.needle in record


def _filters() -> list[Filter]:
    made_filters = [Filter() for _ in range(8)]
    made_filters[0].require_property("message_id", "m1")
    made_filters[1].require_header("tenant", "t7")
    made_filters[2].require_header("x.y.0", "t7")
    made_filters[3].require_header("n", 5)
    made_filters[4].require_routing_key("k")
    made_filters[5].require_property("type", "long type")
    made_filters[5].require_header("tenant", "t7")
    made_filters[6].require_text("m1")
    made_filters[7].require_routing_key("k")
    made_filters[7].require_header("n", 5)
    return made_filters


def test_needle_is_of_a_value_where_there_is_one() -> None:
    wanted = Filter()
    wanted.require_header("a-long-name", "v")
    assert wanted.needle == b"\0\0\0\x01v"
    wanted.require_property("type", "abcdef")
    assert wanted.needle == b"\x06abcdef"


def test_too_many_conditions_are_refused() -> None:
    wanted = Filter()
    with pytest.raises(PreconditionFailedError, match=f"at most {CONDITIONS_MAX}"):
        for number in range(CONDITIONS_MAX + 1):
            wanted.require_header(f"h{number}", 1)
