"""Outcomes of a publish, as bits of one number.

`Queue.push` returns the outcome for one queue: `QUEUED`, `QUEUED | IN_LOG` or `QUEUE_FULL`.
`publish` and `route_and_push` return the outcomes of all queues together. A number costs no
allocation for each message.
"""

from typing import Final

UNROUTED: Final = 0  # no queue, no delayed exchange and no requester takes the message
ROUTED: Final = 1  # at least one of them was found
QUEUED: Final = 1  # `ROUTED`, as one queue sees it
QUEUE_FULL: Final = 2  # a queue that the message was routed to is full and refused it
IN_LOG: Final = 4  # a copy was written to the log: the message is safe after the next sync
CYCLED: Final = 8  # a dead letter that would only come back to the queue in which it died
KEYS_FULL: Final = 32  # with QUEUE_FULL: the vhost has no room for its deduplication key
CHAINED: Final = 16  # a dead letter over the limits of a chain of deaths (`dead_letter`)
