"""Counts of messages that left their queue other than by an ack, by reason.

The turn has the counts of the node. A queue gets its own counts with the first such message. A
message that is delivered and acknowledged touches nothing here.
"""

from typing import Final

from mypy_extensions import i64

# Reasons for a drop, besides the reasons for which a message leaves its queue (`turn`).
PUBLISH_REFUSED: Final = "refused"  # the queue was full; a publisher with confirms gets a nack
UNROUTED_DEATH: Final = "dead_letter_unroutable"  # the dead-letter exchange led to no queue
CYCLE: Final = "dead_letter_cycle"  # it would only come back to the queue in which it died
CHAIN: Final = "dead_letter_chain"  # too many deaths or copies without a consumer in between
UNREAD_REPLY: Final = "reply_unread"  # a direct reply to a requester that does not read

# Dead-letter strategies of a queue, in RabbitMQ's words.
DISABLED: Final = "disabled"
AT_MOST_ONCE: Final = "at_most_once"
AT_LEAST_ONCE: Final = "at_least_once"


class LossCounts:
    """Counts of one queue, or of the node."""

    def __init__(self) -> None:
        self.dropped: dict[str, int] = {}  # by reason
        self.dead_lettered: dict[str, int] = {}  # by reason
        self.parked: i64 = 0
        self.timed_out: i64 = 0  # taken back because the holder kept it too long

    def note_dropped(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def note_dead_lettered(self, reason: str) -> None:
        self.dead_lettered[reason] = self.dead_lettered.get(reason, 0) + 1


class NodeLossCounts(LossCounts):
    """Counts of the node, with the distinctions that RabbitMQ makes."""

    def __init__(self) -> None:
        super().__init__()
        self.parked_cycles: i64 = 0  # messages in `parked` that the rule against cycles stopped
        self.deaths: dict[tuple[str, str, str], int] = {}  # by kind of queue, strategy, reason
        self.deaths_confirmed: dict[
            str, int
        ] = {}  # dead letters that their target has certainly taken, by kind of queue

    def note_death(self, kind: str, strategy: str, reason: str) -> None:
        key = (kind, strategy, reason)
        self.deaths[key] = self.deaths.get(key, 0) + 1

    def note_confirmed(self, kind: str) -> None:
        self.deaths_confirmed[kind] = self.deaths_confirmed.get(kind, 0) + 1
