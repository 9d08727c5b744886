"""Explain why a queue does not move: reasons, each with a code, a sentence and details.

A queue *moves* if a message that is ready now would be delivered now. Some reasons are reported
even if the queue moves: an alarm stops publishers, and a damaged part stays where it is.

Everything is read from the queue, its subscribers and their outlets. No state is kept for it.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.insight.seek import BEFORE_ALL, held_after
from leveret.engine.queues.queue import Queue
from leveret.engine.streams.reader import Reader
from leveret.engine.streams.stream import Stream
from leveret.engine.turns.session import Consumer

NO_CONSUMER: Final = "no_consumer"
PREFETCH_FULL: Final = "prefetch_full"
CONSUMER_BLOCKED: Final = "consumer_blocked"
SINGLE_ACTIVE_IDLE: Final = "single_active_idle"
CANCELLED_HOLDS: Final = "cancelled_holds"
PAUSED: Final = "paused"
ALARM: Final = "alarm"
QUARANTINED: Final = "quarantined"
DELAYED_UNTIL: Final = "delayed_until"
UNACKED: Final = "unacked"
EMPTY: Final = "empty"
DEAD_LETTER_STUCK: Final = "dead_letter_stuck"
LOG_NOT_SYNCED: Final = "log_not_synced"
BEHIND: Final = "behind"
HIGHER_PRIORITY_AHEAD: Final = "higher_priority_ahead"
PARKED: Final = "parked"
NOT_FOUND: Final = "not_found"
CLUSTER: Final = "cluster"

CODES: Final = (
    NO_CONSUMER,
    PREFETCH_FULL,
    CONSUMER_BLOCKED,
    SINGLE_ACTIVE_IDLE,
    CANCELLED_HOLDS,
    PAUSED,
    ALARM,
    QUARANTINED,
    DELAYED_UNTIL,
    UNACKED,
    EMPTY,
    DEAD_LETTER_STUCK,
    LOG_NOT_SYNCED,
    BEHIND,
    HIGHER_PRIORITY_AHEAD,
    NOT_FOUND,
    CLUSTER,
)

CONSUMERS_SHOWN_MAX: Final = 20
_SLOTS_MAX: Final = 4096  # deliveries of a session, searched for the oldest message of a consumer


class Reason:
    """One reason why something does not move."""

    def __init__(self, code: str, text: str, details: dict[str, object]) -> None:
        assert code in CODES
        self.code = code
        self.text = text  # a whole sentence
        self.details = details


class Explanation:
    """The answer of explain: True if messages move, and all reasons."""

    def __init__(self, moving: bool, reasons: list[Reason]) -> None:
        self.moving = moving
        self.reasons = reasons


def explain_queue(queue: Queue, alarms: list[str]) -> Explanation:
    """Explain why a queue does not move. `alarms` are the alarms of the node, as text."""
    reasons = standing_reasons(queue)
    moving = not reasons
    if isinstance(queue, Stream):
        _add_stream_facts(queue, reasons)
    else:
        _add_queue_facts(queue, reasons)
    if queue.damaged != 0:
        reasons.append(_quarantined(queue))
    for alarm in alarms:
        text = f"Publishers have to wait, the node is {alarm}: nothing new comes in."
        reasons.append(Reason(ALARM, text, {"alarm": alarm}))
    return Explanation(moving, reasons)


def standing_reasons(queue: Queue) -> list[Reason]:
    """Return the reasons that hold back every ready message."""
    reasons: list[Reason] = []
    if queue.paused:
        reasons.append(Reason(PAUSED, "The queue is paused: nothing is delivered.", {}))
    consumers = queue.consumers
    if not consumers:
        reasons.append(Reason(NO_CONSUMER, "Nobody consumes from the queue.", {}))
        return reasons
    departed = queue.subscribers.departed
    if departed is not None:
        reasons.append(_cancelled_holds(queue, departed))
        return reasons
    served = [consumer for consumer in consumers if consumer.active]
    blocked = [c for c in served if c.session.outlet.credit <= 0]
    full = [c for c in served if c not in blocked and not c.has_room()]
    if len(blocked) + len(full) < len(served) and not _is_handing_over(queue):
        return reasons
    if full:
        reasons.append(_prefetch_full(queue, full))
    if blocked:
        reasons.append(_blocked(queue, blocked))
    idle = len(consumers) - len(served)
    if idle > 0:
        reasons.append(_single_active_idle(queue, served[0], idle))
    return reasons


def _is_handing_over(queue: Queue) -> bool:
    """Return True if the active consumer gets no more because another one takes over."""
    active = queue.subscribers.active
    return active is not None and active.suspended and active.has_room()


def _prefetch_full(queue: Queue, full: list[Consumer]) -> Reason:
    held: i64 = 0
    for consumer in full:
        held += consumer.unacked
    text = (
        f"Prefetch allows no more: {counted(held, 'message')} held by "
        f"{counted(len(full), 'consumer')} must be acknowledged first."
    )
    return Reason(PREFETCH_FULL, text, {"holders": _shown(queue, full), "unacked": int(held)})


def _blocked(queue: Queue, blocked: list[Consumer]) -> Reason:
    text = f"Peers that do not read what they are sent hold up {counted(len(blocked), 'consumer')}."
    return Reason(CONSUMER_BLOCKED, text, {"consumers": _shown(queue, blocked)})


def _single_active_idle(queue: Queue, active: Consumer, idle: i64) -> Reason:
    text = (
        f"Only the single active consumer '{active.tag}' is served, and it takes nothing now; "
        f"{counted(idle, 'other consumer')} must wait for it to go."
    )
    return Reason(
        SINGLE_ACTIVE_IDLE, text, {"active": shown_consumer(queue, active), "waiting": int(idle)}
    )


def _cancelled_holds(queue: Queue, departed: Consumer) -> Reason:
    waiting = len(queue.consumers)
    text = (
        f"The single active consumer '{departed.tag}' has ended, and its channel still holds "
        f"{counted(departed.unacked, 'message')}; {counted(waiting, 'other consumer')} must wait "
        "until these are settled or requeued."
    )
    details: dict[str, object] = {"holder": shown_consumer(queue, departed), "waiting": waiting}
    return Reason(CANCELLED_HOLDS, text, details)


def _add_queue_facts(queue: Queue, reasons: list[Reason]) -> None:
    scheduled: i64 = len(queue.scheduled)
    if scheduled != 0:
        due_ms = queue.scheduled.next_due_ms()
        reasons.append(delayed(due_ms, queue.turn.now_ms, scheduled))
    if queue.unacked != 0:
        reasons.append(_in_flight(queue))
    if queue.stuck != 0:
        reasons.append(stuck(queue, queue.stuck))
    if queue.ready.count + scheduled + queue.unacked + queue.stuck == 0:
        reasons.append(Reason(EMPTY, "There is nothing in the queue.", {}))


def delayed(due_ms: i64, now_ms: i64, count: i64) -> Reason:
    left_ms = max(due_ms - now_ms, 0)
    text = (
        f"The queue holds back {counted(count, 'message')} until a later time; "
        f"the next one is due in {shown_time(left_ms)}."
    )
    details: dict[str, object] = {"due_at_ms": int(due_ms), "in_ms": int(left_ms)}
    details["messages"] = int(count)
    return Reason(DELAYED_UNTIL, text, details)


def _in_flight(queue: Queue) -> Reason:
    holders = [consumer for consumer in queue.consumers if consumer.unacked != 0]
    known: i64 = 0
    for consumer in holders:
        known += consumer.unacked
    others = queue.unacked - known
    text = f"Consumers hold {counted(queue.unacked, 'message')} that they have not acknowledged."
    details: dict[str, object] = {"messages": int(queue.unacked), "holders": _shown(queue, holders)}
    if others > 0:
        details["by_get_or_cancelled"] = int(others)
    return Reason(UNACKED, text, details)


def stuck(queue: Queue, count: i64) -> Reason:
    name = queue.settings.dead_letter_exchange
    text = (
        f"The queue keeps {counted(count, 'dead letter')} until the dead-letter exchange '{name}' "
        "leads to a queue that takes them."
    )
    return Reason(DEAD_LETTER_STUCK, text, {"messages": int(count), "exchange": name})


def _quarantined(queue: Queue) -> Reason:
    text = f"Set aside as unreadable: {counted(queue.damaged, 'message')}. See the damage."
    details: dict[str, object] = {"messages": queue.damaged, "damage": list(queue.damage)}
    return Reason(QUARANTINED, text, details)


def _add_stream_facts(stream: Stream, reasons: list[Reason]) -> None:
    late = [c for c in stream.consumers if isinstance(c, Reader) and c.offset < stream.end_offset]
    if late:
        text = f"The end of the stream is ahead of {counted(len(late), 'consumer')}."
        details: dict[str, object] = {"end_offset": int(stream.end_offset)}
        details["readers"] = [
            _shown_reader(stream, reader) for reader in late[:CONSUMERS_SHOWN_MAX]
        ]
        reasons.append(Reason(BEHIND, text, details))
    unsynced = stream.writer.next_offset - stream.end_offset
    if unsynced > 0:
        reasons.append(not_synced(stream))
    if stream.message_count() == 0 and unsynced == 0:
        reasons.append(Reason(EMPTY, "There is nothing in the stream.", {}))


def not_synced(stream: Stream) -> Reason:
    unsynced = stream.writer.next_offset - stream.end_offset
    text = f"The log is not synced yet: readers do not see {counted(unsynced, 'message')}."
    details: dict[str, object] = {"messages": int(unsynced), "first_offset": int(stream.end_offset)}
    return Reason(LOG_NOT_SYNCED, text, details)


def _shown_reader(stream: Stream, reader: Reader) -> dict[str, object]:
    found = shown_consumer(stream, reader)
    found["offset"] = int(reader.offset)
    found["behind"] = int(stream.end_offset - reader.offset)
    return found


def _shown(queue: Queue, consumers: list[Consumer]) -> list[dict[str, object]]:
    """Return some consumers. Those with most unacknowledged messages come first."""
    chosen = sorted(consumers, key=_unacked, reverse=True)[:CONSUMERS_SHOWN_MAX]
    return [shown_consumer(queue, consumer) for consumer in chosen]


def _unacked(consumer: Consumer) -> int:
    return consumer.unacked


def shown_consumer(queue: Queue, consumer: Consumer) -> dict[str, object]:
    """Describe a consumer: its names, its prefetch, and its unacknowledged messages."""
    session = consumer.session
    shown: dict[str, object] = {
        "connection": session.outlet.name,
        "channel": int(session.number),
        "consumer_tag": consumer.tag,
        "user": session.outlet.user_name,
        "unacked": int(consumer.unacked),
        "prefetch": int(consumer.prefetch or session.shared_prefetch),
    }
    oldest_ms = _oldest_ms(queue, consumer)
    if oldest_ms != 0:
        shown["oldest_age_ms"] = int(max(queue.turn.now_ms - oldest_ms, 0))
    return shown


def _oldest_ms(queue: Queue, consumer: Consumer) -> i64:
    """Return when the oldest message that a consumer holds was delivered, or 0."""
    if consumer.unacked == 0:
        return 0
    held, _ = held_after(consumer.session.unacked, BEFORE_ALL, queue.slot, _SLOTS_MAX)
    for message in held:
        if message.holder is consumer:
            return message.taken_ms
    return 0


def counted(number: i64, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def shown_time(ms: i64) -> str:
    return f"{ms} ms" if ms < 10_000 else f"{ms // 1000} s"
