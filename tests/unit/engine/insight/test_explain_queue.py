"""Reasons why something does not move. Each test produces a reason by its cause."""

from typing import cast

from leveret.engine.insight.explain_message import explain_message
from leveret.engine.insight.explain_queue import CLUSTER, CODES, Explanation, explain_queue
from leveret.engine.insight.filters import UNACKED, Filter
from leveret.engine.insight.walk import Walk
from leveret.engine.queues.queue import Queue
from leveret.engine.turns.session import Session
from leveret.engine.vhosts import pausing
from leveret.testing.disk import FakeDisk
from tests.protocol.stage import Stage
from tests.simulation.storage_stage import Client as StoredClient
from tests.simulation.storage_stage import StorageStage
from tests.unit.engine.front import Client

SEEN: set[str] = set()  # codes that some test of this module has produced


def of_queue(queue: Queue, *alarms: str) -> Explanation:
    found = explain_queue(queue, list(alarms))
    return checked(found)


def checked(found: Explanation) -> Explanation:
    for reason in found.reasons:
        assert reason.text.endswith("."), reason.text
        assert reason.text[0].isupper()
        SEEN.add(reason.code)
    return found


def codes(found: Explanation) -> list[str]:
    return [reason.code for reason in found.reasons]


def details(found: Explanation, code: str) -> dict[str, object]:
    (reason,) = [reason for reason in found.reasons if reason.code == code]
    return reason.details


def of_message(stage: Stage, queue: Queue, seq: int) -> Explanation:
    """Explain a message as the HTTP front does: look among messages in flight first."""
    sessions = [c for link in stage.peers for c in link.channels.values()]
    wanted = Filter()
    wanted.require_states([UNACKED])
    wanted.require_seq(seq)
    stuck = stage.broker.vhost("/").stuck
    walk = Walk(queue, stuck, wanted, cast(list[Session], sessions))
    walk.step(1000, 1, 1)
    held = walk.take()
    message = held[0].message if held else None
    session = held[0].session if held else None
    return checked(explain_message(queue, stuck, seq, message, session))


def test_empty_queue_without_consumers() -> None:
    queue = Client().queue("q")
    found = of_queue(queue)
    assert (found.moving, codes(found)) == (False, ["no_consumer", "empty"])


def test_consumed_queue_moves() -> None:
    client = Client()
    queue = client.queue("q")
    client.consume("q", no_ack=True)
    client.publish("q", "x")
    found = of_queue(queue)
    assert (found.moving, codes(found)) == (True, ["empty"])


def test_queue_without_a_consumer_does_not_move() -> None:
    client = Client()
    queue = client.queue("q")
    client.publish("q", "a", "b")
    found = of_queue(queue)
    assert (found.moving, codes(found)) == (False, ["no_consumer"])
    found = of_message(client.stage, queue, 1)
    assert (found.moving, codes(found)) == (False, ["behind", "no_consumer"])
    assert details(found, "behind") == {"ahead": 1}
    assert codes(of_message(client.stage, queue, 0)) == ["no_consumer"]


def test_full_prefetch_names_who_holds_what() -> None:
    client = Client()
    queue = client.queue("q")
    client.consume("q", "slow", prefetch=2)
    client.publish("q", "a", "b", "c")
    client.advance(30_000)
    found = of_queue(queue)
    assert (found.moving, codes(found)) == (False, ["prefetch_full", "unacked"])
    holder = {
        "connection": "127.0.0.1:1",
        "channel": 1,
        "consumer_tag": "slow",
        "user": "guest",
        "unacked": 2,
        "prefetch": 2,
        "oldest_age_ms": 30_000,
    }
    assert details(found, "prefetch_full") == {"holders": [holder], "unacked": 2}
    assert details(found, "unacked") == {"holders": [holder], "messages": 2}
    client.ack(1)
    assert codes(of_queue(queue)) == ["prefetch_full", "unacked"]
    client.ack(3, multiple=True)
    assert of_queue(queue).moving


def test_shared_prefetch_counts_too() -> None:
    client = Client()
    queue = client.queue("q")
    client.send("basic.qos", prefetch_count=1, **{"global": True})
    client.send("basic.consume", queue="q", consumer_tag="t")
    client.publish("q", "a", "b")
    assert codes(of_queue(queue)) == ["prefetch_full", "unacked"]


