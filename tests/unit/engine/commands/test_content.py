"""Content headers of a publish: the values that are unpacked, and the headers that are refused."""

import pytest

from leveret.engine.commands.content import Content
from leveret.engine.message import PERSISTENT
from leveret.errors import PreconditionFailedError
from leveret.wire.properties import Properties, decode_properties, encode_header
from leveret.wire.tables import table_of


def content(headers: dict[str, object] | None = None, **values: object) -> Content:
    properties = Properties()
    for name, value in values.items():
        setattr(properties, name, value)
    if headers is not None:
        properties.headers = table_of(headers)
    return Content(encode_header(properties, 7))


def test_an_empty_header_asks_for_nothing() -> None:
    plain = content()
    assert (plain.body_size, plain.flags, plain.priority, plain.ttl_ms) == (7, 0, -1, -1)
    assert (plain.delay_ms, plain.extra_keys, plain.reply_to, plain.user_id) == (0, [], None, None)


def test_priority_expiration_and_persistence_are_unpacked() -> None:
    full = content(
        headers={"x-delay": 50},
        delivery_mode=2,
        priority=9,
        expiration="1000",
        reply_to="r",
        user_id="u",
    )
    assert (full.flags, full.priority, full.ttl_ms, full.delay_ms) == (PERSISTENT, 9, 1000, 50)
    assert (full.reply_to, full.user_id) == ("r", "u")


def test_cc_and_bcc_add_keys_and_only_bcc_is_hidden() -> None:
    copied = content(headers={"CC": ["a", "b"], "BCC": ["c"], "x": 1})
    address = copied.address("e", "k")
    assert (address.keys, address.shown) == (["k", "a", "b", "c"], 3)
    shown = decode_properties(copied.header).headers
    assert shown is not None and sorted(shown) == ["CC", "x"]


def test_x_delay_becomes_negative_when_the_delay_is_over() -> None:
    delayed = content(headers={"x-delay": 50})
    assert Content(delayed.after_delay()).delay_ms == 0
    headers = decode_properties(delayed.after_delay()).headers
    assert headers is not None and headers["x-delay"].value == -50


@pytest.mark.parametrize(
    ("headers", "values", "text"),
    [
        (None, {"delivery_mode": 3}, "delivery_mode_unknown,3"),
        (None, {"delivery_mode": 0}, "delivery_mode_unknown,0"),
        (None, {"expiration": "soon"}, "invalid expiration 'soon'"),
        ({"CC": "a"}, {}, 'unacceptable_type_in_header,"CC",longstr'),
        ({"BCC": 5}, {}, 'unacceptable_type_in_header,"BCC",'),
    ],
)
def test_headers_that_rabbitmq_refuses_are_refused(
    headers: dict[str, object] | None, values: dict[str, object], text: str
) -> None:
    with pytest.raises(PreconditionFailedError, match=text):
        content(headers, **values)
