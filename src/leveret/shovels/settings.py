"""Parse the value of the runtime parameter `shovel`. Names and defaults are RabbitMQ's.

Leveret adds `dest-protocol` = `http`. Then `dest-uri` is the address to which bodies are posted,
with `dest-http-headers`, `dest-timeout` (seconds), `dest-concurrency` and `dest-max-retries`.

`parse_settings` checks everything before anything is changed. Its errors say in one sentence what
is wrong.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from leveret.amqp_client.uri import (
    AddressError,
    AmqpUri,
    hide_secrets,
    parse_amqp_uri,
    split_address,
)
from leveret.errors import PreconditionFailedError

ON_CONFIRM: Final = "on-confirm"
ON_PUBLISH: Final = "on-publish"
NO_ACK: Final = "no-ack"
ACK_MODES: Final = (ON_CONFIRM, ON_PUBLISH, NO_ACK)

NEVER: Final = "never"
QUEUE_LENGTH: Final = "queue-length"

AMQP: Final = "amqp091"
LOCAL: Final = "local"
HTTP: Final = "http"

URIS_MAX: Final = 16
PREFETCH_MAX: Final = 0xFFFF
CONCURRENCY_MAX: Final = 64

# Old names of keys, which RabbitMQ still accepts.
_OLD_NAMES: Final[dict[str, str]] = {
    "prefetch-count": "src-prefetch-count",
    "delete-after": "src-delete-after",
    "add-forward-headers": "dest-add-forward-headers",
    "add-timestamp-header": "dest-add-timestamp-header",
    "publish-properties": "dest-publish-properties",
}
_PROPERTIES: Final[dict[str, type]] = {
    "content_type": str,
    "content_encoding": str,
    "headers": dict,
    "delivery_mode": int,
    "priority": int,
    "correlation_id": str,
    "reply_to": str,
    "expiration": str,
    "message_id": str,
    "timestamp": int,
    "type": str,
    "user_id": str,
    "app_id": str,
    "cluster_id": str,
}
_OCTETS: Final = ("delivery_mode", "priority")
_SHORT_BYTES_MAX: Final = 255
_HTTP_SCHEMES: Final = ("http", "https")


@dataclass(frozen=True)
class ShovelSettings:
    """The settings of one shovel."""

    src_uris: list[AmqpUri]
    dest_uris: list[AmqpUri]  # empty if the target is HTTP
    shown_src_uri: str
    shown_dest_uri: str
    src_queue: str | None
    src_exchange: str | None
    src_key: str
    dest_queue: str | None
    dest_exchange: str | None
    dest_key: str | None
    src_queue_args: dict[str, Any]
    dest_queue_args: dict[str, Any]
    src_consumer_args: dict[str, Any]
    src_predeclared: bool
    dest_predeclared: bool
    prefetch: int
    ack_mode: str
    delete_after: str | int  # NEVER, QUEUE_LENGTH or a number of messages
    reconnect_s: float
    forward_headers: bool
    timestamp_header: bool
    properties: dict[str, Any]
    src_protocol: str
    dest_protocol: str
    http_uris: list[str] = field(default_factory=list, repr=False)
    http_headers: dict[str, str] = field(default_factory=dict, repr=False)
    http_timeout_s: float = 30.0
    http_concurrency: int = 8
    http_retries_max: int | None = None  # None: no limit


def parse_settings(value: object, vhost: str) -> ShovelSettings:
    """Return the settings that a parameter's value describes. Raise PreconditionFailedError."""
    try:
        return _parse(value, vhost)
    except AddressError as fault:
        raise PreconditionFailedError(str(fault)) from fault


