"""Carry out requests: in turns of bounded size, each on disk before the next.

A turn takes a batch of messages from the source, pushes them to their targets and settles them at
the source, all in one block of the log. So each message is in exactly one place whenever the node
is killed. A restarted node does not continue the task; the finished turns stay done.

Between two turns a task waits for the disk and for its rate, and it waits while an alarm blocks
publishers (deletes continue) or a target has no room. Such a wait has no limit: `waiting` says why
the task waits. A task can be cancelled at any time; cancelling undoes nothing.

Users take turns, and all tasks together make one turn in each iteration of the event loop: many
tasks of one user delay neither the clients nor the tasks of other users.
"""

import asyncio
import logging
import secrets
from array import array
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from leveret.auth import ADMINISTRATOR, READ, WRITE, User
from leveret.engine.broker import Broker
from leveret.engine.commands.moving import DELETE, Destination, Mover
from leveret.engine.commands.picking import Lookup, PickedMessage, plan
from leveret.engine.insight.filters import READY, SCHEDULED, Filter
from leveret.engine.insight.walk import arrived_ms
from leveret.engine.message import Message
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.stream import Stream
from leveret.errors import AccessRefusedError, LeveretError, NotFoundError, PreconditionFailedError
from leveret.slices import FairLock
from leveret.tasks.task import CANCELLED, DONE, FAILED, RUNNING, DryRun, Task, TaskRequest

log = logging.getLogger(__name__)

TASKS_MAX: Final = 1000  # records that are kept
RUNNING_MAX: Final = 64
RESERVED: Final = 8  # of these tasks, for administrators
USER_RUNNING_MAX: Final = 16  # of one user who is not an administrator
TURN_MESSAGES: Final = 250  # moved in one turn
TURN_BYTES: Final = 1024 * 1024
LOOK_MESSAGES: Final = 1000  # examined in one turn if there is a filter
TURNS_PER_SECOND: Final = 10  # of a task with a rate, which makes its turns small
ALARM_PAUSE_S: Final = 0.25
ROOM_PAUSE_S: Final = (0.05, 2.0)  # first and longest wait for a target without room

# Reasons why a message of the plan is skipped.
GONE: Final = "gone"
UNACKED: Final = "unacked"


