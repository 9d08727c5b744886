"""A node of a cluster as a process, with a port for clients that speaks lines of JSON.

    python -m tests.cluster.process.node --node 1 --data DIR --peer 2=127.0.0.1:5002 …

A request names what to `do`, and the `group`. Publishes are answered by confirms, and verdicts by
settled, each after it is committed and applied. A request that only the leader can serve is refused
with the number of the leader. Watchers are told of every change of a role.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import sys
import time
from pathlib import Path
from random import Random
from typing import Any, Final

from leveret.clock import Clock
from leveret.cluster.commands import SETTLE, body_of, encode_attach, encode_enqueue, encode_verdict
from leveret.cluster.errors import (
    BusyError,
    ClusterError,
    NotLeaderError,
)
from leveret.cluster.group import Group
from leveret.cluster.handshake import BULK, Identity
from leveret.cluster.host import Host
from leveret.cluster.incarnation import next_incarnation
from leveret.cluster.links import PACE, Address, Links, Pace, Tls
from leveret.cluster.machine import CONFIRM, DELIVER, OUT_OF_SEQUENCE, SETTLED, Effect, Machine
from leveret.cluster.node import ClusterNode
from leveret.cluster.raft.entry import Members
from leveret.cluster.raft.messages import Message
from leveret.cluster.raft.state import LEADER, ROLE_NAMES
from leveret.cluster.store.files import Files
from leveret.cluster.store.store import Store
from leveret.cluster.turn import Outcome
from leveret.errors import (
    ClosedError,
)
from leveret.runtime.loop import loop_factory
from leveret.storage.disk import Disk

HOST: Final = "127.0.0.1"
LINE_BYTES_MAX: Final = 16 * 1024 * 1024
READ_S: Final = 5.0
COMPACT_S: Final = 0.2
INSIDE: Final = 1_000_000  # the number of the publisher inside of a node
FAILED: Final = 70  # the exit code of a node that cannot go on

Told = dict[str, Any]


class Session:
    """One client."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def tell(self, told: Told) -> None:
        if not self._writer.is_closing():
            self._writer.write(json.dumps(told).encode() + b"\n")

    def close(self) -> None:
        self._writer.close()


class Inside:
    """A publisher inside of the node: what it costs to be asked is not measured with it."""

    def __init__(self, node: ClusterNode, session: Session, request: Told) -> None:
        self._node = node
        self._session = session
        self._group: int = request["group"]
        self._batch: int = request["batch"]
        self._left: int = request["count"]
        self._seq: int = request["first"]
        self._body = bytes(request["bytes"])
        self._due = 0
        self._is_over = False
        self._begun_s = time.monotonic()

    def go_on(self) -> None:
        """Propose the next batch, when the one before is applied."""
        if self._due or self._is_over:
            return
        if self._left == 0:
            self._session.tell({"answer": {"wall_s": time.monotonic() - self._begun_s}})
            self._is_over = True
            return
        self._due = min(self._batch, self._left)
        self._left -= self._due
        seqs = range(self._seq, self._seq + self._due)
        self._seq = seqs.stop
        commands = [encode_enqueue(1, INSIDE, seq, 0, self._body) for seq in seqs]
        self._node.propose(self._group, commands)

    def on_outcome(self, outcome: Outcome) -> None:
        self._due -= len(outcome.effects)  # confirms: nobody else publishes or consumes
        self.go_on()


