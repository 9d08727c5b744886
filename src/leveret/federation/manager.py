"""The federation links of a node: one for each upstream of each federated exchange and queue.

The links that should run follow from the parameters, the policies, and the exchanges and queues of
a vhost. After changes the manager compares them with the links that run. It checks at most every
`PAUSE_S`, after turns of the engine, and only while the node has an upstream; a node without
federation does no work for it.

A link that is not wanted any more deletes its queue at the upstream, and so does a link whose
upstream is now another broker or exchange. A link with other changes, or that is restarted, keeps
it.
"""

import asyncio
import logging
import time
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from leveret.definitions import Definitions
from leveret.engine.exchanges.exchange import Exchange
from leveret.engine.exchanges.federation_upstream import FEDERATION_UPSTREAM
from leveret.engine.queues.queue import Queue
from leveret.engine.target import Target
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import LeveretError, NotFoundError, PreconditionFailedError, system_reason
from leveret.federation.upstreams import (
    POLICY_KEYS,
    UPSTREAM,
    UPSTREAM_SET,
    Upstream,
    shown_uri,
    upstreams_of,
)
from leveret.shovels.local_node import LocalNode
from leveret.shovels.owner import Owner
from leveret.shovels.settings import ShovelSettings, parse_settings
from leveret.shovels.status import TERMINATED, ShovelStatus
from leveret.shovels.targets import TargetCheck

log = logging.getLogger(__name__)

PAUSE_S: Final = 0.02  # between two checks of the vhosts
PAUSE_FACTOR: Final = 10  # the pause is this many times as long as the check before it
LINKS_MAX: Final = 2000  # each has a connection to its upstream, so a file descriptor here
CLEAN_UP_S: Final = 30.0  # deadline for deleting the queue of a link at the upstream
EXCHANGE: Final = "exchange"
QUEUE: Final = "queue"
ERROR: Final = "error"  # the status of a link that does not run
_STREAM: Final = "stream"
_INTERNAL_PURPOSE: Final = "x-internal-purpose"


class LinkKey(NamedTuple):
    """The identity of a link."""

    vhost: str
    type: str  # EXCHANGE or QUEUE
    name: str  # of the exchange or queue
    upstream: str


@dataclass(frozen=True)
class LinkStatus:
    """One link, as the management API shows it."""

    key: LinkKey
    id: str
    upstream: Upstream
    uri: str
    status: str  # starting, running, error
    since_ms: int
    error: str | None
    owner: str | None
    moved: int


class _Runner:
    """A link with its task. It has neither if its settings are not usable."""

    def __init__(self, upstream: Upstream, owner: str | None, now_ms: int) -> None:
        self.upstream = upstream
        self.owner = owner
        self.since_ms = now_ms
        self.error: str | None = None
        self.link: ShovelStatus | None = None
        self.task: asyncio.Task[None] | None = None
        self.follow: Callable[[], None] = _do_nothing
        self.clean_up: Callable[[], Awaitable[None]] | None = None


