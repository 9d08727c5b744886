"""Errors of the system as plain text."""

from errno import ECONNREFUSED, ENOENT

import pytest

from leveret.errors import system_reason


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (ConnectionRefusedError(ECONNREFUSED, "Connect call failed"), "Connection refused"),
        (OSError("Multiple exceptions: [Errno 111] a, [Errno 111] b"), "Connection refused"),
        (FileNotFoundError(ENOENT, "no such file", "/ca.pem"), "/ca.pem: no such file"),
        (TimeoutError(), "no answer in time"),
        (ValueError(), "ValueError"),
    ],
)
def test_a_reason_has_no_number_of_the_system(fault: Exception, reason: str) -> None:
    assert system_reason(fault) == reason
