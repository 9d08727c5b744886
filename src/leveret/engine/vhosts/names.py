"""Check the names and exchange types that clients declare. Error texts are RabbitMQ's."""

from typing import Final

from leveret.engine.exchanges.registry import KINDS
from leveret.errors import AccessRefusedError, PreconditionFailedError

RESERVED: Final = "amq."  # prefix of the broker's own names


def require_not_default(name: str) -> None:
    """Raise if the name is that of the default exchange."""
    if not name:
        raise AccessRefusedError("operation not permitted on the default exchange")


def require_not_reserved(what: str, name: str) -> None:
    """Raise if the name starts with `amq.`: those names are the broker's own."""
    if name.startswith(RESERVED):
        raise AccessRefusedError(f"{what} name '{name}' contains reserved prefix 'amq.*'")


def require_known_kind(kind: str) -> None:
    """Raise if the exchange type is unknown, even if the exchange exists."""
    if not kind:
        raise PreconditionFailedError("invalid exchange type ''")
    if kind not in KINDS:
        raise PreconditionFailedError(f"unknown exchange type '{kind}'")


def without_line_breaks(name: str) -> str:
    """Return a name without line breaks, as RabbitMQ does."""
    return name.replace("\r", "").replace("\n", "")