def _parse(value: object, vhost: str) -> ShovelSettings:
    if not isinstance(value, dict):
        raise PreconditionFailedError("a shovel is described by an object")
    given = {str(name): found for name, found in value.items()}
    keys = _KeyReader({_OLD_NAMES.get(name, name): found for name, found in given.items()})
    src_protocol = keys.choice("src-protocol", ("amqp091", "local"), AMQP)
    dest_protocol = keys.choice("dest-protocol", ("amqp091", "local", "http"), AMQP)
    src = keys.uris("src-uri", required=src_protocol != LOCAL)
    dest = keys.uris("dest-uri", required=dest_protocol != LOCAL)
    is_http = dest_protocol == HTTP
    settings = ShovelSettings(
        src_uris=_amqp_uris(src, vhost, is_local=src_protocol == LOCAL),
        dest_uris=[] if is_http else _amqp_uris(dest, vhost, is_local=dest_protocol == LOCAL),
        shown_src_uri=hide_secrets(src[0]) if src else "",
        shown_dest_uri=hide_secrets(dest[0]) if dest else "",
        src_queue=keys.text("src-queue"),
        src_exchange=keys.text("src-exchange"),
        src_key=keys.text("src-exchange-key") or "",
        dest_queue=keys.text("dest-queue"),
        dest_exchange=keys.text("dest-exchange"),
        dest_key=keys.text("dest-exchange-key"),
        src_queue_args=keys.table("src-queue-args"),
        dest_queue_args=keys.table("dest-queue-args"),
        src_consumer_args=keys.table("src-consumer-args"),
        src_predeclared=keys.flag("src-predeclared"),
        dest_predeclared=keys.flag("dest-predeclared"),
        prefetch=int(keys.number("src-prefetch-count", 1000, 1, PREFETCH_MAX)),
        ack_mode=keys.choice("ack-mode", ACK_MODES, ON_CONFIRM),
        delete_after=keys.delete_after(),
        reconnect_s=keys.number("reconnect-delay", 5, 0, 86_400),
        forward_headers=keys.flag("dest-add-forward-headers"),
        timestamp_header=keys.flag("dest-add-timestamp-header"),
        properties=_checked_properties(keys.table("dest-publish-properties")),
        src_protocol=src_protocol,
        dest_protocol=dest_protocol,
        http_uris=[_checked_http_uri(text) for text in dest] if is_http else [],
        http_headers=_checked_headers(keys.table("dest-http-headers")),
        http_timeout_s=keys.number("dest-timeout", 30, 0.1, 3600),
        http_concurrency=int(keys.number("dest-concurrency", 8, 1, CONCURRENCY_MAX)),
        http_retries_max=keys.retries_max(),
    )
    keys.require_known()
    _require_consistent(settings)
    _require_own_vhost([*settings.src_uris, *settings.dest_uris], vhost)
    return settings


def _require_consistent(settings: ShovelSettings) -> None:
    if settings.src_queue is None and settings.src_exchange is None:
        raise PreconditionFailedError("Must specify 'src-exchange' or 'src-queue'")
    if settings.src_queue is not None and settings.src_exchange is not None:
        raise PreconditionFailedError("Cannot specify 'src-exchange' and 'src-queue'")
    if settings.dest_queue is not None and settings.dest_exchange is not None:
        raise PreconditionFailedError("Cannot specify 'dest-exchange' and 'dest-queue'")
    for name in (settings.src_queue, settings.src_exchange, settings.src_key, settings.dest_queue):
        _require_short(name)
    for name in (settings.dest_exchange, settings.dest_key):
        _require_short(name)
    if settings.dest_protocol == HTTP and (settings.dest_queue or settings.dest_exchange):
        raise PreconditionFailedError("an HTTP target has neither 'dest-queue' nor 'dest-exchange'")
    if settings.delete_after == QUEUE_LENGTH and settings.src_queue is None:
        raise PreconditionFailedError("'src-delete-after' of 'queue-length' needs 'src-queue'")


def _require_own_vhost(uris: list[AmqpUri], vhost: str) -> None:
    """Raise if a local end names another vhost: its owner may set shovels in this vhost only."""
    for uri in uris:
        if not uri.host and uri.vhost != vhost:
            raise PreconditionFailedError(
                f"an address without a host is vhost '{vhost}' of this node: "
                f"for vhost '{uri.vhost}' give host, user and password"
            )


def _require_short(name: str | None) -> None:
    if name is not None and len(name.encode("utf-8", "surrogateescape")) > _SHORT_BYTES_MAX:
        raise PreconditionFailedError("a name has at most 255 bytes")


def _amqp_uris(texts: list[str], vhost: str, *, is_local: bool) -> list[AmqpUri]:
    uris = [parse_amqp_uri(text, vhost) for text in (["amqp://"] if is_local else texts)]
    for uri, text in zip(uris, texts, strict=False):
        require_login(uri, text)
    return uris


