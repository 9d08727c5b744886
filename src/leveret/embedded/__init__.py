"""Queues as a library: the broker's queues for the threads of one process, without a server.

    from leveret.embedded import QueueManager

    with QueueManager() as queues:
        mail = queues.queue("mail", retries_max=3, dead_letter="mail.dead")
        mail.push(b"hello", delay_s=0.5, priority=7)
        received = mail.pop(wait_s=2.0)
        if received is not None:
            mail.ack(received)

Nouns:

- `QueueManager`  queues by name; its methods take the name of a queue and call its methods
- `Queue`         one queue with a lock of its own: push, pop, ack, nack, extend, stats
- `Received`      a message that was popped, and the receipt of its lease
- `Stats`         how many messages a queue holds in each state, and how many left it

Nothing is written to disk: the messages are lost when the process ends.
"""

from leveret.embedded.manager import QueueManager
from leveret.embedded.queue import Queue
from leveret.embedded.received import Received, Stats

__all__ = ["Queue", "QueueManager", "Received", "Stats"]
