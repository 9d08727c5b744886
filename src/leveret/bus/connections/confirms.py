"""The open publishes of a channel in confirm mode.

A broker numbers the messages of a channel from 1. It confirms one number, or all up to a number. A
message that no queue takes is returned before its confirm; the return has no number, so it is found
by its message id.
"""

import asyncio


class ReturnedError(Exception):
    """No queue takes the message."""


class RefusedError(Exception):
    """The broker did not take the message (nack)."""


class ChannelLostError(Exception):
    """The channel ended before the confirm. `fault` is the reason, if the broker told one."""

    def __init__(self, text: str, fault: BaseException | None = None) -> None:
        super().__init__(text)
        self.fault = fault


class Confirms:
    """A future for each message that is not confirmed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, asyncio.Future[None]] = {}
        self._mandatory: dict[str, asyncio.Future[None]] = {}  # by message id
        self._first = 1  # no message before it is open
        self._last = 0

    async def wait_for_id(self, message_id: str) -> None:
        """Wait until no other mandatory message with this id is open."""
        while (other := self._mandatory.get(message_id)) is not None:
            await asyncio.wait({other})

    def add(self, message_id: str, *, mandatory: bool) -> "asyncio.Future[None]":
        """Return the future of the message that is sent next."""
        self._last += 1
        confirm = self._open[self._last] = self._loop.create_future()
        if mandatory:
            self._mandatory[message_id] = confirm
            confirm.add_done_callback(lambda _: self._mandatory.pop(message_id, None))
        return confirm

    def on_confirm(self, number: int, is_multiple: bool, is_ack: bool) -> None:
        """Note the broker's answer for one message, or for all up to it."""
        if not is_multiple:
            self._settle(number, is_ack)
            return
        number = min(number, self._last) or self._last  # 0 means all
        for each in range(self._first, number + 1):
            self._settle(each, is_ack)
        self._first = max(self._first, number + 1)

    def _settle(self, number: int, is_ack: bool) -> None:
        confirm = self._open.pop(number, None)
        if confirm is None or confirm.done():
            return  # it was returned, or nobody waits any more
        if is_ack:
            confirm.set_result(None)
        else:
            confirm.set_exception(RefusedError())

    def on_returned(self, message_id: str) -> None:
        """Note that no queue takes a message."""
        confirm = self._mandatory.get(message_id)
        if confirm is not None and not confirm.done():
            confirm.set_exception(ReturnedError())

    def fail(self, text: str, fault: BaseException | None = None) -> None:
        """Fail all open messages, because the channel ended."""
        waiting, self._open = self._open, {}
        for confirm in waiting.values():
            if not confirm.done():
                confirm.set_exception(ChannelLostError(text, fault))