class FederationManager:
    """Starts, ends and lists federation links."""

    def __init__(
        self,
        node: LocalNode,
        node_name: str,
        definitions: Definitions,
        *,
        now_ms: Callable[[], int],
        on_event: Callable[[str, dict[str, object]], None],
        watch: Callable[[Callable[[], None]], None],
        unwatch: Callable[[Callable[[], None]], None],
    ) -> None:
        self._node = node
        self._node_name = node_name
        self._definitions = definitions
        self._now_ms = now_ms
        self._on_event = on_event
        self._watch = watch  # calls a function at the end of every turn
        self._unwatch = unwatch
        self._upstreams: dict[str, list[str]] = {}  # names by vhost
        self._is_outdated = False  # `_upstreams` must be read again: a parameter has changed
        self._runners: dict[LinkKey, _Runner] = {}
        self._versions: dict[str, int] = {}  # versions of the vhosts at the last check
        self._changed: set[str] = set()  # vhosts to check
        self._ending: dict[LinkKey, asyncio.Task[None]] = {}
        self._is_watching = False
        self._is_due = False
        self._is_stopped = False
        self._pause_s = PAUSE_S

    def load(self) -> None:
        """Start the links of the parameters and policies that the node had at its start."""
        self._read_upstreams()
        self._changed.update(self._upstreams)
        self._set_watching()

    def on_parameter(self, component: str, vhost: str) -> None:
        """Check a vhost again after one of its parameters was set or cleared."""
        if component in (UPSTREAM, UPSTREAM_SET):
            self._is_outdated = True
            self._changed.add(vhost)
            self._set_watching()

    def _read_upstreams(self) -> None:
        self._is_outdated = False
        self._upstreams = {}
        for _, vhost, name, _ in self._definitions.parameters.all(UPSTREAM):
            self._upstreams.setdefault(vhost, []).append(name)

    def on_policy(self, vhost: str) -> None:
        """Check a vhost again after one of its policies was set or cleared."""
        if self._is_watching:
            self._changed.add(vhost)

    def on_access_changed(self, user: str) -> None:
        """Stop the links of a user that act beyond the user's new permissions."""
        for runner in self._runners.values():
            if runner.owner == user and runner.link is not None:
                runner.link.recheck()

    def _set_watching(self) -> None:
        """Check the vhosts after turns while there is an upstream, or a link to end."""
        is_needed = bool(self._runners or self._changed or self._upstreams)
        if is_needed != self._is_watching:
            self._is_watching = is_needed
            change = self._watch if is_needed else self._unwatch
            change(self._on_turn)
        if self._changed:
            self._on_turn()

    def _on_turn(self) -> None:
        if not self._is_due and not self._is_stopped:
            self._is_due = True
            asyncio.get_running_loop().call_later(self._pause_s, self._look)

    def _look(self) -> None:
        """Start and end links, and let the others follow the changes."""
        self._is_due = False
        if self._is_stopped:
            return
        began_s = time.perf_counter()
        if self._is_outdated:
            self._read_upstreams()
        names = self._changed | self._upstreams.keys() | {key.vhost for key in self._runners}
        changed = {name for name in names if self._look_at(name)}
        for key, runner in self._runners.items():
            if key.type == QUEUE or key.vhost in changed:
                runner.follow()
        self._pause_s = max(PAUSE_S, PAUSE_FACTOR * (time.perf_counter() - began_s))
        self._set_watching()

    def _look_at(self, name: str) -> bool:
        """Start and end the links of a vhost. Return False if nothing in it has changed."""
        broker = self._node.broker
        vhost = broker.vhosts.get(name)
        version = int(vhost.version) if vhost is not None else -1
        if name not in self._changed and version == self._versions.get(name):
            return False
        self._versions[name] = version
        if vhost is None or not broker.enforcers[name].is_busy:
            self._changed.discard(name)  # otherwise policies are still being applied
        self._reconcile(name, vhost)
        return True

    def _reconcile(self, name: str, vhost: Vhost | None) -> None:
        wanted = self._wanted(vhost) if vhost is not None else {}
        for key in [key for key in self._runners if key.vhost == name]:
            upstream = wanted.get(key)
            runner = self._runners[key]
            if upstream is None:
                self._end_link(key, cleans_up=runner.upstream.cleans_up)
            elif upstream == runner.upstream and self._owner_of(key) == runner.owner:
                del wanted[key]
            else:
                is_other = _is_elsewhere(runner.upstream, upstream)
                self._end_link(key, cleans_up=is_other and runner.upstream.cleans_up)
        for key, upstream in wanted.items():
            self._start(key, upstream)

    def _wanted(self, vhost: Vhost) -> dict[LinkKey, Upstream]:
        """Return the links that a vhost should have."""
        names = self._upstreams.get(vhost.name, [])
        policies = self._definitions.policies.all(vhost.name)
        if not names or not any(_is_federating(value) for _, _, value in policies):
            return {}
        find = partial(self._parameter, vhost.name)
        found: dict[LinkKey, Upstream] = {}
        for target in [*vhost.exchanges.values(), *vhost.queues.values()]:
            policy = target.combined_policy.definition
            if not any(key in policy for key in POLICY_KEYS) or not _can_be_federated(target):
                continue
            kind = EXCHANGE if isinstance(target, Exchange) else QUEUE
            for upstream in upstreams_of(policy, names, find):
                found[LinkKey(vhost.name, kind, target.name, upstream.name)] = upstream
        return found

    def _parameter(self, vhost: str, component: str, name: str) -> object | None:
        return self._definitions.parameters.get(component, vhost, name)

    def _owner_of(self, key: LinkKey) -> str | None:
        return self._definitions.parameters.owner(UPSTREAM, key.vhost, key.upstream)

    def _start(self, key: LinkKey, upstream: Upstream) -> None:
        runner = _Runner(upstream, self._owner_of(key), self._now_ms())
        self._runners[key] = runner
        try:
            if len(self._runners) > LINKS_MAX:
                raise PreconditionFailedError(f"the node has {LINKS_MAX} federation links already")
            self._make_link(key, runner, link_settings(key, upstream))
        except LeveretError as fault:
            runner.error = str(fault)
            log.warning("federation link '%s' in vhost '%s': %s", key.name, key.vhost, fault)
        self._on_status(key)

    def _make_link(self, key: LinkKey, runner: _Runner, settings: ShovelSettings) -> None:
        # Imported here because few nodes have a link.
        from leveret.federation.exchange_source import LocalExchange, remove_upstream_queue
        from leveret.federation.link import FederationLink
        from leveret.federation.queue_source import LocalQueue

        owner = Owner(runner.owner, self._node.user)
        vhost = self._node.broker.vhost(key.vhost)
        cluster = self._definitions.cluster_name
        local: LocalExchange | LocalQueue
        if key.type == EXCHANGE:
            local = LocalExchange(cluster, key.vhost, key.name, partial(vhost.exchange, key.name))
            check = TargetCheck(self._node.targets, owner)
            uri = settings.src_uris[0]
            name = f"Federation link (upstream: {key.upstream})"
            runner.clean_up = partial(
                remove_upstream_queue, uri, name, check, runner.upstream, local
            )
        else:
            local = LocalQueue(cluster, key.vhost, key.name, partial(vhost.queue, key.name, None))
        link = FederationLink(
            settings,
            owner,
            self._node,
            self._node_name,
            self._now_ms,
            lambda _: self._on_status(key),
            upstream=runner.upstream,
            local=local,
        )
        runner.link = link
        runner.follow = link.on_local_change
        loop = asyncio.get_running_loop()
        before = self._ending.get(key)
        runner.task = loop.create_task(_run(link, before), name=f"federation link {key.name}")

    def _end_link(self, key: LinkKey, *, cleans_up: bool) -> None:
        runner = self._runners.pop(key)
        self._on_event("federation.link.removed", _facts(key))
        if runner.task is None:
            return
        runner.task.cancel()
        clean_up = runner.clean_up if cleans_up else None
        loop = asyncio.get_running_loop()
        # An older link may still delete its queue, which has the name of the queue of this link.
        before = {task for task in (self._ending.get(key), runner.task) if task is not None}
        task = loop.create_task(_finish(key, before, clean_up), name="federation link ends")
        self._ending[key] = task
        task.add_done_callback(partial(self._on_ended, key))

    def _on_ended(self, key: LinkKey, task: asyncio.Task[None]) -> None:
        if self._ending.get(key) is task:
            del self._ending[key]

    def restart(self, vhost: str, id: str) -> None:
        """End a link and start it again. Raise NotFoundError if there is none with this id."""
        for key, runner in self._runners.items():
            if key.vhost == vhost and _id(key) == id:
                self._end_link(key, cleans_up=False)
                self._start(key, runner.upstream)
                return
        raise NotFoundError(f"no federation link '{id}' in vhost '{vhost}'")

    async def stop(self) -> None:
        """End all links. Their queues at the upstreams stay, so that no message is lost."""
        self._is_stopped = True
        for key in list(self._runners):
            self._end_link(key, cleans_up=False)
        if self._ending:
            await asyncio.wait(self._ending.values())

    def all(self, vhost: str | None = None) -> list[LinkStatus]:
        """Return the status of all links, or of those of a vhost, sorted."""
        keys = sorted(key for key in self._runners if vhost in (None, key.vhost))
        return [self._status(key, self._runners[key]) for key in keys]

    def _status(self, key: LinkKey, runner: _Runner) -> LinkStatus:
        link = runner.link
        state = link.state if link is not None else TERMINATED
        return LinkStatus(
            key=key,
            id=_id(key),
            upstream=runner.upstream,
            uri=shown_uri(runner.upstream.uris[0]),
            status=ERROR if state == TERMINATED else state,
            since_ms=link.since_ms if link is not None else runner.since_ms,
            error=link.reason if link is not None else runner.error,
            owner=runner.owner,
            moved=link.moved if link is not None else 0,
        )

    def _on_status(self, key: LinkKey) -> None:
        runner = self._runners.get(key)
        if runner is not None:
            status = self._status(key, runner)
            facts = {**_facts(key), "status": status.status, "uri": status.uri}
            if status.error is not None:
                facts["error"] = status.error
            self._on_event("federation.link.status", facts)


