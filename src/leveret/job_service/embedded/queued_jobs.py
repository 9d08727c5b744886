"""Changes jobs that are ready or scheduled: cancels them, or makes them ready at once.

Jobs are named by the numbers of their messages. A message that was taken since it was found is left
alone, which is not an error. The jobs of a call are looked up and removed together: one by one, a
thousand of them would search all the jobs of the topic a thousand times, in one turn.
"""

from collections.abc import Callable, Iterator

from leveret.engine.commands.picking import Lookup, PickedMessage, remove
from leveret.job_service.embedded import block_limit
from leveret.job_service.embedded.block_limit import is_block_full
from leveret.job_service.embedded.envelope import job_id, read_envelope
from leveret.job_service.embedded.host import Host
from leveret.job_service.embedded.job_search import BYTES_MAX, pick_message
from leveret.job_service.embedded.topic import Topic

# Changes jobs inside a turn, and returns the ids of those that are changed.
Change = Callable[[Topic, dict[int, PickedMessage]], set[int]]


async def change_queued(host: Host, topic: Topic, seqs: dict[int, int], change: Change) -> set[int]:
    """Change jobs in as few turns as the log allows. `seqs` has the number of each id.

    Return the ids that `change` returns, when the changes are on disk.
    """
    done: set[int] = set()
    parts = _parts_still_there(topic, seqs)
    has_more = True
    while has_more:
        while is_block_full(host.broker):
            await host.synced()
        with host.turn():
            has_more = False
            for part in parts:
                done |= change(topic, part)
                if is_block_full(host.broker):
                    has_more = True
                    break
            topic.serve_waiters()
        await host.synced()
    return done


def cancel_jobs(topic: Topic, found: dict[int, PickedMessage]) -> set[int]:
    """Delete jobs, inside a turn. `found` has the message of each id. Return the ids."""
    remove(topic.queue, list(found.values()))
    for id, one in found.items():
        topic.queue.purged += 1
        topic.queue.ledger.forget(one.message)
        topic.note_ended(id, is_gone=True)
    return set(found)


def deliver_jobs_now(topic: Topic, found: dict[int, PickedMessage]) -> set[int]:
    """Make jobs ready, inside a turn. Return the ids of those that are ready now."""
    done = {id for id, one in found.items() if one.due_ms == 0}
    fitting: dict[int, PickedMessage] = {}
    size = 0
    for id, one in found.items():
        size += len(one.message.body)
        if one.due_ms == 0 or not topic.has_room(len(fitting) + 1, size):
            size -= len(one.message.body)
        else:
            fitting[id] = one
    remove(topic.queue, list(fitting.values()))
    for one in fitting.values():
        envelope = read_envelope(one.message, topic.queue)
        envelope.after_ms = topic.queue.turn.now_ms
        is_taken = topic.put(envelope, one.message.body)
        assert is_taken, "there was room for it"
        topic.queue.ledger.hand_over(one.message)
    return done | set(fitting)


def _parts_still_there(topic: Topic, seqs: dict[int, int]) -> Iterator[dict[int, PickedMessage]]:
    """Yield the messages that are still in the queue, by id, as many at a time as a block may hold.

    Each part is looked up when it is asked for, inside a turn.
    """
    left = sorted(seqs.items(), key=lambda item: item[1])
    while left:
        look = Lookup(topic.queue, [seq for _, seq in left], BYTES_MAX)
        picked, count = look.picked, int(look.count)
        if count == 0:  # the first one is in a line that was not read any more
            only = pick_message(topic.queue, left[0][1])
            picked, count = [] if only is None else [only], 1
        by_seq = {int(one.message.seq): one for one in picked}
        found: dict[int, PickedMessage] = {}
        size = looked = 0
        for id, seq in left[:count]:
            looked += 1
            one = by_seq.get(seq)
            if one is not None and job_id(one.message) == id:
                found[id] = one
                size += len(one.message.body)
            if size > block_limit.WAITING_BYTES_MAX:
                break
        left = left[looked:]
        yield found