def test_message_in_flight_names_its_holder() -> None:
    client = Client()
    queue = client.queue("q")
    client.publish("q", "a", "b")
    client.get("q", no_ack=False)
    client.consume("q", "c", prefetch=1)
    client.advance(12_000)
    by_get = of_message(client.stage, queue, 0)
    assert (by_get.moving, codes(by_get)) == (False, ["unacked"])
    assert details(by_get, "unacked")["age_ms"] == 12_000
    assert "basic.get" in by_get.reasons[0].text
    by_consumer = of_message(client.stage, queue, 1)
    holder = cast("dict[str, object]", details(by_consumer, "unacked")["holder"])
    assert (holder["consumer_tag"], holder["channel"]) == ("c", 1)
    assert details(of_queue(queue), "unacked")["by_get_or_cancelled"] == 1


def test_peer_that_does_not_read_blocks_its_consumer() -> None:
    client = Client()
    queue = client.queue("q")
    client.consume("q", "deaf", no_ack=True)
    client.peer.reads = False
    other = client.other()
    other.publish("q", *["x" * 100_000] * 5)
    found = of_queue(queue)
    assert (found.moving, codes(found)) == (False, ["consumer_blocked"])
    (shown,) = cast("list[dict[str, object]]", details(found, "consumer_blocked")["consumers"])
    assert shown["consumer_tag"] == "deaf"


def test_single_active_consumer_keeps_others_waiting() -> None:
    client = Client()
    queue = client.queue("q", x_single_active_consumer=True)
    client.consume("q", "first", prefetch=1)
    client.consume("q", "second", on=2, prefetch=10)
    client.publish("q", "a", "b")
    found = of_queue(queue)
    assert codes(found) == ["prefetch_full", "single_active_idle", "unacked"]
    told = details(found, "single_active_idle")
    assert told["waiting"] == 1
    assert cast("dict[str, object]", told["active"])["consumer_tag"] == "first"


def test_single_active_consumer_that_must_hand_over_takes_nothing() -> None:
    client = Client()
    queue = client.queue("q", x_queue_type="quorum", x_single_active_consumer=True)
    client.consume("q", "low", prefetch=5)
    client.publish("q", "a")
    client.consume("q", "high", on=2, prefetch=5, x_priority=9)
    client.publish("q", "b")
    found = of_queue(queue)
    assert (found.moving, codes(found)) == (False, ["single_active_idle", "unacked"])


def test_messages_of_a_cancelled_single_active_consumer_keep_the_next_one_waiting() -> None:
    client = Client()
    queue = client.queue("q", x_single_active_consumer=True)
    client.consume("q", "first", prefetch=1)
    client.consume("q", "second", on=2, prefetch=10)
    client.publish("q", "a", "b")
    client.send("basic.cancel", consumer_tag="first")
    found = of_queue(queue)
    assert (found.moving, codes(found)) == (False, ["cancelled_holds", "unacked"])
    told = details(found, "cancelled_holds")
    assert told["waiting"] == 1
    holder = cast("dict[str, object]", told["holder"])
    assert (holder["consumer_tag"], holder["unacked"]) == ("first", 1)
    client.ack(1)
    assert of_queue(queue).moving


def test_scheduled_messages_wait_for_their_time() -> None:
    client = Client()
    queue = client.queue("q", x_delayed=True)
    client.consume("q", no_ack=True)
    client.publish("q", "later", headers={"x-delay": 60_000})
    client.advance(10_000)
    found = of_queue(queue)
    assert (found.moving, codes(found)) == (True, ["delayed_until"])
    told = details(found, "delayed_until")
    assert (told["in_ms"], told["messages"]) == (50_000, 1)
    assert told["due_at_ms"] == client.stage.now_ms + 50_000
    found = of_message(client.stage, queue, 0)
    assert (found.moving, codes(found)) == (False, ["delayed_until"])


def test_higher_priorities_are_served_first() -> None:
    client = Client()
    queue = client.queue("q", x_max_priority=5)
    client.publish("q", "low", priority=1)
    client.publish("q", "high", "high too", priority=4)
    client.publish("q", "low too", priority=1)
    found = of_message(client.stage, queue, 3)
    assert codes(found) == ["higher_priority_ahead", "behind", "no_consumer"]
    assert details(found, "higher_priority_ahead") == {"ahead": 2}
    assert details(found, "behind") == {"ahead": 3}
    assert details(of_message(client.stage, queue, 2), "behind") == {"ahead": 1}


def test_messages_that_came_back_are_counted_where_they_are() -> None:
    client = Client()
    queue = client.queue("q")
    client.publish("q", "a", "b", "c", "d")
    for _ in range(3):
        client.get("q", no_ack=False)
    client.nack(2)
    client.nack(1)
    assert details(of_message(client.stage, queue, 3), "behind") == {"ahead": 2}
    assert details(of_message(client.stage, queue, 1), "behind") == {"ahead": 1}
    assert "behind" not in codes(of_message(client.stage, queue, 0))


