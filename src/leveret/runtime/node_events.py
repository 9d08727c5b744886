"""Alarms and events of a node: block publishers, write the log, publish to the event exchange.

An alarm is raised while memory or disk is short. AMQP publishers wait while any alarm is raised;
`AmqpFront.alarms` lists the resources that are short.
"""

import asyncio
import logging
from typing import Final

from leveret.amqp.connection_base import AmqpFront
from leveret.amqp.server import AmqpServer
from leveret.auth import Credentials
from leveret.engine.turns.events import facts_of, note_event
from leveret.runtime.memory_alarm import MEMORY_REASON
from leveret.runtime.turns import TurnRunner
from leveret.storage.store import DISK_FULL

log = logging.getLogger(__name__)

ALARM_PAUSE_S: Final = 0.25  # between two checks of the alarms, for parts of the node that publish
_CAUSES: Final = {
    MEMORY_REASON: "messages and buffers take more memory than memory_high; find the queues that "
    "grow with `leveret ctl queues`",
    DISK_FULL: "the disk of the data directory has less free space than disk_free_min, or cannot "
    "be written; free space on it",
}


class NodeEvents:
    """Raises alarms and publishes events of one node."""

    def __init__(self, front: AmqpFront, turns: TurnRunner) -> None:
        self._front = front
        self._turns = turns
        self.amqp: AmqpServer | None = None  # resumes its publishers when an alarm ends

    def publish(self, key: str, facts: dict[str, object]) -> None:
        """Publish an event soon, if there is a listener. The caller may be inside a turn."""
        if self._front.broker.turn.listens:
            asyncio.get_running_loop().call_soon(self._publish, key, facts)

    def _publish(self, key: str, facts: dict[str, object]) -> None:
        self._turns.begin()
        try:
            note_event(self._front.broker.turn, key, facts_of(facts))
        finally:
            self._turns.end()

    def on_login(self, credentials: Credentials, succeeded: bool) -> None:
        if not succeeded:
            shown = {"user": credentials.name, "peer": credentials.host}
            shown["protocol"] = credentials.protocol
            log.warning("login refused", extra={"facts": shown})
        facts: dict[str, object] = {
            "name": credentials.name,
            "peer_host": credentials.host,
            "protocol": credentials.protocol,
        }
        self.publish(f"user.authentication.{'success' if succeeded else 'failure'}", facts)

    def on_memory(self, is_short: bool) -> None:
        self._set_alarm(MEMORY_REASON, is_short)

    def on_disk(self, is_full: bool) -> None:
        self._set_alarm(DISK_FULL, is_full)

    def _set_alarm(self, reason: str, is_on: bool) -> None:
        self.publish(f"alarm.{'set' if is_on else 'cleared'}", {"resource": reason})
        text = (
            f"alarm on: publishers are blocked: {_CAUSES[reason]}"
            if is_on
            else "alarm off: publishers go on"
        )
        log.warning(text, extra={"facts": {"reason": reason}})
        if is_on:
            self._front.alarms.append(reason)
            return
        self._front.alarms.remove(reason)
        if self.amqp is not None:
            self.amqp.alarms_changed()

    async def no_alarm(self) -> None:
        """Return when no alarm is raised."""
        while self._front.alarms:  # noqa: ASYNC110  alarms are rare and last long, so polling is cheap
            await asyncio.sleep(ALARM_PAUSE_S)
