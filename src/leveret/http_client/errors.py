"""Errors of a call over HTTP that apply to every API.

CallError                   the call did not do what it was asked to do
├── UnreachableError        no connection, or the connection was lost
├── CallTimeoutError        no answer within the deadline of the call
├── BadAnswerError          the answer is not valid HTTP, or not what the API promises
└── NotAuthenticatedError   401: the server refuses the login, or there is no token
"""

from leveret.errors import LeveretError


class CallError(LeveretError):
    """The call did not do what it was asked to do; `status` is 0 where there was no answer."""

    def __init__(self, detail: str, status: int = 0) -> None:
        super().__init__(detail)
        self.status = status


class UnreachableError(CallError):
    """There is no connection, or the connection was lost.

    `was_sent`: the server may have received the request and carried it out.
    `was_idle`: the server closed a kept connection before it sent any byte of an answer.
    """

    def __init__(self, detail: str, *, was_sent: bool = True, was_idle: bool = False) -> None:
        super().__init__(detail)
        self.was_sent = was_sent
        self.was_idle = was_idle


class CallTimeoutError(CallError):
    """The server did not answer within the deadline of the call."""


class BadAnswerError(CallError):
    """The answer is not valid HTTP, is too large, or is not what the API promises."""


class NotAuthenticatedError(CallError):
    """The server refuses the login or the token, or no token could be obtained."""


def reason_without_address(fault: CallError, shown: str) -> str:
    """Return the text of an error for a sentence that has named the address already."""
    return str(fault).removeprefix(shown).lstrip(": ")
