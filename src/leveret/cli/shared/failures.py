"""Errors that end a command as one line for the user. Every other error is a bug."""

from leveret.errors import LeveretError


def describe_failure(fault: BaseException) -> str | None:
    """Return the text of an error of the broker, a file or an encoding; None for other errors."""
    if isinstance(fault, LeveretError):
        return str(fault)
    if isinstance(fault, OSError):
        reason = fault.strerror or str(fault)
        return f"{fault.filename}: {reason}" if fault.filename else reason
    if isinstance(fault, UnicodeEncodeError):
        return f"{fault.object!a} cannot be encoded as {fault.encoding}"
    return None
