"""Vhosts: which there are is the engine's, what is said of them is kept here.

An entry of the register of the kind `vhost` has the vhost's name for its key and an object with
those of these that were ever given: `description`, `tags`, `default_queue_type`, `tracing`,
`protected_from_deletion`. The engine's vhost is told what it must know: its default kind of queue,
and whether it is traced.
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

# RabbitMQ: what counts as no type.
_NO_TYPE: Final = (None, "undefined")


class VhostDefinitions:
    """What is said of each vhost."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._metadata: dict[str, Metadata] = {}

    def load(self) -> None:
        """Read the register, and tell the engine."""
        for name, text in self._broker.register.entries(VHOST).items():
            self._metadata[name] = json.loads(text)
            found = self._broker.vhosts.get(name)
            if found is not None:
                _tell(found, self._metadata[name])

    def metadata(self, name: str) -> Metadata:
        """What was ever said of a vhost. Not to change."""
        return self._metadata.get(name, {})

    def is_protected(self, name: str) -> bool:
        return self.metadata(name).get("protected_from_deletion") is True

    def put(self, name: str, said: Metadata) -> bool:
        """Make a vhost, or change what is said of it; True if it is new.

        Raises PreconditionFailedError where `checked_metadata` would.
        """
        require_name(name)
        said = checked_metadata(said)
        is_new = name not in self._broker.vhosts
        vhost = self._broker.make_vhost(name)
        metadata = {**self.metadata(name), **said}
        if metadata:
            self._metadata[name] = metadata
            self._broker.register.put(VHOST, name, json.dumps(metadata))
        _tell(vhost, metadata)
        return is_new

    def forget(self, name: str) -> None:
        """The vhost is deleted."""
        self._metadata.pop(name, None)
        self._broker.register.drop(VHOST, name)


def _tell(vhost: Vhost, metadata: Metadata) -> None:
    vhost.default_kind = str(metadata.get("default_queue_type") or "")
    vhost.set_tracing(metadata.get("tracing") is True)


def require_name(name: str) -> None:
    """Raise PreconditionFailedError where a vhost cannot have this name."""
    if not 0 < len(name.encode("utf-8", "surrogateescape")) <= NAME_BYTES_MAX:
        raise PreconditionFailedError(f"the name of a vhost has 1 to {NAME_BYTES_MAX} bytes")


def checked_metadata(said: Metadata) -> Metadata:
    """What is said of a vhost in the form in which it is kept; raises PreconditionFailedError."""
    kept: Metadata = {}
    if "description" in said:
        kept["description"] = _description(said["description"])
    if "tags" in said:
        kept["tags"] = _tags(said["tags"])
    if said.get("default_queue_type") not in _NO_TYPE:
        kept["default_queue_type"] = _queue_type(said["default_queue_type"])
    for name in ("tracing", "protected_from_deletion"):
        if said.get(name) is not None:
            kept[name] = _flag(said[name])
    return kept


def _description(value: object) -> str:
    text = str(value) if value is not None else ""
    if len(text) > DESCRIPTION_LENGTH_MAX:
        raise PreconditionFailedError(
            f"a description has at most {DESCRIPTION_LENGTH_MAX} characters"
        )
    return text


def _tags(value: object) -> list[str]:
    """Tags as they come: a list, or a text with commas."""
    parts = value.split(",") if isinstance(value, str) else value or []
    if not isinstance(parts, list) or len(parts) > TAGS_MAX:
        raise PreconditionFailedError(f"tags are a list of at most {TAGS_MAX} words")
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
