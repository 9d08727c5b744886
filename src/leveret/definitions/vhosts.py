"""The metadata of vhosts, kept in the register. The engine keeps the vhosts themselves.

    vhost   name   {"description", "tags", "default_queue_type", "tracing",
                    "protected_from_deletion"}

An entry has only the keys that were ever set. The default queue type and the tracing flag are
applied to the engine's vhost.
"""

import json
from typing import Final

from leveret.engine.arguments.rules import QUEUE_KINDS
from leveret.engine.broker import Broker
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import PreconditionFailedError

VHOST: Final = "vhost"
NAME_BYTES_MAX: Final = 255
TAGS_MAX: Final = 64
DESCRIPTION_LENGTH_MAX: Final = 4096

Metadata = dict[str, object]

# RabbitMQ: values of `default_queue_type` that mean no type.
_NO_TYPE: Final = (None, "undefined")


class VhostDefinitions:
    """The metadata of all vhosts."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._metadata: dict[str, Metadata] = {}

    def load(self) -> None:
        """Read the register and apply it to the engine."""
        for name, text in self._broker.register.entries(VHOST).items():
            self._metadata[name] = json.loads(text)
            found = self._broker.vhosts.get(name)
            if found is not None:
                _apply(found, self._metadata[name])

    def metadata(self, name: str) -> Metadata:
        """Return the metadata of a vhost. Do not change the result."""
        return self._metadata.get(name, {})

    def is_protected(self, name: str) -> bool:
        return self.metadata(name).get("protected_from_deletion") is True

    def put(self, name: str, given: Metadata) -> bool:
        """Make a vhost or change its metadata; True if it is new.

        Raises PreconditionFailedError for a bad name or bad metadata.
        """
        require_name(name)
        given = checked_metadata(given)
        is_new = name not in self._broker.vhosts
        vhost = self._broker.make_vhost(name)
        metadata = {**self.metadata(name), **given}
        if metadata:
            self._metadata[name] = metadata
            self._broker.register.put(VHOST, name, json.dumps(metadata))
        _apply(vhost, metadata)
        return is_new

    def forget(self, name: str) -> None:
        """Delete the metadata of a deleted vhost."""
        self._metadata.pop(name, None)
        self._broker.register.drop(VHOST, name)


def _apply(vhost: Vhost, metadata: Metadata) -> None:
    vhost.default_kind = str(metadata.get("default_queue_type") or "")
    vhost.set_tracing(metadata.get("tracing") is True)


def require_name(name: str) -> None:
    """Raise PreconditionFailedError for a name that a vhost cannot have."""
    if not 0 < len(name.encode("utf-8", "surrogateescape")) <= NAME_BYTES_MAX:
        raise PreconditionFailedError(f"the name of a vhost has 1 to {NAME_BYTES_MAX} bytes")


def checked_metadata(given: Metadata) -> Metadata:
    """Return metadata in the form that is stored. Raises PreconditionFailedError."""
    kept: Metadata = {}
    if "description" in given:
        kept["description"] = _description(given["description"])
    if "tags" in given:
        kept["tags"] = _tags(given["tags"])
    if given.get("default_queue_type") not in _NO_TYPE:
        kept["default_queue_type"] = _queue_type(given["default_queue_type"])
    for name in ("tracing", "protected_from_deletion"):
        if given.get(name) is not None:
            kept[name] = _flag(given[name])
    return kept


def _description(value: object) -> str:
    text = str(value) if value is not None else ""
    if len(text) > DESCRIPTION_LENGTH_MAX:
        raise PreconditionFailedError(
            f"a description has at most {DESCRIPTION_LENGTH_MAX} characters"
        )
    return text


def _tags(value: object) -> list[str]:
    """Parse tags from a list, or from a text with commas."""
    parts = value.split(",") if isinstance(value, str) else value or []
    if not isinstance(parts, list) or len(parts) > TAGS_MAX:
        raise PreconditionFailedError(f"tags must be a list of at most {TAGS_MAX} words")
    tags = [str(part).strip() for part in parts]
    if any(len(tag) > NAME_BYTES_MAX for tag in tags):
        raise PreconditionFailedError(f"a tag has at most {NAME_BYTES_MAX} characters")
    return [tag for tag in tags if tag]


def _queue_type(value: object) -> str:
    if value == "":
        raise PreconditionFailedError("default_queue_type must not be an empty string")
    kind = str(value).removeprefix("rabbit_").removesuffix("_queue")
    if kind not in QUEUE_KINDS:
        raise PreconditionFailedError(f"{value} is not a valid queue type")
    return kind


def _flag(value: object) -> bool:
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise PreconditionFailedError(f"not_boolean: {value}")
