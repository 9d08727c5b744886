"""Change the properties of the messages that a shovel moves, as its settings say.

    dest-publish-properties     properties that replace the message's own; headers are added
    dest-add-forward-headers    `x-shovelled`: one more table, in front, for each shovel on the way
    dest-add-timestamp-header   `x-shovelled-timestamp`, in seconds

`user_id` is always removed: the target accepts only the user that the shovel logs in as. Without
any of these settings the content header passes unchanged, byte for byte.
"""

from typing import Any

from leveret.shovels.settings import ShovelSettings
from leveret.wire.properties import decode_properties, encode_header, parse_traits
from leveret.wire.tables import Field, Table, field_of, table_of


class PropertyChanges:
    """The changes that one shovel makes."""

    def __init__(self, settings: ShovelSettings, name: str, vhost: str, node: str) -> None:
        self._properties = {k: v for k, v in settings.properties.items() if k != "headers"}
        self._headers: Table = table_of(settings.properties.get("headers", {}))
        self._has_timestamp = settings.timestamp_header
        self._entry = (
            table_of(_forward_entry(settings, name, vhost, node))
            if settings.forward_headers
            else None
        )
        self._has_any = bool(
            self._properties or self._headers or self._has_timestamp or self._entry is not None
        )

    def apply(self, header: bytes, body_bytes: int, now_ms: int) -> bytes:
        """Return the content header to pass on."""
        if not self._has_any and parse_traits(header).user_id is None:
            return header
        properties = decode_properties(header)
        properties.user_id = None
        for name, value in self._properties.items():
            setattr(properties, name, value)
        headers: Table = dict(properties.headers) if properties.headers is not None else {}
        headers.update(self._headers)
        if self._entry is not None:
            found = headers.get("x-shovelled")
            before = found.value if found is not None and isinstance(found.value, list) else []
            headers["x-shovelled"] = Field(ord("A"), [Field(ord("F"), self._entry), *before])
        if self._has_timestamp:
            headers["x-shovelled-timestamp"] = field_of(now_ms // 1000)
        if headers or properties.headers is not None:
            properties.headers = headers
        return encode_header(properties, body_bytes)


def _forward_entry(settings: ShovelSettings, name: str, vhost: str, node: str) -> dict[str, Any]:
    """Return one entry of `x-shovelled`. RabbitMQ: the keys are those of its shovels."""
    facts = {
        "shovelled-by": node,
        "shovel-type": "dynamic",
        "shovel-name": name,
        "shovel-vhost": vhost,
        "src-uri": settings.shown_src_uri,
        "dest-uri": settings.shown_dest_uri,
        "src-queue": settings.src_queue,
        "src-exchange": settings.src_exchange,
        "src-exchange-key": settings.src_key or None,
        "dest-queue": settings.dest_queue,
        "dest-exchange": settings.dest_exchange,
        "dest-exchange-key": settings.dest_key,
    }
    return {key: value for key, value in facts.items() if value is not None}
