"""The headers that every answer has, Date and Server, renewed each second."""

import time
from email.utils import formatdate


class CommonHeaders:
    """The two headers of the current second. uvicorn would renew them by a timer."""

    def __init__(self) -> None:
        self._second = -1
        self._headers: list[tuple[bytes, bytes]] = []

    def now(self) -> list[tuple[bytes, bytes]]:
        second = int(time.time())  # noqa: TID251
        if second != self._second:
            self._second = second
            date = formatdate(second, usegmt=True).encode()
            self._headers = [(b"date", date), (b"server", b"Leveret")]
        return self._headers
