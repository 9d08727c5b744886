"""What became of messages that left their queue other than by an ack, counted by reason.

The turn has the counts of the node; a queue has its own from the first such message on. Nothing
here is touched by a message that is delivered and acknowledged.
"""

from typing import Final

from mypy_extensions import i64

# Reasons why a message is dropped besides those for which it leaves its queue (`session`).
PUBLISH_REFUSED: Final = (
    "refused"  # the queue is full and said no; with confirms the publisher knows
)
UNROUTED_DEATH: Final = "dead_letter_unroutable"  # its dead-letter exchange led nowhere
CYCLE: Final = "dead_letter_cycle"  # it would only come back to the queue that it died in
UNREAD_REPLY: Final = "reply_unread"  # a direct reply to a peer that does not read

# What a queue does with its dead, in RabbitMQ's words.
DISABLED: Final = "disabled"
AT_MOST_ONCE: Final = "at_most_once"
AT_LEAST_ONCE: Final = "at_least_once"


class LossCounts:
    """Counts of one queue, or of the node."""

    def __init__(self) -> None:
        self.dropped: dict[str, int] = {}  # by reason
        self.dead_lettered: dict[str, int] = {}  # by reason
        self.parked: i64 = 0
        self.timed_out: i64 = 0  # taken back from a holder that kept it too long

    def note_dropped(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def note_dead_lettered(self, reason: str) -> None:
        self.dead_lettered[reason] = self.dead_lettered.get(reason, 0) + 1


class NodeLossCounts(LossCounts):
    """Counts of the node, with what RabbitMQ tells apart besides."""

    def __init__(self) -> None:
        super().__init__()
        self.deaths: dict[tuple[str, str, str], int] = {}  # by kind of queue, strategy, reason
        self.deaths_confirmed: dict[str, int] = {}  # taken by their target for sure, by kind

    def note_death(self, kind: str, strategy: str, reason: str) -> None:
        key = (kind, strategy, reason)
        self.deaths[key] = self.deaths.get(key, 0) + 1

    def note_confirmed(self, kind: str) -> None:
        self.deaths_confirmed[kind] = self.deaths_confirmed.get(kind, 0) + 1
