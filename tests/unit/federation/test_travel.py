"""The headers and binding arguments that record the way of a message or a binding."""

from typing import Any

import pytest

from leveret.amqp_client.client import Delivery
from leveret.federation.travel import binding_arguments, exchange_header, queue_header
from leveret.federation.upstreams import shown_uri, upstreams_of
from leveret.wire.properties import Properties, decode_properties, encode_header
from leveret.wire.tables import plain_table, table_of

ENTRY = {"uri": "amqp://up", "queue": "q"}


def delivery(headers: dict[str, Any] | None = None, **properties: Any) -> Delivery:
    made = Properties()
    for name, value in properties.items():
        setattr(made, name, value)
    if headers is not None:
        made.headers = table_of(headers)
    return Delivery(1, "from", "key", True, encode_header(made, 1), b"x")


def headers_of(header: bytes) -> dict[str, Any]:
    return plain_table(decode_properties(header).headers or {})


def test_each_exchange_link_adds_an_entry_in_front() -> None:
    first = exchange_header(
        delivery({"h": 1}, user_id="u"), table_of({"uri": "a"}), keeps_user_id=False
    )
    assert decode_properties(first).user_id is None
    again = Delivery(2, "x", "k", False, first, b"x")
    found = headers_of(exchange_header(again, table_of({"uri": "b"}), keeps_user_id=True))
    assert found["h"] == 1
    assert found["x-received-from"] == [
        {"uri": "b", "redelivered": False},
        {"uri": "a", "redelivered": True},
    ]


def test_user_id_is_kept_if_the_upstream_is_trusted() -> None:
    header = exchange_header(delivery(user_id="u"), {}, keeps_user_id=True)
    assert decode_properties(header).user_id == "u"


def test_queue_link_keeps_the_first_address_and_counts_visits() -> None:
    header = queue_header(delivery({"CC": ["c"]}), table_of(ENTRY), keeps_user_id=False)
    found = headers_of(header)
    assert (found["x-original-exchange"], found["x-original-routing-key"]) == ("from", "key")
    assert (found["x-original-cc"], "CC" in found) == (["c"], False)
    for visit in (2, 3):
        header = queue_header(
            Delivery(1, "", "q", False, header, b"x"), table_of(ENTRY), keeps_user_id=False
        )
        found = headers_of(header)
        assert [row["visit-count"] for row in found["x-received-from"]] == [visit]
    assert found["x-original-exchange"] == "from"


def test_header_that_a_client_made_up_is_replaced() -> None:
    found = headers_of(
        queue_header(delivery({"x-received-from": "x"}), table_of(ENTRY), keeps_user_id=False)
    )
    assert [row["visit-count"] for row in found["x-received-from"]] == [1]


@pytest.mark.parametrize(
    ("before", "hops", "left"),
    [
        ([], 1, 1),
        ([], 3, 3),
        ([{"cluster-name": "c", "vhost": "/", "hops": 2}], 3, 1),
        ([{"cluster-name": "c", "vhost": "/", "hops": 3}], 1, 1),
        ([{"cluster-name": "c", "vhost": "/", "hops": 1}], 3, None),
        ([{"cluster-name": "up", "vhost": "/", "hops": 9}], 9, None),
        ([{"cluster-name": "up", "vhost": "other", "hops": 9}], 9, 8),
    ],
)
def test_binding_goes_as_far_back_as_a_message_can_come(
    before: list[dict[str, object]], hops: int, left: int | None
) -> None:
    given = table_of({"a": 1, **({"x-bound-from": before} if before else {})})
    found = binding_arguments(
        given, cluster="down", vhost="/", exchange="x A", upstream=("up", "/"), hops=hops
    )
    if left is None:
        assert found is None
        return
    assert found is not None
    shown: Any = plain_table(found)
    assert shown["a"] == 1
    assert shown["x-bound-from"][0]["hops"] == left
    assert len(shown["x-bound-from"]) == len(before) + 1


def test_policy_names_an_upstream_a_set_or_a_pattern() -> None:
    values: dict[tuple[str, str], object] = {
        ("federation-upstream", "a"): {"uri": "amqp://u:p@a", "max-hops": 2},
        ("federation-upstream", "b"): {"uri": ["amqp://u:p@b", "amqp://u:p@c"]},
        ("federation-upstream-set", "s"): [
            {"upstream": "a", "max-hops": 3},
            {"upstream": "gone"},
        ],
    }

    def found(**policy: str) -> list[tuple[str, int]]:
        table = table_of({f"federation-{key.replace('_', '-')}": v for key, v in policy.items()})
        upstreams = upstreams_of(table, ["a", "b"], lambda *key: values.get(key))
        return [(upstream.name, upstream.hops_max) for upstream in upstreams]

    assert found(upstream="a") == [("a", 2)]
    assert found(upstream="gone") == []
    assert found(upstream_set="s") == [("a", 3)]
    assert found(upstream_set="all") == [("a", 2), ("b", 1)]
    assert found(upstream_pattern="^b") == [("b", 1)]
    assert found(upstream_pattern="(") == []


def test_login_and_query_of_an_address_are_not_shown() -> None:
    assert shown_uri("amqps://u:secret@host:5671/v?password=x") == "amqps://host:5671/v"
    assert shown_uri("amqp://host") == "amqp://host"
