"""Events: changes of the node, as messages of the topic exchange `amq.rabbitmq.event`.

The exchange is in the vhost `/`. While nothing is bound to it, `Turn.listens` is False and no event
is made. Otherwise the code that changes something notes an event in the turn, and the broker
publishes the events at the end of the turn. The routing key is the name of the event
(`queue.created`), the facts are headers, the body is empty. docs/events.md lists the events. Their
names are RabbitMQ's.

Changes of the register (users, permissions, policies, parameters, limits) become events here, by
kind of entry. The owners of the entries need not know of events.
"""

import json
from typing import Final

from mypy_extensions import i64

from leveret.engine.exchanges.binding import Binding
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.turns.session import Consumer
from leveret.engine.turns.turn import Turn
from leveret.wire.properties import Properties, encode_header
from leveret.wire.tables import Field, Table, field_of

EVENT_EXCHANGE: Final = "amq.rabbitmq.event"
_TABLE: Final = ord("F")
_LONG: Final = ord("l")
CONSUMER_CREATED: Final = "consumer.created"
CONSUMER_DELETED: Final = "consumer.deleted"
# A content header must fit into one frame of every consumer, and the lowest frame size is 4096.
HEADER_BYTES_MAX: Final = 4000
TEXT_CHARS_MAX: Final = 100  # limit for the text of each fact, if the header is too long
_INTERNAL: Final = "rmq-internal"  # RabbitMQ: the user of a change that no user made

# Events for each kind of entry in the register: (set, cleared, names of the parts of the key).
_ENTRIES: Final = {
    "permission": ("permission.created", "permission.deleted", "vhost user"),
    "topic_permission": (
        "topic.permission.created",
        "topic.permission.deleted",
        "vhost user exchange",
    ),
    "policy": ("policy.set", "policy.cleared", "vhost name"),
    "operator_policy": ("operator_policy.set", "operator_policy.cleared", "vhost name"),
    "parameter": ("parameter.set", "parameter.cleared", "component vhost name"),
    "global_parameter": ("parameter.set", "parameter.cleared", "name"),
    "vhost_limit": ("vhost.limits.set", "vhost.limits.cleared", "vhost"),
    "user_limit": ("user.limits.set", "user.limits.cleared", "user"),
}
_PLAIN_KEYS: Final = ("global_parameter", "vhost_limit", "user_limit")


def note_event(turn: Turn, key: str, facts: Table) -> None:
    """Note an event, unless nothing is bound to the event exchange."""
    if not turn.listens or turn.is_restoring:
        return
    outlet = turn.outlet
    user = outlet.user_name if outlet is not None else ""
    facts["user_who_performed_action"] = field_of(user or _INTERNAL)
    facts["timestamp_in_ms"] = Field(_LONG, int(turn.now_ms))
    turn.events.append((key, facts))


def encode_event_header(facts: Table, now_ms: i64) -> bytes:
    """Return the content header of an event. Arguments that are too long are left out."""
    header = _header_of(facts, now_ms)
    if len(header) > HEADER_BYTES_MAX:
        header = _header_of({name: _shortened(field) for name, field in facts.items()}, now_ms)
    return header


def _shortened(field: Field) -> Field:
    value = field.value
    if isinstance(value, str):
        return Field(field.kind, value[:TEXT_CHARS_MAX])
    if isinstance(value, dict):
        return Field(field.kind, {})
    return Field(field.kind, []) if isinstance(value, list) else field


def _header_of(facts: Table, now_ms: i64) -> bytes:
    properties = Properties()
    properties.delivery_mode = 2
    properties.timestamp = now_ms // 1000
    properties.headers = facts
    return encode_header(properties, 0)


def facts_of(values: dict[str, object]) -> Table:
    """Return plain values as the headers of an event."""
    return {name: field_of(value) for name, value in values.items()}


def note_queue_created(
    turn: Turn,
    vhost: str,
    name: str,
    *,
    kind: str,
    durable: bool,
    auto_delete: bool,
    exclusive: bool,
    arguments: Table,
) -> None:
    facts = facts_of(
        {
            "name": name,
            "vhost": vhost,
            "type": kind,
            "durable": durable,
            "auto_delete": auto_delete,
            "exclusive": exclusive,
        }
    )
    facts["arguments"] = Field(_TABLE, arguments)
    note_event(turn, "queue.created", facts)


def note_deleted(turn: Turn, key: str, vhost: str, name: str) -> None:
    """Note that a queue or exchange was deleted. `key` is the name of the event."""
    note_event(turn, key, facts_of({"name": name, "vhost": vhost}))


def note_exchange_created(turn: Turn, vhost: str, exchange: Exchange) -> None:
    facts = facts_of(
        {
            "name": exchange.name,
            "vhost": vhost,
            "type": exchange.kind,
            "durable": exchange.durable,
            "auto_delete": exchange.auto_delete,
            "internal": exchange.internal,
        }
    )
    facts["arguments"] = Field(_TABLE, exchange.arguments)
    note_event(turn, "exchange.created", facts)


def note_binding(turn: Turn, key: str, vhost: str, binding: Binding) -> None:
    facts = facts_of(
        {
            "source_name": binding.source,
            "source_kind": "exchange",
            "destination_name": binding.target.name,
            "destination_kind": "queue" if binding.is_queue else "exchange",
            "routing_key": binding.routing_key,
            "vhost": vhost,
        }
    )
    facts["arguments"] = Field(_TABLE, binding.arguments)
    note_event(turn, key, facts)


def note_consumer(turn: Turn, key: str, vhost: str, queue: str, consumer: Consumer) -> None:
    session = consumer.session
    facts = facts_of(
        {
            "consumer_tag": consumer.tag,
            "queue": queue,
            "vhost": vhost,
            "exclusive": consumer.exclusive,
            "ack_required": not consumer.no_ack,
            "prefetch_count": int(consumer.prefetch),
            "connection": session.outlet.name,
            "channel": int(session.number),
        }
    )
    facts["arguments"] = Field(_TABLE, consumer.arguments)
    note_event(turn, key, facts)


def note_entry(turn: Turn, kind: str, key: str, old: str | None, new: str | None) -> None:
    """Note that an entry of the register was added, changed or removed."""
    if not turn.listens:
        return
    if kind == "user":
        _user_changed(turn, key, old, new)
    elif kind == "vhost":
        _vhost_changed(turn, key, old, new)
    elif kind in _ENTRIES:
        made, dropped, parts = _ENTRIES[kind]
        names = parts.split()
        values = [key] if kind in _PLAIN_KEYS else json.loads(key)
        facts = facts_of({str(n): v for n, v in zip(names, values, strict=True)})
        note_event(turn, made if new is not None else dropped, facts)


def _user_changed(turn: Turn, name: str, old: str | None, new: str | None) -> None:
    facts = facts_of({"name": name})
    if old is None:
        note_event(turn, "user.created", facts)
    elif new is None:
        note_event(turn, "user.deleted", facts)
    else:
        before = json.loads(old)
        after = json.loads(new)
        if before.get("password_hash") != after.get("password_hash"):
            is_set = bool(after.get("password_hash"))
            note_event(turn, f"user.password.{'changed' if is_set else 'cleared'}", dict(facts))
        if before.get("tags") != after.get("tags"):
            facts["tags"] = field_of(after.get("tags"))
            note_event(turn, "user.tags.set", facts)


def _vhost_changed(turn: Turn, name: str, old: str | None, new: str | None) -> None:
    """Note a changed description. The broker notes when a vhost is made or deleted."""
    if old is not None and new is not None:
        note_event(turn, "vhost.updated", facts_of({"name": name}))