def link_settings(key: LinkKey, upstream: Upstream) -> ShovelSettings:
    """Return the settings of the shovel inside a link. Raise PreconditionFailedError."""
    settings = parse_settings(
        {
            "src-uri": list(upstream.uris),
            "src-queue": upstream.queue or key.name,  # an exchange link has a queue of its own
            "dest-uri": "amqp://",
            "dest-queue" if key.type == QUEUE else "dest-exchange": key.name,
            "dest-predeclared": True,
            "ack-mode": upstream.ack_mode,
            "src-prefetch-count": upstream.prefetch,
            "reconnect-delay": upstream.reconnect_s,
        },
        key.vhost,
    )
    if any(not uri.host for uri in settings.src_uris):
        raise PreconditionFailedError(
            "the address of an upstream needs a host, a user and a password"
        )
    return settings


async def _run(link: ShovelStatus, before: asyncio.Task[None] | None) -> None:
    """Run a link, after an earlier link of the same exchange or queue has ended."""
    try:
        if before is not None:
            await asyncio.wait({before})
        await link.run()
    except Exception:
        text = "federation link '%s' in vhost '%s' stops because of a bug: please report it"
        log.exception(text, link.name, link.vhost)
        link.state = TERMINATED
        link.reason = "internal error: see the log"


