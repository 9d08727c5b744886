"""Carries orders out: in turns of bounded size, each on disk before the next.

A turn takes a batch of messages from the source, pushes them to their targets and settles them at
the source, all in one block of the log: whenever the node ends, each message is in one place. A
start knows nothing of the task that was running; what it had done is done.

Between two turns a task waits for the disk, for its rate, while an alarm blocks publishers
(deleting goes on), and while a target has no room. It waits for as long as that takes: `waiting`
says for what, and it can be cancelled at any time, which undoes nothing.
"""

import asyncio
import logging
import secrets
from array import array
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from leveret.auth import READ, WRITE, User
from leveret.engine.broker import Broker
from leveret.engine.commands.moving import DELETE, Goal, Mover
from leveret.engine.commands.picking import Look, Picked, plan
from leveret.engine.insight.filters import READY, SCHEDULED, Filter
from leveret.engine.insight.walk import arrived_ms
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.errors import AccessRefusedError, LeveretError, NotFoundError, PreconditionFailedError
from leveret.tasks.task import CANCELLED, DONE, FAILED, RUNNING, DryRun, Task, TaskRequest

log = logging.getLogger(__name__)

TASKS_MAX: Final = 1000  # that are remembered
RUNNING_MAX: Final = 64
TURN_MESSAGES: Final = 250  # that are moved in a turn
TURN_BYTES: Final = 1024 * 1024
LOOK_MESSAGES: Final = 1000  # that are looked at in a turn, where a filter passes most over
PAUSES_A_SECOND: Final = 10  # of a task with a rate: its turns are so much smaller
ALARM_PAUSE_S: Final = 0.25
ROOM_PAUSE_S: Final = (0.05, 2.0)  # for a target without room: at first, and at most

# Why a message of the plan is passed over before anybody decides.
GONE: Final = "gone"
UNACKED: Final = "unacked"


class Tasks:
    """The tasks of one node."""

    def __init__(
        self,
        broker: Broker,
        *,
        now_ms: Callable[[], int],
        turn: Callable[[], AbstractContextManager[None]],
        synced: Callable[[], Awaitable[None]],
        alarms: Callable[[], Sequence[str]],
        in_flight: Callable[[], list[Message]],
    ) -> None:
        self._broker = broker
        self._now_ms = now_ms
        self._turn = turn
        self._synced = synced
        self._alarms = alarms
        self._in_flight = in_flight
        self._tasks: dict[str, Task] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    # What can be asked

    def all(self) -> list[Task]:
        """All that are remembered, the newest first."""
        return list(reversed(self._tasks.values()))

    def get(self, number: str) -> Task:
        found = self._tasks.get(number)
        if found is None:
            raise NotFoundError(f"no task '{number}'")
        return found

    def start(self, order: TaskRequest, user: User) -> Task:
        """Begin to carry an order out. Refused orders raise EngineError."""
        if len(self._running) >= RUNNING_MAX:
            raise PreconditionFailedError(f"{RUNNING_MAX} tasks are running: wait for one to end")
        work = _Work(self._broker, order, user)
        task = Task(
            id=secrets.token_hex(8),
            kind=order.kind,
            user=user.name,
            source=order.source,
            target=order.to,
            started_at_ms=self._now_ms(),
            total=work.total(),
        )
        self._remember(task)
        loop = asyncio.get_running_loop()
        self._running[task.id] = loop.create_task(self._run(task, work), name=f"task {task.id}")
        return task

    def _remember(self, task: Task) -> None:
        self._tasks[task.id] = task
        if len(self._tasks) > TASKS_MAX:
            for old in list(self._tasks.values()):
                if old.state != RUNNING:
                    del self._tasks[old.id]
                    return

    async def cancel(self, number: str) -> None:
        """End a task after the turn that it is in; one that has ended stays as it is."""
        self.get(number)
        await self._end(self._running.get(number))

    async def _end(self, runner: asyncio.Task[None] | None) -> None:
        if runner is not None:
            runner.cancel()
            await asyncio.wait([runner])

    async def stop(self) -> None:
        """The node stops: end all tasks."""
        for runner in list(self._running.values()):
            await self._end(runner)

    async def dry_run(self, order: TaskRequest, user: User) -> DryRun:
        """What an order would do; nothing changes."""
        work = _Work(self._broker, order, user)
        while not work.is_done():
            with self._turn():
                work.step(is_trial=True)
            await asyncio.sleep(0)
        return DryRun(work.matched, work.goal_vhost, work.mover.targets, work.mover.skipped)

    # Carrying out

    async def _run(self, task: Task, work: "_Work") -> None:
        try:
            await self._carry_out(task, work)
            task.state = DONE
        except asyncio.CancelledError:
            task.state = CANCELLED  # asked for, by `cancel` or `stop`
        except LeveretError as fault:
            task.state = FAILED
            task.error = str(fault)
        except Exception:
            log.exception("the task %s failed", task.id)
            task.state = FAILED
            task.error = "internal error: see the log"
        finally:
            self._note(task, work)
            task.waiting = None
            task.ended_at_ms = self._now_ms()
            del self._running[task.id]

    async def _carry_out(self, task: Task, work: "_Work") -> None:
        clock = asyncio.get_running_loop().time
        started_s = clock()
        pause_s = ROOM_PAUSE_S[0]
        while not work.is_done():
            if work.mover.kind != DELETE:
                await self._no_alarm(task)
            before = work.mover.done
            with self._turn():
                work.step(is_trial=False)
                self._tell_missing(work)
            await asyncio.sleep(0)
            if work.mover.done != before:
                await self._synced()
                pause_s = ROOM_PAUSE_S[0]
            self._note(task, work)
            task.rate = round(task.done / max(clock() - started_s, 0.001), 1)
            if work.mover.full:
                await self._pause(task, f"queue '{work.mover.full}' has no room", pause_s)
                pause_s = min(2 * pause_s, ROOM_PAUSE_S[1])
            elif work.order.rate is not None:
                await asyncio.sleep(started_s + task.done / work.order.rate - clock())

    def _note(self, task: Task, work: "_Work") -> None:
        task.done = work.mover.done
        task.scanned = min(work.at, task.total)
        task.skipped = dict(work.mover.skipped)

    async def _no_alarm(self, task: Task) -> None:
        while alarms := self._alarms():
            await self._pause(task, "; ".join(alarms), ALARM_PAUSE_S)

    async def _pause(self, task: Task, reason: str, pause_s: float) -> None:
        task.waiting = reason
        await asyncio.sleep(pause_s)
        task.waiting = None

    def _tell_missing(self, work: "_Work") -> None:
        """Messages that were asked for by number and are not there: say which are in flight."""
        if not work.missing:
            return
        held = 0
        if work.queue.unacked:
            slot = work.queue.slot
            numbers = {message.seq for message in self._in_flight() if message.queue == slot}
            held = len(numbers.intersection(work.missing))
        if held:
            work.mover.skip(UNACKED, held)
        if held < len(work.missing):
            work.mover.skip(GONE, len(work.missing) - held)
        work.missing = []