class TaskLimitError(PreconditionFailedError):
    """The user, or the node, has too many running tasks. Try again when one has ended."""


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
        self._stepping = FairLock()  # one turn of all tasks for each iteration of the loop

    def all(self) -> list[Task]:
        """Return all records, newest first."""
        return list(reversed(self._tasks.values()))

    def get(self, number: str) -> Task:
        found = self._tasks.get(number)
        if found is None:
            raise NotFoundError(f"no task '{number}'")
        return found

    def start(self, request: TaskRequest, user: User) -> Task:
        """Start a task. Raises EngineError if the request is refused."""
        self._require_room(user)
        work = _Work(self._broker, request, user)
        task = Task(
            id=secrets.token_hex(8),
            kind=request.kind,
            user=user.identity,
            source=request.source,
            target=request.to,
            started_at_ms=self._now_ms(),
            total=work.total(),
        )
        self._remember(task)
        loop = asyncio.get_running_loop()
        self._running[task.id] = loop.create_task(self._run(task, work), name=f"task {task.id}")
        return task

    def _require_room(self, user: User) -> None:
        is_administrator = ADMINISTRATOR in user.tags
        running = len(self._running)
        if running >= RUNNING_MAX or (not is_administrator and running >= RUNNING_MAX - RESERVED):
            raise TaskLimitError(f"{running} tasks are running: try again when one has ended")
        own = sum(self._tasks[number].user == user.name for number in self._running)
        if not is_administrator and own >= USER_RUNNING_MAX:
            raise TaskLimitError(
                f"{own} tasks of user '{user.name}' are running: try again when one has ended"
            )

    def _remember(self, task: Task) -> None:
        self._tasks[task.id] = task
        if len(self._tasks) > TASKS_MAX:
            for old in list(self._tasks.values()):
                if old.state != RUNNING:
                    del self._tasks[old.id]
                    return

    async def cancel(self, number: str) -> None:
        """End a task after its current turn. Does nothing if the task has ended."""
        self.get(number)
        await self._end(self._running.get(number))

    async def _end(self, runner: asyncio.Task[None] | None) -> None:
        if runner is not None:
            runner.cancel()
            await asyncio.wait([runner])

    async def stop(self) -> None:
        """End all tasks, when the node stops."""
        for runner in list(self._running.values()):
            await self._end(runner)

    async def dry_run(self, request: TaskRequest, user: User) -> DryRun:
        """Return what a request would do, and change nothing."""
        work = _Work(self._broker, request, user)
        while not work.is_done():
            async with self._stepping.held(user.name):
                with self._turn():
                    work.step(is_trial=True)
                await asyncio.sleep(0)
        return DryRun(work.matched, work.goal_vhost, work.mover.targets, work.mover.skipped)

    async def _run(self, task: Task, work: "_Work") -> None:
        try:
            await self._carry_out(task, work)
            task.state = DONE
        except asyncio.CancelledError:
            task.state = CANCELLED  # by `cancel` or `stop`
        except LeveretError as fault:
            task.state = FAILED
            task.error = str(fault)
        except Exception:
            log.exception("the task %s failed because of a bug: please report it", task.id)
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
            async with self._stepping.held(task.user):
                with self._turn():
                    work.step(is_trial=False)
                    self._count_missing(work)
                await asyncio.sleep(0)
            if work.mover.done != before:
                await self._synced()
                pause_s = ROOM_PAUSE_S[0]
            self._note(task, work)
            task.rate = round(task.done / max(clock() - started_s, 0.001), 1)
            if work.mover.full:
                await self._pause(task, f"queue '{work.mover.full}' has no room", pause_s)
                pause_s = min(2 * pause_s, ROOM_PAUSE_S[1])
            elif work.request.rate is not None:
                await asyncio.sleep(started_s + task.done / work.request.rate - clock())

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

    def _count_missing(self, work: "_Work") -> None:
        """Count requested messages that are not in the queue: in flight, or gone."""
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
    """A request and its position in the plan: the list of messages to examine."""

    def __init__(self, broker: Broker, request: TaskRequest, user: User) -> None:
        self.request = request
        self._broker = broker
        vhost = broker.vhost(request.source.vhost)
        self.queue: Queue = vhost.queue(request.source.queue, None)
        if isinstance(self.queue, Stream):
            raise PreconditionFailedError(f"'{self.queue.name}' is a stream: its messages stay")
        self.at = 0
        self.matched = 0
        self.missing: list[int] = []  # requested in the last step, but not in the queue
        goal_vhost = broker.vhost(request.to.vhost) if request.to is not None else vhost
        self.goal_vhost = goal_vhost.name
        goal = Destination(goal_vhost, "", None, None)
        if request.to is not None:
            goal = Destination(
                goal_vhost, request.to.queue, request.to.exchange, request.to.routing_key
            )
        self._user = user
        self.mover = Mover(self.queue, request.kind, goal, request.keep_attempts, self._may_write)
        states = request.filter.states if request.filter is not None else [READY, SCHEDULED]
        self._plan: array[int] | list[int]
        if request.seqs is not None:
            self._plan = request.seqs
        else:
            self._plan = plan(
                self.queue, with_ready=READY in states, with_scheduled=SCHEDULED in states
            )
        rate = request.rate if request.rate is not None else TURN_MESSAGES * TURNS_PER_SECOND
        self._turn_messages = max(1, min(TURN_MESSAGES, int(rate / TURNS_PER_SECOND)))

    def total(self) -> int:
        """Return how many messages will be examined."""
        count = len(self._plan)
        if self.request.filter is None and self.request.limit is not None:
            return min(count, self.request.limit)
        return count

    def is_done(self) -> bool:
        return self.at >= len(self._plan) or self._left() <= 0

    def _left(self) -> int:
        """Return how many messages the limit still allows."""
        limit = self.request.limit
        return self._turn_messages if limit is None else limit - self.mover.done

    def step(self, *, is_trial: bool) -> None:
        """Examine the next messages, and carry out the request for those that match."""
        if self.queue.deleted:
            raise NotFoundError(f"queue '{self.queue.name}' is deleted")
        if not self._may(READ, self.queue.vhost, "queue", self.queue.name):
            raise AccessRefusedError(f"user '{self._user.name}' may no longer read from the queue")
        filtering = self.request.filter
        count = self._turn_messages if filtering is None else LOOK_MESSAGES
        seqs = list(self._plan[self.at : self.at + count])
        look = Lookup(self.queue, seqs, TURN_BYTES)
        meant = self._meant(look.picked, filtering)
        carried = self.mover.carry_out(
            meant[: min(self._turn_messages, self._left())], dry_run=is_trial
        )
        self.matched += carried
        looked = look.count if carried == len(meant) else seqs.index(meant[carried].message.seq)
        if filtering is None:
            there = {one.message.seq for one in look.picked}
            self.missing = [seq for seq in seqs[:looked] if seq not in there]
        self.at += looked

    def _meant(self, found: list[PickedMessage], filtering: Filter | None) -> list[PickedMessage]:
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
        """Return True if the user has the permission now: it may change while a task runs."""
        return self._user.may_open(vhost) and self._user.may(permission, vhost, what, name)

    def _may_write(self, vhost: str, what: str, name: str, key: str) -> bool:
        if what == "queue":
            return self._may(WRITE, vhost, what, name)
        exchange = self._broker.vhost(vhost).exchange(name)
        if exchange.kind == "topic" and not self._user.may_topic(WRITE, vhost, name, key):
            return False
        return self._may(WRITE, vhost, what, name or "amq.default")