async def _finish(
    key: LinkKey, before: set[asyncio.Task[None]], clean_up: Callable[[], Awaitable[None]] | None
) -> None:
    """Wait until a link and older ones have ended, then delete its queue at the upstream."""
    await asyncio.wait(before)
    if clean_up is None:
        return
    try:
        async with asyncio.timeout(CLEAN_UP_S):
            await clean_up()
    except (LeveretError, OSError, TimeoutError) as fault:
        log.warning(
            "the queue of the federation link '%s' in vhost '%s' stays at the upstream '%s': %s",
            key.name,
            key.vhost,
            key.upstream,
            system_reason(fault),
        )


def _is_federating(policy: dict[str, object]) -> bool:
    definition = policy["definition"]
    return isinstance(definition, dict) and any(key in definition for key in POLICY_KEYS)


def _can_be_federated(target: Target) -> bool:
    """Return False for the default exchange, streams, and objects of links themselves."""
    if isinstance(target, Exchange):
        is_able = bool(target.name) and target.kind != FEDERATION_UPSTREAM
        return is_able and _INTERNAL_PURPOSE not in target.arguments
    if not isinstance(target, Queue) or target.settings.kind == _STREAM:
        return False
    return target.owner is None and _INTERNAL_PURPOSE not in target.arguments


def _is_elsewhere(old: Upstream, new: Upstream) -> bool:
    """Return True if the new link cannot use the queue of the old link."""
    places = {shown_uri(uri) for uri in old.uris}
    return old.exchange != new.exchange or places.isdisjoint(map(shown_uri, new.uris))


def _facts(key: LinkKey) -> dict[str, object]:
    return {"type": key.type, key.type: key.name, "vhost": key.vhost, "upstream": key.upstream}


def _id(key: LinkKey) -> str:
    """Return the id that paths name a link by: 8 hexadecimal digits, as in RabbitMQ."""
    return f"{zlib.crc32(repr(tuple(key)).encode()):08x}"


def _do_nothing() -> None:
    """Do nothing: a link without settings follows no changes."""
