"""The headers that every answer has: Date, renewed each second, Server, and one for browsers."""

import time
from email.utils import formatdate
from typing import Final

_ALWAYS: Final = (
    (b"server", b"Leveret"),
    (b"x-content-type-options", b"nosniff"),  # names of users must not become HTML
)


class CommonHeaders:
    """The headers of the current second. uvicorn would renew them by a timer."""

    def __init__(self) -> None:
        self._second = -1
        self._headers: list[tuple[bytes, bytes]] = []
        self._lines = b""

    def now(self) -> list[tuple[bytes, bytes]]:
        self._renew()
        return self._headers

    def lines_now(self) -> bytes:
        """Return the headers as they are sent."""
        self._renew()
        return self._lines

    def _renew(self) -> None:
        second = int(time.time())  # noqa: TID251
        if second != self._second:
            self._second = second
            date = formatdate(second, usegmt=True).encode()
            self._headers = [(b"date", date), *_ALWAYS]
            self._lines = b"".join([b"%b: %b\r\n" % header for header in self._headers])
