"""Which names and kinds a client may use for what it declares; texts as RabbitMQ writes them."""

from typing import Final

from leveret.engine.exchanges.registry import KINDS
from leveret.errors import AccessRefusedError, PreconditionFailedError

RESERVED: Final = "amq."  # how the broker's own names begin


def require_not_default(name: str) -> None:
    """The default exchange cannot be declared, deleted or bound."""
    if not name:
        raise AccessRefusedError("operation not permitted on the default exchange")


def require_not_reserved(what: str, name: str) -> None:
    """Names that start with `amq.` are the broker's own."""
    if name.startswith(RESERVED):
        raise AccessRefusedError(f"{what} name '{name}' contains reserved prefix 'amq.*'")


def require_known_kind(kind: str) -> None:
    """An unknown exchange type is refused even where the exchange exists."""
    if not kind:
        raise PreconditionFailedError("invalid exchange type ''")
    if kind not in KINDS:
        raise PreconditionFailedError(f"unknown exchange type '{kind}'")


def without_line_breaks(name: str) -> str:
    """RabbitMQ: line breaks are taken out of names."""
    return name.replace("\r", "").replace("\n", "")
