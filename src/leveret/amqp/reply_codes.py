"""Map errors to AMQP reply codes, and say whether they close the channel or the connection."""

from typing import Final

from leveret.errors import (
    AccessRefusedError,
    ChannelError,
    CommandInvalidError,
    FieldSyntaxError,
    FrameError,
    InternalError,
    LeveretError,
    NotAllowedError,
    NotFoundError,
    PreconditionFailedError,
    ResourceLockedError,
    UnexpectedFrameError,
    UnsupportedError,
)

NO_ROUTE: Final = 312
CONNECTION_FORCED: Final = 320
RESOURCE_ERROR: Final = 506
ACCESS_REFUSED: Final = 403

_CODES: Final[dict[type[LeveretError], tuple[int, str]]] = {
    AccessRefusedError: (403, "ACCESS_REFUSED"),
    NotFoundError: (404, "NOT_FOUND"),
    ResourceLockedError: (405, "RESOURCE_LOCKED"),
    PreconditionFailedError: (406, "PRECONDITION_FAILED"),
    FrameError: (501, "FRAME_ERROR"),
    FieldSyntaxError: (502, "SYNTAX_ERROR"),
    CommandInvalidError: (503, "COMMAND_INVALID"),
    ChannelError: (504, "CHANNEL_ERROR"),
    UnexpectedFrameError: (505, "UNEXPECTED_FRAME"),
    NotAllowedError: (530, "NOT_ALLOWED"),
    UnsupportedError: (540, "NOT_IMPLEMENTED"),
    InternalError: (541, "INTERNAL_ERROR"),
}
_CHANNEL_LEVEL: Final = frozenset((403, 404, 405, 406))


class Reply:
    """Code and text of a close."""

    def __init__(self, code: int, text: str, is_channel_level: bool) -> None:
        self.code = code
        self.text = text
        self.is_channel_level = is_channel_level


def reply_for(error: LeveretError) -> Reply:
    """Return code and text for an error. An error that the table lacks is an internal error."""
    code, name = _CODES.get(type(error), (541, "INTERNAL_ERROR"))
    explanation = str(error)
    text = f"{name} - {explanation}" if explanation else name
    return Reply(code, text, code in _CHANNEL_LEVEL)
