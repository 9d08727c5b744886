"""Turn the directory of a stopped node into a cluster of one node, after the majority is lost.

The other members are taken out of the list of members, and the cluster gets a new id, so that an
old member that comes back is refused. The id is written first: a rescue that was interrupted leaves
a node that cannot lead, and can be repeated.
"""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leveret.cluster.handshake import CLUSTER_BYTES
from leveret.cluster.raft.members import Member, Members, decode_members, encode_members
from leveret.errors import StorageError
from leveret.journal.records import MEMBERS_BLOCK
from leveret.storage.block_scan import BlockScan, scan_blocks
from leveret.storage.directory_copy import finish_install
from leveret.storage.disk import Disk
from leveret.storage.follower_log import open_follower
from leveret.storage.raft_state import RaftState, read_raft_state, write_raft_state

WRITE_S: Final = 60.0  # for one small block; then the disk hangs


@dataclass(frozen=True)
class RescueReport:
    """The contents of a data directory, to decide whether to rescue it."""

    node: str
    cluster: str  # id before the rescue
    others: list[str]  # members that are taken out of the list
    last_block: int
    last_term: int
    last_ms: int  # time of the last block
    lost: str  # why blocks are known to be missing; empty: they are not


class Rescue:
    """The rescue of one directory, which stays locked until `close`."""

    def __init__(self, folder: Path) -> None:
        """Lock and read the directory. Raises OSError and LeveretError."""
        if not folder.is_dir():
            raise FileNotFoundError(2, "no such directory", str(folder))
        self._disk = Disk(folder)
        self._disk.prepare()
        try:
            state = read_raft_state(self._disk)
            if state is None or not state.cluster_id:
                raise StorageError(f"{folder} belongs to no cluster, so there is nothing to rescue")
            self._state: RaftState = state
            finish_install(self._disk, state)
            self._scan: BlockScan = scan_blocks(self._disk, state.commit)
            if self._scan.needs_copy or not self._scan.last_index:
                raise StorageError(
                    f"{folder} cannot be rescued: {self._scan.lost or 'it has no blocks'}: use the "
                    "directory of another node, or a backup"
                )
            self._me, self._others = self._read_members()
        except BaseException:
            self._disk.release()
            raise
        self.report = RescueReport(
            node=self._me.name,
            cluster=state.cluster_id,
            others=[member.name for member in self._others],
            last_block=self._scan.last_index,
            last_term=self._scan.terms[-1][0],
            last_ms=self._scan.last_ms,
            lost=self._scan.lost,
        )

    def _read_members(self) -> tuple[Member, list[Member]]:
        encoded = [data for _, data in self._scan.members if data] or [self._state.members]
        known = [decode_members(data) for data in encoded if data]
        me = next((m.members[self._state.number] for m in known if m.has(self._state.number)), None)
        if me is None:
            raise StorageError("this node was removed from its cluster, so it cannot be rescued")
        self._next_number = max(int(members.next_number) for members in known)
        others = known[-1].members.values()
        return me, [member for member in others if member.number != me.number]

    def close(self) -> None:
        self._disk.release()

    def run(self) -> str:
        """Make a cluster of one; return its id. Raises OSError and LeveretError."""
        state = self._state
        state.cluster_id = secrets.token_hex(CLUSTER_BYTES)
        state.vote = 0
        state.may_vote = True  # nobody is left who could give lost blocks back
        members = encode_members(Members([self._me], [], self._next_number))
        state.members = members
        state.commit = min(state.commit, self._scan.last_index)
        write_raft_state(self._disk, state)
        asyncio.run(self._write_members(members))
        return state.cluster_id

    async def _write_members(self, members: bytes) -> None:
        """Write the new list of members behind the last block."""
        loop = asyncio.get_running_loop()
        written = loop.create_future()
        log, scan = open_follower(self._disk, loop, self._state)
        log.on_fault = written.set_exception
        log.on_full = written.set_exception
        try:
            index, term = scan.last_index + 1, scan.terms[-1][0]
            block = log.make_block(index, term, MEMBERS_BLOCK, members)
            done: Callable[[], None] = lambda: written.set_result(None)  # noqa: E731
            log.write(None, 0, [(index, term, MEMBERS_BLOCK, block)], done)
            async with asyncio.timeout(WRITE_S):
                await written
        except TimeoutError:
            raise StorageError(f"the disk has not synced within {WRITE_S:.0f} s") from None
        finally:
            log.close()
