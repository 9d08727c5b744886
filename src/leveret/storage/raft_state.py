"""The file `raft`: the state that a member of a cluster must remember besides its log.

    raft   = head and one block (number 0), as every file that is written whole
    block  = version:u32 number:u64 term:u64 vote:u64 losses:u64 may_vote:u8 promised:u64 commit:u64
             cluster_id:text uid:text members:text
    text   = size:u32 octets

`term` to `promised` are the hard state of Raft: a vote or an acknowledgement is sent after the file
is synced. The file is written under another name, synced, and renamed, so it is always whole. A
member whose file is damaged does not start: it could vote twice in one term. Readers skip bytes
after `members`.

The members are bytes that the cluster encodes. Nothing here looks into them.
"""

import struct
from typing import Final

from leveret.errors import CorruptionError, NewerFormatError, StorageError
from leveret.storage.checkpoint import read_whole, write_whole
from leveret.storage.disk import Disk
from leveret.storage.file_names import RAFT

VERSION: Final = 1
UNKNOWN_PROMISE: Final = 0x3FFF_FFFF_FFFF_FFFF  # more than any block: nobody knows the promise

_FILE: Final = 0  # the number in the head
_FIXED: Final = struct.Struct(">IQQQQBQQ")
_SIZE_BYTES: Final = 4
_ADVICE: Final = "remove this node from its cluster and let it join again with an empty directory"


class RaftState:
    """Identity and hard state of a member, as the file `raft` holds them."""

    def __init__(self, cluster_id: str, number: int, uid: str) -> None:
        self.cluster_id = cluster_id
        self.number = number  # of this member; 0: it has none yet
        self.uid = uid  # of the data directory
        self.term = 0
        self.vote = 0  # number of the member that got the vote in this term; 0: nobody
        self.losses = 0  # how often this member has lost blocks that it may have acknowledged
        self.may_vote = True
        self.promised_index = UNKNOWN_PROMISE  # the last block that it may have acknowledged
        self.commit = 0  # a block that is known to be committed; the newest may be later
        self.members = b""  # the members when the file was written

    def copy(self) -> "RaftState":
        made = RaftState(self.cluster_id, self.number, self.uid)
        made.term = self.term
        made.vote = self.vote
        made.losses = self.losses
        made.may_vote = self.may_vote
        made.promised_index = self.promised_index
        made.commit = self.commit
        made.members = self.members
        return made

    def note_loss(self) -> None:
        """Note that blocks are lost which this member may have acknowledged."""
        self.losses += 1
        self.may_vote = False
        self.promised_index = UNKNOWN_PROMISE


def write_raft_state(disk: Disk, state: RaftState) -> None:
    """Write the file, and sync it."""
    fixed = _FIXED.pack(
        VERSION,
        state.number,
        state.term,
        state.vote,
        state.losses,
        state.may_vote,
        state.promised_index,
        state.commit,
    )
    texts = (state.cluster_id.encode(), state.uid.encode(), state.members)
    pieces = [fixed]
    for text in texts:
        pieces += [len(text).to_bytes(_SIZE_BYTES, "big"), text]
    write_whole(disk, RAFT, _FILE, pieces)


def read_raft_state(disk: Disk) -> RaftState | None:
    """Return the state in the file, or None if this node was never a member of a cluster.

    The file is synced before this returns. A killed node may have renamed the file without a sync,
    and a power loss would then take back a vote that is in it.

    Raise NewerFormatError or CorruptionError if the file cannot be used.
    """
    if RAFT not in disk.names():
        return None
    disk.sync_folder()
    try:
        content = read_whole(disk, RAFT, _FILE)
    except CorruptionError:
        content = None
    if content is None or len(content) < _FIXED.size:
        raise CorruptionError(f"the file {RAFT} is damaged: {_ADVICE}")
    version = int.from_bytes(content[:4], "big")
    if version > VERSION:
        raise NewerFormatError(
            f"the file {RAFT} has format {version}; this version reads up to {VERSION}"
        )
    _, number, term, vote, losses, may_vote, promised, commit = _FIXED.unpack_from(content)
    cluster_id, at = _text(content, _FIXED.size)
    uid, at = _text(content, at)
    members, _ = _text(content, at)
    state = RaftState(cluster_id.decode("utf-8", "replace"), number, uid.decode("utf-8", "replace"))
    state.term = term
    state.vote = vote
    state.losses = losses
    state.may_vote = bool(may_vote)
    state.promised_index = promised
    state.commit = commit
    state.members = members
    return state


def require_no_member(disk: Disk) -> None:
    """Raise StorageError if the directory belongs to a member of a cluster.

    A node that writes without the other members loses the list of members, which is in the log. As
    a member it could then lead alone, and replace blocks on which the others have agreed.
    """
    state = read_raft_state(disk)
    if state is not None and state.cluster_id:
        raise StorageError(
            f"the directory belongs to a node of cluster {state.cluster_id}: start it with the "
            "--cluster options of that node; then it also gets damaged blocks from the other "
            "nodes; if the other nodes are lost, run `leveret ctl cluster rescue`; to leave the "
            "cluster, restore a backup into another directory"
        )


def _text(content: bytes, at: int) -> tuple[bytes, int]:
    """Return the text at an offset, and its end."""
    start = at + _SIZE_BYTES
    end = start + int.from_bytes(content[at:start], "big")
    if end > len(content) or start > len(content):
        raise CorruptionError(f"the file {RAFT} is cut short: {_ADVICE}")
    return content[start:end], end
