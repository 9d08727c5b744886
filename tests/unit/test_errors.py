"""Errors of the system as plain text."""

from errno import ECONNREFUSED, ENOENT

import pytest

from leveret.errors import public_reason, system_reason


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


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (FileNotFoundError(ENOENT, "no such file", "/var/lib/a"), "no such file"),
        (OSError("the directory /var/lib/a is gone"), "OSError"),
        (RuntimeError("it is gone"), "it is gone"),
        (ValueError(), "ValueError"),
    ],
)
def test_a_reason_for_clients_names_no_file(fault: Exception, reason: str) -> None:
    assert public_reason(fault) == reason