def test_paused_queue_does_not_move() -> None:
    client = Client()
    queue = client.queue("q")
    client.consume("q")
    pausing.pause(client.stage.broker.register, queue, "guest")
    client.publish("q", "a")
    found = of_queue(queue)
    assert (found.moving, codes(found)) == (False, ["paused"])
    assert codes(of_message(client.stage, queue, 0)) == ["paused"]


def test_alarm_is_told_though_consumers_go_on() -> None:
    client = Client()
    queue = client.queue("q")
    client.consume("q")
    found = of_queue(queue, "low on memory")
    assert (found.moving, codes(found)) == (True, ["empty", "alarm"])
    assert details(found, "alarm") == {"alarm": "low on memory"}


def test_dead_letters_that_nobody_takes() -> None:
    client = Client()
    queue = client.queue(
        "q",
        x_queue_type="quorum",
        x_dead_letter_exchange="missing",
        x_dead_letter_strategy="at-least-once",
        x_overflow="reject-publish",
    )
    client.publish("q", "a")
    client.get("q", no_ack=False)
    client.reject(1, requeue=False)
    found = of_queue(queue)
    assert codes(found) == ["no_consumer", "dead_letter_stuck"]
    assert details(found, "dead_letter_stuck") == {"messages": 1, "exchange": "missing"}
    assert codes(of_message(client.stage, queue, 0)) == ["dead_letter_stuck"]


def test_message_that_is_not_there() -> None:
    client = Client()
    queue = client.queue("q")
    client.publish("q", "a")
    client.get("q")
    found = of_message(client.stage, queue, 0)
    assert (found.moving, codes(found)) == (False, ["not_found"])
    assert "any more" in found.reasons[0].text
    assert "has been" in of_message(client.stage, queue, 1).reasons[0].text


def test_damaged_messages_are_quarantined() -> None:
    stage = StorageStage(FakeDisk(), file_bytes=700)
    client = StoredClient(stage)
    client.declare("q")
    for number in range(10):
        client.publish("q", b"%d" % number * 50)
    disk = stage.killed()
    (name,) = [n for n in disk.names() if n.endswith(".log") and b"4" * 50 in disk.content(n)]
    disk.flip(name, disk.content(name).index(b"4" * 50) * 8)
    again = StorageStage(disk)
    queue = again.broker.vhost("/").queues["q"]
    taker = StoredClient(again)
    for _ in range(5):
        taker.get("q")  # the damage is met, and set aside
    found = of_queue(queue)
    assert "quarantined" in codes(found)
    assert details(found, "quarantined")["messages"] == queue.damaged > 0
    (seq,) = [int(run.seqs[run.at]) for run in queue.ready.damaged]
    assert codes(of_message(again, queue, seq)) == ["quarantined"]
    again.abandon()


def test_readers_of_a_stream() -> None:
    client = Client()
    stream = client.queue("s", x_queue_type="stream")
    assert codes(of_queue(stream)) == ["no_consumer", "empty"]
    client.publish("s", *"abcdef")
    client.consume("s", "r", prefetch=2, x_stream_offset="first")
    found = of_queue(stream)
    assert (found.moving, codes(found)) == (False, ["prefetch_full", "behind"])
    (reader,) = cast("list[dict[str, object]]", details(found, "behind")["readers"])
    assert (reader["offset"], reader["behind"]) == (2, 4)
    found = of_message(client.stage, stream, 4)
    assert codes(found) == ["behind", "prefetch_full"]
    assert details(found, "behind") == {"ahead": 2}
    assert of_message(client.stage, stream, 1).reasons[0].code == "prefetch_full"
    assert codes(of_message(client.stage, stream, 99)) == ["not_found"]


def test_stream_shows_nothing_before_it_is_synced() -> None:
    stage = StorageStage(FakeDisk())
    client = StoredClient(stage)
    client.declare("s", **{"x-queue-type": "stream"})
    stage.holds = True
    client.publish("s", b"a")
    stream = stage.broker.vhost("/").queues["s"]
    found = of_queue(stream)
    assert codes(found) == ["no_consumer", "log_not_synced"]
    assert codes(of_message(stage, stream, 0)) == ["log_not_synced"]
    stage.holds = False
    stage.sync_all()
    assert codes(of_queue(stream)) == ["no_consumer"]
    stage.abandon()


def test_every_reason_has_been_produced() -> None:
    assert set(CODES) == SEEN | {CLUSTER}  # the HTTP front adds what the cluster waits for