def require_login(uri: AmqpUri, text: str) -> None:
    """Raise AddressError if an address has a host but no login.

    RabbitMQ: the login would be guest, so that a link would act as guest at that broker.
    """
    if uri.host and not uri.has_login:
        raise AddressError(f"{hide_secrets(text)} has a host, so it needs a user and a password")


def _checked_http_uri(text: str) -> str:
    parts, _ = split_address(text)
    if parts.scheme not in _HTTP_SCHEMES or not parts.hostname:
        raise AddressError(f"{hide_secrets(text)} is not an http:// or https:// address")
    return text


def _checked_properties(given: dict[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        kind = _PROPERTIES.get(name)
        if kind is None:
            raise PreconditionFailedError(f"no property '{name}'")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise PreconditionFailedError(f"the property '{name}' must be of type {kind.__name__}")
        if isinstance(value, int) and not 0 <= value < (256 if name in _OCTETS else 1 << 63):
            raise PreconditionFailedError(f"the property '{name}' is out of range")
        if isinstance(value, str):
            _require_short(value)
    return given


def _checked_headers(given: dict[str, Any]) -> dict[str, str]:
    for name, value in given.items():
        is_token = name.isascii() and all(c.isalnum() or c in "-_" for c in name)
        if not name or not is_token or not isinstance(value, str):
            raise PreconditionFailedError("'dest-http-headers' has names and texts")
        if not value.isascii() or not value.isprintable():
            raise PreconditionFailedError(f"the header '{name}' must be printable ASCII")
    return given


class _KeyReader:
    """Reads the keys of a value by type, and notes which ones are known."""

    def __init__(self, value: dict[str, Any]) -> None:
        self._value = value
        self._known: set[str] = set()

    def _get(self, name: str) -> Any:
        self._known.add(name)
        return self._value.get(name)

    def text(self, name: str) -> str | None:
        found = self._get(name)
        if found is not None and not isinstance(found, str):
            raise PreconditionFailedError(f"'{name}' must be a text")
        return found

    def flag(self, name: str) -> bool:
        found = self._get(name)
        if found is not None and not isinstance(found, bool):
            raise PreconditionFailedError(f"'{name}' must be true or false")
        return bool(found)

    def table(self, name: str) -> dict[str, Any]:
        found = self._get(name)
        if found == []:  # RabbitMQ's definitions write an empty table as a list
            return {}
        if found is not None and not isinstance(found, dict):
            raise PreconditionFailedError(f"'{name}' must be an object")
        return found or {}

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        found = self.text(name)
        if found is not None and found not in choices:
            raise PreconditionFailedError(f"'{name}' must be one of {', '.join(choices)}")
        return found or default

    def number(self, name: str, default: float, least: float, most: float) -> float:
        found = self._get(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise PreconditionFailedError(f"'{name}' must be a number")
        if not least <= found <= most:
            raise PreconditionFailedError(f"'{name}' must be from {least:g} to {most:g}")
        return found

    def uris(self, name: str, *, required: bool) -> list[str]:
        found = self._get(name)
        texts = [found] if isinstance(found, str) else found
        if texts is None and not required:
            return []
        if not isinstance(texts, list) or not 0 < len(texts) <= URIS_MAX:
            raise PreconditionFailedError(f"'{name}' must be an address, or a list of them")
        if not all(isinstance(text, str) for text in texts):
            raise PreconditionFailedError(f"'{name}' must be an address, or a list of them")
        return texts

    def delete_after(self) -> str | int:
        name = "src-delete-after"
        found = self._get(name)
        if found is None:
            return NEVER
        if found in (NEVER, QUEUE_LENGTH) or (
            isinstance(found, int) and not isinstance(found, bool) and found >= 0
        ):
            assert isinstance(found, (str, int))
            return found
        raise PreconditionFailedError(f"'{name}' must be never, queue-length or a number")

    def retries_max(self) -> int | None:
        found = self.number("dest-max-retries", -1, -1, 1_000_000)
        return None if found < 0 else int(found)

    def require_known(self) -> None:
        unknown = sorted(set(self._value) - self._known)
        if unknown:
            raise PreconditionFailedError(f"Unrecognised terms {unknown} in a shovel")
