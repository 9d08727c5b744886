"""Headers of messages and arguments of bindings that say where they have been. RabbitMQ: same.

x-received-from          one table for each link that a message came by, the newest first
x-bound-from             one table for each link that a binding went by, with the hops left
x-original-exchange,     of a message that a queue link carried: where it was published first
x-original-routing-key
x-original-cc            the header CC of a message that a queue link carried
"""

from typing import Final

from leveret.amqp_client.client import Delivery
from leveret.engine.exchanges.federation_upstream import RECEIVED_FROM, has_been_at
from leveret.wire.properties import Properties, decode_properties, encode_header
from leveret.wire.tables import Field, Table, field_of

BOUND_FROM: Final = "x-bound-from"

_ARRAY: Final = ord("A")
_TABLE: Final = ord("F")
_LONG: Final = ord("l")
_SHORT: Final = ord("s")
_VISIT_KEYS: Final = ("uri", "queue")


def exchange_header(delivery: Delivery, entry: Table, *, keeps_user_id: bool) -> bytes:
    """Return the content header of a message that an exchange link passes on."""
    properties = _decoded(delivery, keeps_user_id)
    headers = dict(properties.headers or {})
    entry = {**entry, "redelivered": field_of(delivery.redelivered)}
    headers[RECEIVED_FROM] = _prepended(entry, headers.get(RECEIVED_FROM))
    properties.headers = headers
    return encode_header(properties, len(delivery.body))


def queue_header(delivery: Delivery, entry: Table, *, keeps_user_id: bool) -> bytes:
    """Return the content header of a message that a queue link passes on.

    A link that a message came by before is counted, not listed again.
    """
    properties = _decoded(delivery, keeps_user_id)
    headers = {
        ("x-original-cc" if name == "CC" else name): field
        for name, field in (properties.headers or {}).items()
    }
    visits = 0
    links = _links(headers.get(RECEIVED_FROM))
    if links is None:
        headers["x-original-exchange"] = field_of(delivery.exchange)
        headers["x-original-routing-key"] = field_of(delivery.routing_key)
    else:
        visits = max((_visits(link) for link in links if _is_same(link, entry)), default=0)
        links = [link for link in links if not _is_same(link, entry)]
    entry = {
        **entry,
        "redelivered": field_of(delivery.redelivered),
        "visit-count": Field(_LONG, visits + 1),
    }
    headers[RECEIVED_FROM] = _prepended(entry, Field(_ARRAY, links or []))
    properties.headers = headers
    return encode_header(properties, len(delivery.body))


def binding_arguments(
    arguments: Table,
    *,
    cluster: str,
    vhost: str,
    exchange: str,
    upstream: tuple[str, str],
    hops: int,
) -> Table | None:
    """Return the arguments of a binding at the upstream; None if it is beyond the limit of hops.

    `upstream` is the cluster and the vhost of the upstream. `hops` is the limit of this link. A
    binding travels over as many links as a message may.
    """
    links = _links(arguments.get(BOUND_FROM))
    if links:
        left = links[0].value.get("hops") if isinstance(links[0].value, dict) else None
        before = left.value if left is not None and isinstance(left.value, int) else 1
        hops = min(before - 1, hops)
        if has_been_at(links, *upstream):
            hops = 0
    if hops <= 0:
        return None
    entry: Table = {
        "cluster-name": field_of(cluster),
        "vhost": field_of(vhost),
        "exchange": field_of(f"{vhost}:{exchange}"),
        "hops": Field(_SHORT, min(hops, 0x7FFF)),
    }
    return {**arguments, BOUND_FROM: _prepended(entry, arguments.get(BOUND_FROM))}


def _decoded(delivery: Delivery, keeps_user_id: bool) -> Properties:
    properties = decode_properties(delivery.header)
    if not keeps_user_id:
        properties.user_id = None
    return properties


def _links(field: Field | None) -> list[Field] | None:
    """Return the tables of the header; None if the header was not made by a link."""
    return field.value if field is not None and isinstance(field.value, list) else None


def _prepended(entry: Table, field: Field | None) -> Field:
    return Field(_ARRAY, [Field(_TABLE, entry), *(_links(field) or [])])


def _is_same(link: Field, entry: Table) -> bool:
    table = link.value
    if not isinstance(table, dict):
        return False
    return all(_value(table, key) == _value(entry, key) for key in _VISIT_KEYS)


def _value(table: Table, name: str) -> object:
    field = table.get(name)
    return field.value if field is not None else None


def _visits(link: Field) -> int:
    found = _value(link.value, "visit-count") if isinstance(link.value, dict) else None
    return found if isinstance(found, int) else 0