class _Work:
    """An order on its way through the plan of its queue."""

    def __init__(self, broker: Broker, order: TaskRequest, user: User) -> None:
        self.order = order
        self._broker = broker
        vhost = broker.vhost(order.source.vhost)
        self.queue: Queue = vhost.queue(order.source.queue, None)
        if isinstance(self.queue, Stream):
            raise PreconditionFailedError(f"'{self.queue.name}' is a stream: its messages stay")
        self.at = 0
        self.matched = 0
        self.missing: list[int] = []  # not there, of the messages of the last step
        goal_vhost = broker.vhost(order.to.vhost) if order.to is not None else vhost
        self.goal_vhost = goal_vhost.name
        goal = Goal(goal_vhost, "", None, None)
        if order.to is not None:
            goal = Goal(goal_vhost, order.to.queue, order.to.exchange, order.to.routing_key)
        self._user = user
        self.mover = Mover(self.queue, order.kind, goal, order.keep_attempts, self._may_write)
        states = order.filter.states if order.filter is not None else [READY, SCHEDULED]
        self._plan: array[int] | list[int]
        if order.seqs is not None:
            self._plan = order.seqs
        else:
            self._plan = plan(self.queue, READY in states, SCHEDULED in states)
        rate = order.rate if order.rate is not None else TURN_MESSAGES * PAUSES_A_SECOND
        self._turn_messages = max(1, min(TURN_MESSAGES, int(rate / PAUSES_A_SECOND)))

    def total(self) -> int:
        """How many messages will be looked at."""
        count = len(self._plan)
        if self.order.filter is None and self.order.limit is not None:
            return min(count, self.order.limit)
        return count

    def is_done(self) -> bool:
        return self.at >= len(self._plan) or self._left() <= 0

    def _left(self) -> int:
        """Messages that may still go."""
        limit = self.order.limit
        return self._turn_messages if limit is None else limit - self.mover.done

    def step(self, *, is_trial: bool) -> None:
        """Look at the next messages, and do what is ordered with those that are meant."""
        if self.queue.deleted:
            raise NotFoundError(f"queue '{self.queue.name}' is deleted")
        if not self._may(READ, self.queue.vhost, "queue", self.queue.name):
            raise AccessRefusedError(f"user '{self._user.name}' may no longer read from the queue")
        filtering = self.order.filter
        count = self._turn_messages if filtering is None else LOOK_MESSAGES
        seqs = list(self._plan[self.at : self.at + count])
        look = Look(self.queue, seqs, TURN_BYTES)
        meant = self._meant(look.picked, filtering)
        carried = self.mover.carry_out(meant[: min(self._turn_messages, self._left())], is_trial)
        self.matched += carried
        looked = look.count if carried == len(meant) else seqs.index(meant[carried].message.seq)
        if filtering is None:
            there = {one.message.seq for one in look.picked}
            self.missing = [seq for seq in seqs[:looked] if seq not in there]
        self.at += looked

    def _meant(self, found: list[Picked], filtering: Filter | None) -> list[Picked]:
        if filtering is None:
            return found
        now_ms = self.queue.turn.now_ms
        states = filtering.states
        return [
            one
            for one in found
            if (SCHEDULED if one.due_ms else READY) in states
            and filtering.matches(one.message, arrived_ms(self.queue, one.message.seq), now_ms)
        ]

    def _may(self, permission: str, vhost: str, what: str, name: str) -> bool:
        """Whether the user may do this now: permissions change while a task runs."""
        return self._user.may_open(vhost) and self._user.may(permission, vhost, what, name)

    def _may_write(self, vhost: str, what: str, name: str, key: str) -> bool:
        if what == "queue":
            return self._may(WRITE, vhost, what, name)
        exchange = self._broker.vhost(vhost).exchange(name)
        if exchange.kind == "topic" and not self._user.may_topic(WRITE, vhost, name, key):
            return False
        return self._may(WRITE, vhost, what, name or "amq.default")
