"""Errors for frames that break the rules of AMQP, with RabbitMQ's texts."""

from typing import Final

from mypy_extensions import i64

from leveret.amqp.channel import HEADER, Channel
from leveret.errors import FrameError, UnexpectedFrameError

_SHOWN_BYTES_MAX: Final = 32  # of a bad frame, in the error text


def unknown_frame(kind: i64, payload: bytes) -> FrameError:
    return FrameError(f"type {kind}, all octets = {_shown(payload)}: unknown_frame")


def bad_end(kind: i64, payload: bytes, octet: i64) -> FrameError:
    return FrameError(
        f"type {kind}, all octets = {_shown(payload)}: {{invalid_frame_end_marker,{octet}}}"
    )


def too_large(kind: i64, size: i64, most: i64) -> FrameError:
    return FrameError(f"type {kind}, all octets = <<>>: {{frame_too_large,{size},{most}}}")


def expected_method() -> UnexpectedFrameError:
    return UnexpectedFrameError("expected method frame, got non method frame instead")


def expected_content(channel: Channel) -> UnexpectedFrameError:
    if channel.expects == HEADER:
        return UnexpectedFrameError(
            "expected content header for class 60, got non content header frame instead"
        )
    return UnexpectedFrameError("expected content body, got non content body frame instead")


def _shown(payload: bytes) -> str:
    """Return octets as RabbitMQ writes them."""
    octets = ",".join([str(octet) for octet in payload[:_SHOWN_BYTES_MAX]])
    return f"<<{octets}>>"
