"""Publishers and consumers over sockets: they find the leader, and repeat unanswered requests.

A client talks to the node that it believes to lead, learns the leader from refusals, and tries the
next node when no answer comes. It ignores leaders of older terms than it has heard, except for
their confirms, which stay valid for ever.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from tests.cluster.process.ledger import Ledger
from tools.ports import HOST

ANSWER_S: Final = 0.6  # then it is said again, elsewhere
CONNECT_S: Final = 1.0
WAIT_S: Final = 0.05
PACE_S: Final = 0.02
LINE_BYTES_MAX: Final = 4 * 1024 * 1024

Told = dict[str, Any]


class Client:
    """Someone who talks to the leader of one group."""

    def __init__(self, ports: dict[int, int], number: int, ledger: Ledger, group: int = 1) -> None:
        self.ports = ports  # of the nodes, for clients
        self.number = number
        self.ledger = ledger
        self.group = group
        self.node = min(ports)
        self.term = 0
        self._writer: asyncio.StreamWriter | None = None

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                async with asyncio.timeout(CONNECT_S):
                    reader, writer = await asyncio.open_connection(
                        HOST, self.ports[self.node], limit=LINE_BYTES_MAX
                    )
            except OSError:
                await self._go_on()
                continue
            self._writer = writer
            try:
                self.on_connected()
                await self._listen(reader)
            finally:
                self._writer = None
                writer.close()

    async def _go_on(self) -> None:
        """To the next node."""
        numbers = sorted(self.ports)
        self.node = numbers[(numbers.index(self.node) + 1) % len(numbers)]
        await asyncio.sleep(WAIT_S)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                async with asyncio.timeout(ANSWER_S):
                    line = await reader.readline()
            except TimeoutError:
                if self.is_waiting():
                    return await self._go_on()
                self.on_idle()
                continue
            except OSError:
                line = b""
            if not line:
                return await self._go_on()
            told = json.loads(line)
            if "refused" in told:
                if await self._on_refused(told["leader"]):
                    return None
            elif "confirm" in told or told.get("term", 0) >= self.term:
                self.term = max(self.term, told.get("term", 0))
                self.on_told(told)

    async def _on_refused(self, leader: int) -> bool:
        """Whether another node is to be asked."""
        if leader in self.ports and leader != self.node:
            self.node = leader
            return True
        if leader == 0:
            await self._go_on()
            return True
        await asyncio.sleep(WAIT_S)
        self.on_connected()
        return False

    def ask(self, request: Told) -> None:
        if self._writer is not None:
            request = {"group": self.group, "actor": self.number, **request}
            self._writer.write(json.dumps(request).encode() + b"\n")

    def on_connected(self) -> None:
        raise NotImplementedError

    def on_told(self, told: Told) -> None:
        raise NotImplementedError

    def is_waiting(self) -> bool:
        """Whether an answer is due."""
        raise NotImplementedError

    def on_idle(self) -> None:
        """Nothing came, and nothing had to."""


class Publisher(Client):
    """Numbers its messages and keeps those that are not confirmed."""

    def __init__(
        self, ports: dict[int, int], number: int, ledger: Ledger, group: int = 1, window: int = 10
    ) -> None:
        super().__init__(ports, number, ledger, group)
        self._window = window
        self._next_seq = 1
        self._unconfirmed: dict[int, str] = {}
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self.body_bytes = 0

    async def produce(self) -> None:
        """New messages at some pace, until it is cancelled."""
        while True:
            if len(self._unconfirmed) < self._window:
                self._send([self._new() for _ in range(self._window // 2)])
            await asyncio.sleep(PACE_S)

    async def publish(self, count: int = 1) -> None:
        """These, and wait for their confirms."""
        seqs = [self._new() for _ in range(count)]
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[seqs[-1]] = future
        self._send(seqs)
        await future

    async def drain(self) -> None:
        """Wait until everything is confirmed."""
        while self._unconfirmed:
            self.ledger.changed.clear()
            await self.ledger.changed.wait()

    def _new(self) -> int:
        seq = self._next_seq
        self._next_seq += 1
        self._unconfirmed[seq] = f"{self.number}:{seq} ".ljust(self.body_bytes, "x")
        return seq

    def _send(self, seqs: list[int]) -> None:
        if seqs:
            items = [[seq, self._unconfirmed[seq]] for seq in seqs]
            self.ask({"do": "enqueue", "items": items})

    def on_connected(self) -> None:
        self._send(sorted(self._unconfirmed))

    def on_told(self, told: Told) -> None:
        if "confirm" in told:
            seq = told["confirm"]
            self._unconfirmed.pop(seq, None)
            self.ledger.on_confirmed(self.number, seq)
            future = self._waiting.pop(seq, None)
            if future is not None and not future.done():
                future.set_result(None)
        elif "expected" in told:
            self._send(sorted(seq for seq in self._unconfirmed if seq >= told["expected"]))

    def is_waiting(self) -> bool:
        return bool(self._unconfirmed)


class Consumer(Client):
    """Takes messages, and settles each until that is acknowledged."""

    def __init__(self, ports: dict[int, int], number: int, ledger: Ledger) -> None:
        super().__init__(ports, number, ledger)
        self._is_attached = False
        self._unsettled: dict[int, int] = {}  # tag to index
        self._due: list[int] = []
        self._taken: set[int] = set()
        self.bodies_bytes = 0

    async def settle(self) -> None:
        """What has come, at some pace, until it is cancelled."""
        while True:
            if self._due:
                self.ask({"do": "settle", "tags": self._due})
                self._due = []
            await asyncio.sleep(PACE_S / 2)

    async def drain(self) -> None:
        """Wait until all that was confirmed is settled."""
        while self._unsettled or self.ledger.lost():
            self.ledger.changed.clear()
            await self.ledger.changed.wait()

    def on_connected(self) -> None:
        self._is_attached = False
        self.ask({"do": "attach", "prefetch": 100})

    def on_told(self, told: Told) -> None:
        if "attached" in told:
            self._is_attached = True
            self._due = sorted(self._unsettled)
        elif "deliver" in told:
            self._on_delivered(told["deliver"], told["index"], told)
        elif "settled" in told:
            tag, index = told["settled"], told["index"]
            self._taken.add(tag)
            if self._unsettled.pop(tag, None) is not None and index:
                self.ledger.on_settled(index)
            self.ledger.changed.set()

    def _on_delivered(self, tag: int, index: int, told: Told) -> None:
        publisher, _, seq = told["body"].partition(" ")[0].partition(":")
        self.ledger.on_delivered(int(publisher), int(seq), index)
        if tag not in self._taken and tag not in self._unsettled:
            self.bodies_bytes += told["size"]
            self._unsettled[tag] = index
            self._due.append(tag)

    def is_waiting(self) -> bool:
        return not self._is_attached or bool(self._unsettled)

    def on_idle(self) -> None:
        self.on_connected()  # whoever leads no more does not answer this
