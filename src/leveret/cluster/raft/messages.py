"""Messages between the members of a group.

Every message has a kind, a sender, a receiver, the group, and the sender's term (for PRE_VOTE the
term of the coming election). The other fields mean:

    kind             index               log_term       commit    hint         context
    PRE_VOTE         last of candidate   of that                               1: forced
    VOTE             last of candidate   of that                               1: forced
    …VOTE_REPLY                                                                1: granted
    APPEND           entry before        of that        leader's
    APPEND_REPLY     last that matches
    APPEND_REFUSAL   entry before        term at hint             where to try
    HEARTBEAT                                           receiver's             round of reads
    HEARTBEAT_REPLY                                                            round of reads
    SNAPSHOT         of the snapshot     of that        total     offset
    SNAPSHOT_REPLY   of the snapshot     of that                  next offset
    TIMEOUT_NOW
    READ                                                                       the reader's number
    READ_REPLY       may be read up to                                         the reader's number
    COMMIT                                              receiver's
    SLEEP            last of leader      of that                  round        its incarnation
    SLEEP_REPLY                                                   round        1: granted
    WAKE
    NODE_HEARTBEAT   its incarnation                                           count

`commit` of a HEARTBEAT or COMMIT is never beyond the receiver's known `match`. NODE_HEARTBEAT goes
between nodes and belongs to no group. `entries` belong to APPEND and follow `index`; `data` is a
chunk of a SNAPSHOT.
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.entry import Entry

PRE_VOTE: Final = 1
PRE_VOTE_REPLY: Final = 2
VOTE: Final = 3
VOTE_REPLY: Final = 4
APPEND: Final = 5
APPEND_REPLY: Final = 6
APPEND_REFUSAL: Final = 7
HEARTBEAT: Final = 8
HEARTBEAT_REPLY: Final = 9
SNAPSHOT: Final = 10
SNAPSHOT_REPLY: Final = 11
TIMEOUT_NOW: Final = 12
READ: Final = 13
READ_REPLY: Final = 14
COMMIT: Final = 15
SLEEP: Final = 16
SLEEP_REPLY: Final = 17
WAKE: Final = 18
NODE_HEARTBEAT: Final = 19

KIND_MAX: Final = NODE_HEARTBEAT

NAMES: Final = (
    "",
    "pre-vote",
    "pre-vote reply",
    "vote",
    "vote reply",
    "append",
    "append reply",
    "append refusal",
    "heartbeat",
    "heartbeat reply",
    "snapshot",
    "snapshot reply",
    "timeout now",
    "read",
    "read reply",
    "commit",
    "sleep",
    "sleep reply",
    "wake",
    "node heartbeat",
)

REFUSED: Final = 0
GRANTED: Final = 1
FORCED: Final = 1

_NO_ENTRIES: Final[list[Entry]] = []


def is_of_leader(kind: i64) -> bool:
    """Return True if only a leader sends messages of this kind."""
    return (
        kind == APPEND or kind == COMMIT or kind == HEARTBEAT or kind == SNAPSHOT or kind == SLEEP
    )


def is_reply(kind: i64) -> bool:
    """Return True if messages of this kind only answer, and expect no answer."""
    return (
        kind == APPEND_REPLY
        or kind == HEARTBEAT_REPLY
        or kind == SLEEP_REPLY
        or kind == PRE_VOTE_REPLY
        or kind == VOTE_REPLY
        or kind == APPEND_REFUSAL
        or kind == SNAPSHOT_REPLY
        or kind == READ_REPLY
    )


class Message:
    """One message; fields that its kind does not use are 0 or empty."""

    def __init__(self, kind: i64, source: i64, target: i64, group: i64, term: i64) -> None:
        self.kind: i64 = kind
        self.source: i64 = source
        self.target: i64 = target
        self.group: i64 = group
        self.term: i64 = term
        self.index: i64 = 0
        self.log_term: i64 = 0
        self.commit: i64 = 0
        self.hint: i64 = 0
        self.context: i64 = 0
        self.entries = _NO_ENTRIES
        self.data = b""
