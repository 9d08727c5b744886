"""Schedules: enqueue a job at each due time, on the timer of the engine.

An entry of the register has the schedule and its next due time. When that time has come, one turn
enqueues the job and sets the next time, so that a kill cannot make a schedule fire twice for one
time, or not at all. A schedule that missed times while the node was down fires once. A schedule
whose job cannot be enqueued (its topic is full, or cannot be used) stays due and is tried again;
other schedules do not wait for it. If many are due at once, each turn fires some of them.
"""

import json
import logging
from collections.abc import Callable
from heapq import nsmallest
from typing import Final

import msgspec

from leveret.engine.broker import Broker
from leveret.engine.timer_queue import NEVER, TimedCallback
from leveret.errors import LeveretError
from leveret.job_model import NewJob, Schedule
from leveret.job_service.cron import Cron
from leveret.job_service.embedded.block_limit import LATER_MS, is_block_full

KIND: Final = "job-schedule"
AGAIN_MS: Final = 10_000  # until a job that could not be enqueued is tried again
FIRED_MAX: Final = 50  # schedules in one turn

log = logging.getLogger(__name__)


class ScheduleEntry(msgspec.Struct):
    """A schedule in the register."""

    schedule: Schedule
    due_ms: int  # NEVER while it is paused


_encode: Final = msgspec.json.Encoder().encode
_entries: Final = msgspec.json.Decoder(ScheduleEntry)


class Schedules:
    """All schedules of the node. Methods that change one are called inside a turn."""

    def __init__(self, broker: Broker, put: Callable[[NewJob], None]) -> None:
        self._broker = broker
        self._put = put
        self._entries: dict[tuple[str, str], ScheduleEntry] = {}
        self._again_ms: dict[
            tuple[str, str], int
        ] = {}  # when to try again, of schedules that could not fire
        self._waking = TimedCallback(self._on_due)

    def load(self) -> None:
        """Read the register, and fire the schedules that missed a time."""
        self._broker.register.load_each(KIND, self._load)
        self._on_due(int(self._broker.turn.now_ms))
        self._arm()

    def _load(self, key: str, text: str) -> None:
        entry = _entries.decode(text)
        self._entries[entry.schedule.namespace, entry.schedule.name] = entry

    def of(self, namespace: str) -> list[Schedule]:
        found = [e.schedule for key, e in self._entries.items() if key[0] == namespace]
        return sorted(found, key=_name)

    def put(self, schedule: Schedule) -> None:
        """Set a schedule; its next due time is counted from now."""
        self._keep(ScheduleEntry(schedule, self._next_ms(schedule)))
        self._arm()

    def drop(self, namespace: str, name: str) -> bool:
        """Delete a schedule; False where there is none."""
        self._entries.pop((namespace, name), None)
        self._again_ms.pop((namespace, name), None)
        return self._broker.register.drop(KIND, json.dumps([namespace, name]))

    def _keep(self, entry: ScheduleEntry) -> None:
        schedule = entry.schedule
        self._entries[schedule.namespace, schedule.name] = entry
        self._again_ms.pop((schedule.namespace, schedule.name), None)
        key = json.dumps([schedule.namespace, schedule.name])
        self._broker.register.put(KIND, key, _encode(entry).decode())

    def _next_ms(self, schedule: Schedule) -> int:
        if schedule.is_paused:
            return NEVER
        cron = Cron(schedule.cron, schedule.timezone)
        return cron.next_ms(int(self._broker.turn.now_ms)) or NEVER

    def _arm(self) -> None:
        due_ms = self._next_due_ms()
        if due_ms != NEVER:
            self._broker.timers.arm(self._waking, due_ms)

    def _next_due_ms(self) -> int:
        waiting = [key for key, entry in self._entries.items() if entry.due_ms != NEVER]
        return min(map(self._due_ms, waiting), default=NEVER)

    def _due_ms(self, key: tuple[str, str]) -> int:
        return max(self._entries[key].due_ms, self._again_ms.get(key, 0))

    def _on_due(self, now_ms: int) -> int:
        """Fire schedules that are due, the first ones first. The rest follows in another turn."""
        due = [
            (self._due_ms(key), key)
            for key, entry in self._entries.items()
            if entry.due_ms != NEVER and self._due_ms(key) <= now_ms
        ]
        for _, key in nsmallest(FIRED_MAX, due):
            if is_block_full(self._broker):
                return now_ms + LATER_MS
            self._fire(key, self._entries[key].schedule, now_ms)
        return self._next_due_ms()

    def _fire(self, key: tuple[str, str], schedule: Schedule, now_ms: int) -> None:
        job = NewJob(
            namespace=schedule.namespace,
            topic=schedule.topic,
            payload=schedule.payload,
            priority=schedule.priority,
        )
        try:
            self._put(job)
        except LeveretError as fault:
            if key not in self._again_ms:  # logged once
                text = "the schedule %s of %s could not fire: %s: it is tried again by itself"
                log.warning(text, schedule.name, key[0], fault)
            self._again_ms[key] = now_ms + AGAIN_MS
            return
        self._keep(ScheduleEntry(schedule, self._next_ms(schedule)))


def _name(schedule: Schedule) -> str:
    return schedule.name
