"""Errors of queries. Each has a message for the author of the query."""

from leveret.errors import LeveretError


class OptionError(LeveretError, ValueError):
    """An option, or the schema, is missing or wrong."""


class BrokerError(LeveretError, RuntimeError):
    """The broker cannot be reached, or refuses the request."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status  # HTTP status; 0 if there was no answer

    def __reduce__(self) -> tuple[type["BrokerError"], tuple[str, int]]:
        return (type(self), (str(self), self.status))


class LoginRefusedError(BrokerError):
    """The broker refuses this user or password."""


class DataLostError(LeveretError, RuntimeError):
    """Messages that the query has to read are gone."""

    def __init__(self, text: str, first_offset: int = -1) -> None:
        super().__init__(text)
        self.first_offset = first_offset  # first offset of the stream now

    def __reduce__(self) -> tuple[type["DataLostError"], tuple[str, int]]:
        return (DataLostError, (str(self), self.first_offset))
