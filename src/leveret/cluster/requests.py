"""Requests of this node to others that have no answer yet."""

import asyncio
from typing import Final

from leveret.cluster.errors import ClusterError
from leveret.cluster.link import REQUEST_BYTES_MAX, Link

REQUESTS_MAX: Final = 256  # without an answer
_NUMBER_MAX: Final = 0x7FFF_FFFF


class Requests:
    """Requests by number. Each ends by its answer, its deadline, or the end of its link."""

    def __init__(self) -> None:
        self._number = 0
        self._waiting: dict[int, tuple[Link, asyncio.Future[str]]] = {}

    async def ask(self, link: Link, kind: int, payload: bytes, within_s: float) -> str:
        """Send a request; return the answer, or raise `ClusterError` with the reason."""
        if len(self._waiting) >= REQUESTS_MAX or len(payload) > REQUEST_BYTES_MAX // 2:
            raise ClusterError("too many requests to other nodes")
        self._number = number = (self._number + 1) & _NUMBER_MAX
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[number] = link, future
        link.send_request(number, kind, payload)
        try:
            async with asyncio.timeout(within_s):
                return await future
        except TimeoutError:
            raise ClusterError(f"node {link.peer} did not answer within {within_s:g} s") from None
        finally:
            del self._waiting[number]

    def on_answer(self, link: Link, number: int, is_done: bool, text: str) -> None:
        asked, future = self._waiting.get(number, (None, None))
        if future is None or asked is not link or future.done():
            return
        if is_done:
            future.set_result(text)
        else:
            future.set_exception(ClusterError(text))

    def on_closed(self, link: Link) -> None:
        """End the requests over a link that is lost."""
        self._fail_all(
            [future for asked, future in self._waiting.values() if asked is link], link.peer
        )

    def end(self) -> None:
        """End all requests: this node stops."""
        self._fail_all([future for _, future in self._waiting.values()], "")

    def _fail_all(self, futures: list[asyncio.Future[str]], peer: str) -> None:
        reason = f"the connection with node {peer} is lost" if peer else "this node stops"
        for future in futures:
            if not future.done():
                future.set_exception(ClusterError(reason))
