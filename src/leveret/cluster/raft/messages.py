"""Messages between the members of a cluster.

Every message has a kind, a sender, a receiver, and the sender's term (for PRE_VOTE the term of the
coming election). The other fields mean:

    kind             index               log_term      commit      hint          context
    PRE_VOTE         last of candidate   of that
    VOTE             last of candidate   of that                                 1: forced
    …VOTE_REPLY                                                                  1: granted
    APPEND           block before        of that       leader's
    APPEND_REPLY     last that matches                                           losses of sender
    APPEND_REFUSAL   block before        term at hint  1: copy     where to try  losses of sender
    HEARTBEAT        last of leader                    receiver's                losses of receiver
    HEARTBEAT_REPLY                                                1, 2 (below)  losses of sender
    TIMEOUT_NOW
    COMMIT                                             receiver's

`commit` of a HEARTBEAT or COMMIT is never beyond the receiver's known `match`. `commit` 1 of an
APPEND_REFUSAL says that only a copy of the directory helps. Losses count how often a member has
lost blocks that it may have acknowledged; HEARTBEAT repeats the count that the leader has heard.
`blocks` belong to APPEND and follow `index`. `hint` of a HEARTBEAT_REPLY says that the sender is
drained (1), or receives a large message of the leader, behind which a heartbeat waits (2).
"""

from typing import Final

from mypy_extensions import i64

from leveret.cluster.raft.block import Block

PRE_VOTE: Final = 1
PRE_VOTE_REPLY: Final = 2
VOTE: Final = 3
VOTE_REPLY: Final = 4
APPEND: Final = 5
APPEND_REPLY: Final = 6
APPEND_REFUSAL: Final = 7
HEARTBEAT: Final = 8
HEARTBEAT_REPLY: Final = 9
TIMEOUT_NOW: Final = 10
COMMIT: Final = 11

KIND_MAX: Final = COMMIT

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
    "timeout now",
    "commit",
)

REFUSED: Final = 0
GRANTED: Final = 1
FORCED: Final = 1
NEEDS_COPY: Final = 1
DRAINED: Final = 1
RECEIVING: Final = 2  # a large message: heartbeats wait behind it

_NO_BLOCKS: Final[list[Block]] = []


def is_of_leader(kind: i64) -> bool:
    """Return True if only a leader sends messages of this kind."""
    return kind == APPEND or kind == COMMIT or kind == HEARTBEAT


class Message:
    """One message; fields that its kind does not use are 0 or empty."""

    def __init__(self, kind: i64, source: i64, target: i64, term: i64) -> None:
        self.kind: i64 = kind
        self.source: i64 = source
        self.target: i64 = target
        self.term: i64 = term
        self.index: i64 = 0
        self.log_term: i64 = 0
        self.commit: i64 = 0
        self.hint: i64 = 0
        self.context: i64 = 0
        self.blocks = _NO_BLOCKS