class Program:
    """The groups of this process, and its clients."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._clock = Clock()
        disk = Disk(arguments.data)
        disk.prepare()
        self._store = Store.open(Files(disk), arguments.node)
        incarnation = next_incarnation(disk, self._clock.now_ms())
        chance = Random(arguments.node * 1_000_003 + incarnation)
        self._host = Host(arguments.node, incarnation, chance.randrange(2**30))
        me = Identity(arguments.node, "test", arguments.secret.encode(), incarnation)
        pace = Pace(watch_s=arguments.silent_s / 4, silent_s=arguments.silent_s)
        self._links = Links(me, self._on_messages, chance=chance, tls=tls_of(arguments), pace=pace)
        self.node = ClusterNode(
            self._host,
            self._store,
            self._links,
            self._on_outcomes,
            tick_s=arguments.tick_ms / 1000,
        )
        self._actors: dict[tuple[int, int], Session] = {}  # who publishes or consumes, by group
        self._sessions: set[Session] = set()
        self._watchers: list[Session] = []
        self._inside: Inside | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # Life

    async def run(self) -> None:
        arguments = self._arguments
        self._add_groups()
        await self._links.start(HOST, arguments.listen)
        for number, address in arguments.peer:
            self._links.add_peer(number, address)
        self.node.start()
        if arguments.snapshot_every:
            self._compact()
        server = await asyncio.start_server(
            self._serve, HOST, arguments.client, limit=LINE_BYTES_MAX
        )
        loop = asyncio.get_running_loop()
        stopped: asyncio.Future[None] = loop.create_future()
        loop.add_signal_handler(signal.SIGTERM, stopped.set_result, None)
        port = server.sockets[0].getsockname()[1]
        print(f"ready client={port} listen={self._links.port}", flush=True)
        await asyncio.wait([stopped, self.node.ended], return_when=asyncio.FIRST_COMPLETED)
        if self.node.ended.done():
            os._exit(FAILED)
        server.close()
        for session in self._sessions:
            session.close()
        await self.node.stop()

    def _add_groups(self) -> None:
        arguments = self._arguments
        found = self._store.groups()
        first = [] if arguments.join else sorted(arguments.voters)
        for number in range(1, arguments.groups + 1):
            config = self._host.config.group(arguments.node, number)
            config.trailing = arguments.trailing
            stored = found.get(number)
            if stored is None:
                self.node.add_group(number, Members(first, []), Machine(), config)
            else:
                self._host.add_group(number, stored, Machine(), config)

    def _on_messages(self, messages: list[Message], size_bytes: int) -> None:
        self.node.on_messages(messages, size_bytes)

    # Outcomes

    def _on_outcomes(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.is_changed:
                for watcher in self._watchers:
                    watcher.tell({"role": role_of(outcome), "group": int(outcome.group)})
            if self._inside is not None:
                self._inside.on_outcome(outcome)
                continue
            for effect in outcome.effects:
                self._perform(int(outcome.group), int(outcome.term), effect)

    def _perform(self, group: int, term: int, effect: Effect) -> None:
        session = self._actors.get((group, effect.target))
        if session is None:
            return
        told: Told = {"group": group, "term": term, "actor": effect.target}
        if effect.kind == CONFIRM:
            session.tell({**told, "confirm": effect.number})
        elif effect.kind == OUT_OF_SEQUENCE:
            session.tell({**told, "expected": effect.number})
        elif effect.kind == SETTLED:
            session.tell({**told, "settled": effect.number, "index": effect.index})
        elif effect.kind == DELIVER:
            self._deliver(session, told, effect.index, effect.number)

    def _deliver(self, session: Session, told: Told, index: int, tag: int) -> None:
        entry = self._host.entry(told["group"], index)
        assert entry is not None, "a message whose body is gone"
        body = body_of(entry.data)
        session.tell(
            {**told, "deliver": tag, "index": index, "body": body[:40].decode(), "size": len(body)}
        )

    def _compact(self) -> None:
        """Snapshots of groups whose logs have grown, now and then."""
        asyncio.get_running_loop().call_later(COMPACT_S, self._compact)
        every = self._arguments.snapshot_every
        for number, found in self._host.groups.items():
            raft = found.raft
            begun = 0 if raft.log.snapshot is None else raft.log.snapshot.index
            if raft.applied - begun >= every:
                with contextlib.suppress(BusyError):
                    self._host.compact(number)
        self.node.soon()

    # Clients

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = Session(writer)
        self._sessions.add(session)
        try:
            while line := await reader.readline():
                self._handle(session, json.loads(line))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._forget(session)
            session.close()

    def _forget(self, session: Session) -> None:
        self._sessions.discard(session)
        if session in self._watchers:
            self._watchers.remove(session)
        for actor in [actor for actor, found in self._actors.items() if found is session]:
            del self._actors[actor]

    def _handle(self, session: Session, request: Told) -> None:
        do = getattr(self, f"_do_{request['do']}")
        try:
            do(session, request.get("group", 1), request)
        except NotLeaderError as error:
            session.tell({"refused": request, "leader": error.leader, "why": str(error)})
        except (ClusterError, ClosedError) as error:
            session.tell({"refused": request, "leader": -1, "why": str(error)})

    def _do_enqueue(self, session: Session, group: int, request: Told) -> None:
        actor = request["actor"]
        self._actors[group, actor] = session
        now_ms = self._clock.now_ms()
        commands = [
            encode_enqueue(now_ms, actor, seq, 0, body.encode()) for seq, body in request["items"]
        ]
        self.node.propose(group, commands)

    def _do_attach(self, session: Session, group: int, request: Told) -> None:
        actor = request["actor"]
        command = encode_attach(self._clock.now_ms(), actor, actor, request["prefetch"])
        self.node.propose(group, [command])
        self._actors.pop((group, actor), None)
        self._later(self._attach(session, group, actor))

    async def _attach(self, session: Session, group: int, actor: int) -> None:
        """Deliver what a consumer holds, as of a moment at which this node leads; then go on."""
        try:
            await self.node.read(group, READ_S)
        except (ClusterError, ClosedError, TimeoutError):
            return
        found = self._host.groups[group]
        consumer = found.machine.contents.consumers.get(actor)
        if consumer is None or found.raft.role != LEADER:
            return
        self._actors[group, actor] = session
        told: Told = {"group": group, "term": int(found.raft.term), "actor": actor}
        session.tell({**told, "attached": actor})
        for tag, held in consumer.held.items():
            self._deliver(session, told, held.index, tag)

    def _do_settle(self, session: Session, group: int, request: Told) -> None:
        command = encode_verdict(SETTLE, self._clock.now_ms(), request["actor"], request["tags"])
        self.node.propose(group, [command])

    def _do_read(self, session: Session, group: int, request: Told) -> None:
        self._later(self._read(session, group, request))

    async def _read(self, session: Session, group: int, request: Told) -> None:
        try:
            await self.node.read(group, READ_S)
        except (ClusterError, ClosedError, TimeoutError) as error:
            session.tell({"refused": request, "leader": 0, "why": str(error) or "no answer"})
            return
        session.tell({"answer": state_of(self._host.groups[group])})

    def _do_status(self, session: Session, group: int, request: Told) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        session.tell(
            {
                "answer": state_of(self._host.groups[group]),
                "cpu_s": used.ru_utime + used.ru_stime,
                "turns": self.node.turns,
                "syncs": self.node.syncs,
                "dropped": self._links.dropped,
                "bulk_bytes": sum(f.sent_bytes for f in self._links.facts() if f.purpose == BULK),
                "connected": sorted({fact.peer for fact in self._links.facts()}),
                "awake": int(self._host.awake_count()),
                "leads": sum(found.raft.role == LEADER for found in self._host.groups.values()),
            }
        )

    def _do_watch(self, session: Session, group: int, request: Told) -> None:
        self._watchers.append(session)
        for number, found in self._host.groups.items():
            raft = found.raft
            role = [int(raft.term), ROLE_NAMES[raft.role], int(raft.leader)]
            session.tell({"role": role, "group": number})

    def _do_change(self, session: Session, group: int, request: Told) -> None:
        """A change of the members, a handover, or a snapshot."""
        change = getattr(self._host, request["change"])
        index = change(group, *request["arguments"])
        self.node.soon()
        session.tell({"answer": {"index": index}})

    def _do_load(self, session: Session, group: int, request: Told) -> None:
        self._inside = Inside(self.node, session, request)
        self._inside.go_on()

    def _do_peer(self, session: Session, group: int, request: Told) -> None:
        self._links.add_peer(request["node"], Address(HOST, request["port"]))
        session.tell({"answer": {}})

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def role_of(outcome: Outcome) -> list[Any]:
    return [int(outcome.term), ROLE_NAMES[outcome.role], int(outcome.leader)]


def state_of(found: Group) -> Told:
    raft, contents = found.raft, found.machine.contents
    members = raft.log.members()
    return {
        "role": ROLE_NAMES[raft.role],
        "term": int(raft.term),
        "leader": int(raft.leader),
        "last": int(raft.log.last_index()),
        "commit": int(raft.commit),
        "applied": int(raft.applied),
        "base": int(raft.log.base_index),
        "voters": members.voters,
        "non_voters": members.non_voters,
        "messages": len(contents.messages),
        "ready": int(found.machine.ready_count()),
        "publishers": {str(number): seq for number, seq in contents.publishers.items()},
    }


def tls_of(arguments: argparse.Namespace) -> Tls | None:
    if arguments.cert is None:
        return None
    # Half of the imports of this program, which it seldom needs
    from leveret.config.settings import Settings
    from leveret.runtime.certificates import Certificates

    settings = Settings(tls_cert=arguments.cert, tls_key=arguments.key, tls_ca=arguments.ca)
    certificates = Certificates(settings)
    return Tls(certificates.links, certificates.dialing)


def peer_of(text: str) -> tuple[int, Address]:
    number, _, rest = text.partition("=")
    host, _, port = rest.rpartition(":")
    return int(number), Address(host, int(port))


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--node", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--listen", type=int, default=0)
    parser.add_argument("--client", type=int, default=0)
    parser.add_argument("--peer", type=peer_of, action="append", default=[])
    parser.add_argument("--voters", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--join", action="store_true", help="begin with no members, and be told")
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--secret", default="a secret for tests only")
    parser.add_argument("--tick-ms", type=int, default=100)
    parser.add_argument("--silent-s", type=float, default=PACE.silent_s)
    parser.add_argument("--snapshot-every", type=int, default=0)
    parser.add_argument("--trailing", type=int, default=1000)
    for name in ("--cert", "--key", "--ca"):
        parser.add_argument(name, type=Path)
    return parser.parse_args(words)


def main() -> None:
    arguments = parsed()
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format=f"%(asctime)s node {arguments.node} %(levelname)s %(message)s",
    )
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(arguments))


async def run(arguments: argparse.Namespace) -> None:
    await Program(arguments).run()


if __name__ == "__main__":
    main()
