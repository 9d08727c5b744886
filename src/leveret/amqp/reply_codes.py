"""Errors as AMQP tells them: code, name, and whether they end the channel or the connection."""

from typing import Final

from leveret.errors import (
    AccessRefused,
    ChannelFault,
    CommandInvalid,
    FrameError,
    InternalError,
    LeveretError,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
    SyntaxFault,
    UnexpectedFrame,
    Unsupported,
)

NO_ROUTE: Final = 312
CONNECTION_FORCED: Final = 320

_CODES: Final[dict[type[LeveretError], tuple[int, str]]] = {
    AccessRefused: (403, "ACCESS_REFUSED"),
    NotFound: (404, "NOT_FOUND"),
    ResourceLocked: (405, "RESOURCE_LOCKED"),
    PreconditionFailed: (406, "PRECONDITION_FAILED"),
    FrameError: (501, "FRAME_ERROR"),
    SyntaxFault: (502, "SYNTAX_ERROR"),
    CommandInvalid: (503, "COMMAND_INVALID"),
    ChannelFault: (504, "CHANNEL_ERROR"),
    UnexpectedFrame: (505, "UNEXPECTED_FRAME"),
    NotAllowed: (530, "NOT_ALLOWED"),
    Unsupported: (540, "NOT_IMPLEMENTED"),
    InternalError: (541, "INTERNAL_ERROR"),
}
_CHANNEL_LEVEL: Final = frozenset((403, 404, 405, 406))


class Reply:
    """What a peer is told about an error."""

    def __init__(self, code: int, text: str, is_channel_level: bool) -> None:
        self.code = code
        self.text = text
        self.is_channel_level = is_channel_level


def reply_for(error: LeveretError) -> Reply:
    """Code and text of an error. What is not in the table is an internal error."""
    code, name = _CODES.get(type(error), (541, "INTERNAL_ERROR"))
    explanation = str(error)
    text = f"{name} - {explanation}" if explanation else name
    return Reply(code, text, code in _CHANNEL_LEVEL)
