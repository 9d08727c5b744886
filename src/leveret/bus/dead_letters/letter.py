"""A message of a dead-letter queue: what it tells of its end, and what a redrive makes of it.

Pure: no broker, no clock. A redriven message is the message that died, without what was written on
it when it died (`headers.redriven` says what its count of retries becomes) and without what would
send it elsewhere or be refused: `CC`, `BCC`, and the user id of whoever published it first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pamqp.commands import Basic

from leveret.bus import headers as names
from leveret.bus.exact_properties import ExactProperties, exact_copy

# Quorum queues add these: to every delivery (RabbitMQ 3), or to what was given back before.
QUORUM_COUNTS: Final = ("x-delivery-count", "x-acquired-count")
_ORIGINAL_USER: Final = "x-original-user-id"
# No part of the message that is sent again: routing that is over, and what the broker adds.
_NOT_SENT: Final = ("CC", "BCC", *QUORUM_COUNTS)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message of a dead-letter queue."""

    position: int  # 1 is the head of the queue
    exchange: str  # by which it came into the queue
    routing_key: str
    body: bytes
    properties: Basic.Properties = field(repr=False)

    @property
    def message_id(self) -> str | None:
        """The id that its publisher gave it."""
        return self.properties.message_id

    @property
    def headers(self) -> Mapping[str, Any]:
        """Its headers; none is an empty table."""
        return self.properties.headers or {}

    @property
    def status(self) -> int | None:
        """The status code of the last attempt, where there was one."""
        found = self.headers.get(names.FINAL_STATUS_CODE)
        if isinstance(found, str) and found.isdecimal():
            return int(found)  # another implementation may write it as text
        return found if isinstance(found, int) else None

    @property
    def error(self) -> str | None:
        """The error of the last attempt, where there was one."""
        found = self.headers.get(names.FINAL_ERROR)
        return None if found is None else str(found)

    @property
    def retries(self) -> int | None:
        """How often it was tried again before it came here."""
        for name in (names.FINAL_RETRY_COUNT, names.RETRY_COUNT):
            found = self.headers.get(name)
            if isinstance(found, int):
                return found
        return None

    @property
    def died_s(self) -> float | None:
        """The latest time that its headers and properties know of."""
        times = [moment for moment in _moments(self) if isinstance(moment, datetime)]
        return max((moment.timestamp() for moment in times), default=None)

    def target(self, otherwise: str | None) -> str | None:
        """The queue that it died in, as it says itself, or else the given one."""
        found = self.headers.get(names.ORIGINAL_QUEUE)
        return found if isinstance(found, str) and found else otherwise

    def redriven(self, queue: str, *, continues: bool, reset: bool) -> ExactProperties:
        """The properties with which it goes back to a queue."""
        kept = {name: value for name, value in self.headers.items() if name not in _NOT_SENT}
        headers = names.redriven(kept, queue, continues=continues, reset=reset)
        # A broker closes the channel where the user id is not that of the connection.
        if self.properties.user_id:
            headers[_ORIGINAL_USER] = self.properties.user_id
        return exact_copy(self.properties, headers=headers, user_id=None)


def _moments(letter: DeadLetter) -> Iterator[object]:
    deaths = letter.headers.get(names.DEATHS)
    for death in deaths if isinstance(deaths, list) else ():
        yield death.get("time") if isinstance(death, dict) else None
    yield letter.properties.timestamp
