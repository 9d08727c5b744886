"""The shovels of a node: one for each runtime parameter of the component `shovel`.

The owner of the parameters calls `faults` before it keeps one, and `on_parameter` after one was set
or cleared. `load` starts the shovels of the parameters that the node had at its start. A shovel
that has moved its number of messages clears its own parameter.

Most nodes have no shovel, so the code that runs one is imported with the first.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from leveret.engine.turns.session import Session
from leveret.errors import LeveretError, NotFoundError, PreconditionFailedError
from leveret.shovels.local_node import LocalNode
from leveret.shovels.owner import Owner
from leveret.shovels.settings import parse_settings
from leveret.shovels.status import TERMINATED, ShovelStatus

log = logging.getLogger(__name__)

COMPONENT: Final = "shovel"


@dataclass
class _Runner:
    """A shovel, its task and the value of its parameter."""

    shovel: ShovelStatus
    task: asyncio.Task[None]
    value: object
    owner: str | None


class ShovelManager:
    """Starts, ends and lists shovels."""

    def __init__(
        self,
        node: LocalNode,
        node_name: str,
        *,
        now_ms: Callable[[], int],
        clear: Callable[[str, str], Awaitable[None]],
        on_event: Callable[[str, dict[str, object]], None],
    ) -> None:
        self._node = node
        self._node_name = node_name
        self._now_ms = now_ms
        self._clear = clear  # clears a parameter: vhost, name
        self._on_event = on_event
        self._runners: dict[tuple[str, str], _Runner] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def faults(self, vhost: str, name: str, value: object) -> list[str]:
        """Return the faults of the value of a parameter; an empty list if there are none."""
        try:
            parse_settings(value, vhost)
        except PreconditionFailedError as fault:
            return [f"Validation failed: {fault}"]
        return []

    def on_parameter(
        self, component: str, vhost: str, name: str, value: object | None, owner: str | None
    ) -> None:
        """Start or end a shovel after its parameter was set or cleared."""
        if component != COMPONENT:
            return
        self._end_shovel(vhost, name)
        if value is not None:
            self._start(vhost, name, value, owner)

    def on_access_changed(self, user: str) -> None:
        """Stop the shovels of a user that act beyond the user's new permissions."""
        for runner in self._runners.values():
            if runner.owner == user:
                runner.shovel.recheck()

    def load(self, parameters: list[tuple[str, str, object, str | None]]) -> None:
        """Start the shovels of these parameters: vhost, name, value, owner."""
        for vhost, name, value, owner in parameters:
            if (vhost, name) in self._runners:
                continue  # a definitions file has just set it
            try:
                self._start(vhost, name, value, owner)
            except LeveretError as fault:
                log.error("shovel '%s' in vhost '%s' cannot run: %s", name, vhost, fault)

    def all(self, vhost: str | None = None) -> list[ShovelStatus]:
        """Return all shovels, or those of a vhost, sorted by name."""
        found = [self._runners[key].shovel for key in sorted(self._runners)]
        return [shovel for shovel in found if vhost is None or shovel.vhost == vhost]

    def get(self, vhost: str, name: str) -> ShovelStatus:
        return self._runner(vhost, name).shovel

    def _runner(self, vhost: str, name: str) -> _Runner:
        found = self._runners.get((vhost, name))
        if found is None:
            raise NotFoundError(f"no shovel '{name}' in vhost '{vhost}'")
        return found

    def sessions(self) -> list[Session]:
        """Return the engine's sessions that hold messages for shovels."""
        found = [runner.shovel.session for runner in self._runners.values()]
        return [session for session in found if session is not None and not session.closed]

    def restart(self, vhost: str, name: str) -> None:
        """End a shovel and start it again."""
        runner = self._runner(vhost, name)
        self._end_shovel(vhost, name)
        self._start(vhost, name, runner.value, runner.owner)

    async def delete(self, vhost: str, name: str) -> None:
        """End a shovel and clear its parameter."""
        self._runner(vhost, name)
        await self._clear(vhost, name)
        self._end_shovel(vhost, name)

    async def stop(self) -> None:
        """End all shovels; their parameters stay."""
        for vhost, name in list(self._runners):
            self._end_shovel(vhost, name)
        if self._ending:
            await asyncio.wait(self._ending)

    def _start(self, vhost: str, name: str, value: object, owner: str | None) -> None:
        from leveret.shovels.shovel import Shovel

        shovel = Shovel(
            name,
            vhost,
            parse_settings(value, vhost),
            Owner(owner, self._node.user),
            self._node,
            self._node_name,
            self._now_ms,
            self._on_state,
        )
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._run_shovel(shovel), name=f"shovel {name}")
        self._runners[vhost, name] = _Runner(shovel, task, value, owner)
        self._on_state(shovel)

    async def _run_shovel(self, shovel: ShovelStatus) -> None:
        try:
            await shovel.run()
        except Exception:
            text = "shovel '%s' in vhost '%s' stops because of a bug: please report it"
            log.exception(text, shovel.name, shovel.vhost)
            shovel.state = TERMINATED
            shovel.reason = "internal error: see the log"
            return
        if shovel.state != TERMINATED:
            log.info(
                "shovel '%s' in vhost '%s' has moved all its messages", shovel.name, shovel.vhost
            )
            await self._clear(shovel.vhost, shovel.name)
            runner = self._runners.get((shovel.vhost, shovel.name))
            if runner is not None and runner.shovel is shovel:
                self._forget(shovel.vhost, shovel.name)

    def _end_shovel(self, vhost: str, name: str) -> None:
        runner = self._runners.get((vhost, name))
        if runner is None:
            return
        self._forget(vhost, name)
        if runner.task is asyncio.current_task():
            return  # the shovel has cleared its own parameter and is about to end
        runner.task.cancel()
        self._ending.add(runner.task)
        runner.task.add_done_callback(self._ending.discard)

    def _forget(self, vhost: str, name: str) -> None:
        del self._runners[vhost, name]
        self._on_event("shovel.worker.removed", {"name": name, "vhost": vhost, "type": "dynamic"})

    def _on_state(self, shovel: ShovelStatus) -> None:
        facts: dict[str, object] = {
            "name": shovel.name,
            "vhost": shovel.vhost,
            "type": "dynamic",
            "status": shovel.state,
        }
        if shovel.reason is not None:
            facts["reason"] = shovel.reason
        self._on_event("shovel.worker.status", facts)
