"""Describe the events of a service in the format of AsyncAPI 3.

The schemas come from the event classes: dataclasses and msgspec Structs by msgspec, pydantic models
by their own method.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from leveret.bus import codec
from leveret.bus.topology import DEFAULT_EXCHANGE, ExchangeType, Layout

VERSION: Final = "3.0.0"
_SCHEMAS: Final = "#/components/schemas/{name}"
Document = dict[str, Any]


def describe(layout: Layout, handled: Iterable[type], published: Iterable[type]) -> Document:
    """Return the document of a service that handles and publishes these events."""
    handled, published = list(handled), list(published)
    channels: Document = {}
    operations: Document = {}
    if published:
        channels["publish"] = _channel(layout.exchange or layout.queue, layout, published)
        operations["publish"] = _operation("send", "publish", published)
    if handled:
        channels["handle"] = _queue_channel(layout, handled)
        operations["handle"] = _operation("receive", "handle", handled)
    events = {codec.name_of(each): each for each in (*handled, *published)}
    payloads, schemas = _schemas(events)
    messages = {name: _message(name, each, payloads[name]) for name, each in events.items()}
    return {
        "asyncapi": VERSION,
        "info": {"title": layout.service, "version": "1.0.0"},
        "defaultContentType": codec.CONTENT_TYPE,
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": schemas},
    }


def _channel(address: str, layout: Layout, events: list[type]) -> Document:
    if layout.exchange == DEFAULT_EXCHANGE:
        return _queue_channel(layout, events)
    known = (*layout.publishing.exchanges, *layout.consuming.exchanges)
    kinds = {each.name: each.type for each in known}
    kind = str(kinds.get(layout.exchange, ExchangeType.TOPIC))
    exchange = {"name": layout.exchange, "type": kind, "durable": True}
    binding = {"amqp": {"is": "routingKey", "exchange": exchange}}
    return {"address": address, "messages": _references(events), "bindings": binding}


def _queue_channel(layout: Layout, events: list[type]) -> Document:
    queue = {"name": layout.queue, "durable": True}
    binding = {"amqp": {"is": "queue", "queue": queue}}
    return {"address": layout.queue, "messages": _references(events), "bindings": binding}


def _references(events: list[type]) -> Document:
    names = [codec.name_of(each) for each in events]
    return {name: {"$ref": f"#/components/messages/{_escaped(name)}"} for name in names}


def _operation(action: str, channel: str, events: list[type]) -> Document:
    messages = [
        {"$ref": f"#/channels/{channel}/messages/{_escaped(codec.name_of(each))}"}
        for each in events
    ]
    return {"action": action, "channel": {"$ref": f"#/channels/{channel}"}, "messages": messages}


def _message(name: str, event: type, schema: Document) -> Document:
    summary = (event.__doc__ or "").strip().partition("\n")[0]
    # A dataclass without a docstring gets its signature as one.
    is_told = bool(summary) and not summary.startswith(f"{event.__name__}(")
    about = {"summary": summary} if is_told else {}
    binding = {"amqp": {"messageType": name}}
    found: Document = {"name": name, "payload": schema, "bindings": binding, **about}
    return {**found, "contentType": codec.CONTENT_TYPE}


def _schemas(events: dict[str, type]) -> tuple[Document, Document]:
    """Return the schema of each event by its name, and the components that schemas refer to."""
    others = {name: each for name, each in events.items() if not _is_model(each)}
    found, components = msgspec.json.schema_components(others.values(), ref_template=_SCHEMAS)
    payloads: Document = dict(zip(others, found, strict=True))
    for name, each in events.items():
        if _is_model(each):
            payloads[name] = _model_schema(name, each, components)
    return payloads, components


def _is_model(event: type) -> bool:
    return hasattr(event, "model_json_schema")


def _model_schema(name: str, event: Any, components: Document) -> Document:
    """Add the schemas of a pydantic model to the components. Return a reference to its own."""
    prefix = ""
    parts = _model_parts(prefix, event)
    if any(components.get(each, part) != part for each, part in parts.items()):
        prefix = f"{name}."  # another class of the same name is there
        parts = _model_parts(prefix, event)
    components |= parts
    return {"$ref": f"#/components/schemas/{_escaped(prefix + event.__name__)}"}


def _model_parts(prefix: str, event: Any) -> Document:
    """Return the schemas of a pydantic model and of its parts, by their names with a prefix."""
    template = f"#/components/schemas/{_escaped(prefix)}"
    template = template.replace("{", "{{").replace("}", "}}") + "{model}"
    schema = event.model_json_schema(ref_template=template)
    parts = {**schema.pop("$defs", {}), event.__name__: schema}
    return {prefix + each: part for each, part in parts.items()}


def _escaped(name: str) -> str:
    """Escape a name for a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
