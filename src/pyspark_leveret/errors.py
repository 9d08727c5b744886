"""What goes wrong with a query, each with a sentence for its author."""


class OptionError(ValueError):
    """An option, or the schema, is missing or wrong."""


class BrokerError(RuntimeError):
    """The broker cannot be reached, or refuses."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status  # of HTTP; 0: there was no answer

    def __reduce__(self) -> tuple[type["BrokerError"], tuple[str, int]]:
        return (type(self), (str(self), self.status))


class LoginRefusedError(BrokerError):
    """The broker does not take this user with this password."""


class DataLostError(RuntimeError):
    """Messages that the query counts on are gone."""

    def __init__(self, text: str, first_offset: int = -1) -> None:
        super().__init__(text)
        self.first_offset = first_offset  # where a stream begins now

    def __reduce__(self) -> tuple[type["DataLostError"], tuple[str, int]]:
        return (DataLostError, (str(self), self.first_offset))
