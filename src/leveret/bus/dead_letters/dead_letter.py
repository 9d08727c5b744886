"""A message of a dead-letter queue: how it ended, and its properties for a redrive.

The module is pure: no broker, no clock. A redriven message is the message that died, without the
headers that were added at its death (`headers.redrive_headers` sets its retry count). `CC`, `BCC`
and the user id of its publisher are left out too, because the broker would send it elsewhere or
refuse it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pamqp.commands import Basic

from leveret.bus import headers as bus_headers
from leveret.bus.lossless_properties import LosslessProperties, copy_properties

# Headers that quorum queues add to every delivery (RabbitMQ 3), or to a requeued message.
QUORUM_COUNTS: Final = bus_headers.DELIVERY_COUNTS
# Headers that a redrive leaves out: old routing, and counts that the broker adds.
_NOT_REDRIVEN: Final = ("CC", "BCC", *QUORUM_COUNTS)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message of a dead-letter queue."""

    position: int  # 1 is the head of the queue
    exchange: str  # the exchange of its last publish or death
    routing_key: str
    body: bytes
    properties: Basic.Properties = field(repr=False)

    @property
    def message_id(self) -> str | None:
        """The id that its publisher gave it."""
        return self.properties.message_id

    @property
    def headers(self) -> Mapping[str, Any]:
        """Its headers, empty if it has none."""
        return self.properties.headers or {}

    @property
    def status(self) -> int | None:
        """The HTTP status of the last attempt, if there was one."""
        found = self.headers.get(bus_headers.FINAL_STATUS_CODE)
        if isinstance(found, str) and found.isdecimal():
            return int(found)  # another implementation may write it as text
        return found if isinstance(found, int) else None

    @property
    def error(self) -> str | None:
        """The error of the last attempt, if there was one."""
        found = self.headers.get(bus_headers.FINAL_ERROR)
        return None if found is None else str(found)

    @property
    def retries(self) -> int | None:
        """The number of retries before it became a dead letter."""
        for name in (bus_headers.FINAL_RETRY_COUNT, bus_headers.RETRY_COUNT):
            found = self.headers.get(name)
            if isinstance(found, int):
                return found
        return None

    @property
    def died_s(self) -> float | None:
        """The time (Unix) of its last death; None if it is not known.

        The bus records it. Otherwise x-death has the first death of each pair of queue and reason,
        so it is known only if the message died once of each. A message that never died is as old as
        its timestamp.
        """
        recorded = self.headers.get(bus_headers.DIED_AT)
        if isinstance(recorded, datetime):
            return recorded.timestamp()
        deaths = self.headers.get(bus_headers.DEATHS)
        if not isinstance(deaths, list) or not deaths:
            published = self.properties.timestamp
            return published.timestamp() if isinstance(published, datetime) else None
        if any(not isinstance(death, dict) or death.get("count") != 1 for death in deaths):
            return None
        times = [death.get("time") for death in deaths]
        known = [moment.timestamp() for moment in times if isinstance(moment, datetime)]
        return max(known, default=None)

    def target(self, default: str | None) -> str | None:
        """Return the queue that it died in, by its own header, or else the default."""
        found = self.headers.get(bus_headers.ORIGINAL_QUEUE)
        return found if isinstance(found, str) and found else default

    def redrive_properties(self, queue: str, *, continues: bool, reset: bool) -> LosslessProperties:
        """Return the properties with which it goes back to a queue."""
        kept = {name: value for name, value in self.headers.items() if name not in _NOT_REDRIVEN}
        headers = bus_headers.redrive_headers(kept, queue, continues=continues, reset=reset)
        # A broker closes the channel if the user id is not that of the connection.
        if self.properties.user_id:
            headers[bus_headers.ORIGINAL_USER] = self.properties.user_id
        return copy_properties(self.properties, headers=headers, user_id=None)
