"""Give random commands to a real broker and to the broker of `model`, and compare them each time.

Each delivery is compared (message, order, redelivered, x-death, counts), and each reply, the exact
order of ready messages, scheduled messages with their due times, and messages in flight. Nothing
may be lost: each message that was pushed to a queue is ready, in flight, scheduled, acked, or
counted under the reason for which it left.

The broker runs without sockets and clock (`tests.protocol.stage`), so that thousands of steps take
seconds. A failure prints the seed and the last commands.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Callable
from typing import cast

import pytest

from leveret.amqp.connection_base import ConnectionLimits
from leveret.engine.timer_queue import NEVER
from tests.compat import wire
from tests.compat.client import Method
from tests.forms import volume
from tests.protocol.stage import START_MS, Event, Peer, Stage, method, publish
from tests.simulation.model import PARKED, Asked, Channel, Consumer, Message, Model, Rules, Seen

STEPS = 2000
ROUNDS = volume(4, 1)
SOURCES = ("a", "b", "c")
DEAD = {name: f"{name}.dead" for name in SOURCES}
CHANNELS = (1, 2, 3)
PUBLISHER = 9
TIMEOUTS_MS = (40, 90)


class Driver:
    """Gives each command to both brokers and compares."""

    def __init__(self, seed: int) -> None:
        limits = ConnectionLimits()
        limits.consumer_timeout_ms = 0
        self.random = random.Random(seed)
        self.stage = Stage(limits)
        self.model = Model(START_MS)
        self.peers = {"x": self.stage.opened(), "y": self.stage.opened()}
        self.log: deque[str] = deque(maxlen=40)
        self.output = hashlib.sha256()  # over all bytes that the broker sent
        self.bodies = 0
        self.confirmed = 0
        self.publisher.open_channel(PUBLISHER)
        self.publisher.send(PUBLISHER, "confirm.select")
        for name in self.peers:
            for number in CHANNELS:
                self.open_channel(name, number)
        for name in (*SOURCES, *DEAD.values()):
            self.declare(name)

    @property
    def publisher(self) -> Peer:
        return self.peers["x"]

    def step(self) -> None:
        """Give one random command."""
        commands: list[tuple[Callable[[], None], int]] = [
            (self.publish, 30),
            (self.settle, 30),
            (self.get, 10),
            (self.consume, 8),
            (self.cancel, 4),
            (self.advance, 14),
            (self.recover, 2),
            (self.close_channel, 2),
            (self.purge, 1),
            (self.redeclare, 2),
            (self.lose_connection, 1),
        ]
        weights = [weight for _, weight in commands]
        (command,) = self.random.choices([command for command, _ in commands], weights)
        command()
        self.compare()

    def exchange(self, peer: str, data: bytes) -> list[Method]:
        """Feed bytes in one turn and return the replies. Deliveries are passed to the model."""
        self.peers[peer].feed(data)
        return self.collect(peer)

    def collect(self, asked: str) -> list[Method]:
        """Pass deliveries to the model, and check the consumers that were cancelled."""
        replies: list[Method] = []
        for name, peer in self.peers.items():
            self.output.update(peer.received)
            for event in peer.take():
                assert isinstance(event, Method)
                if event.name in ("basic.deliver", "basic.get-ok"):
                    self.note_tag(name, event)
                if event.name == "basic.deliver":
                    self.note_delivery(name, event)
                elif event.name == "basic.cancel":
                    key = (f"{name}{event.channel}", str(event.fields["consumer_tag"]))
                    self.ended.append(key)
                else:
                    assert name == asked, f"{event} came unasked"
                    replies.append(event)
        return replies

    def note_tag(self, peer: str, event: Method) -> None:
        channel = self.model.channels[f"{peer}{event.channel}"]
        channel.last_tag += 1
        assert event.tag == channel.last_tag

    def note_delivery(self, peer: str, event: Method) -> None:
        channel = self.model.channels[f"{peer}{event.channel}"]
        headers = cast("dict[str, object]", wire.plain(headers_of(event)))
        tag = str(event.fields["consumer_tag"])
        redelivered = bool(event.fields["redelivered"])
        self.model.seen.append(Seen(channel.name, tag, event.tag, redelivered, event.body, headers))

    def run(self, told: str, peer: str, data: bytes) -> list[Method]:
        self.log.append(told)
        self.ended: list[tuple[str, str]] = []
        self.model.ended = []
        return self.exchange(peer, data)

    def finish(self) -> None:
        """End the turn on both sides."""
        self.model.end_turn()
        assert sorted(self.ended) == sorted(self.model.ended)

    def publish(self) -> None:
        """Publish one message, or several in one turn."""
        data, wanted = b"", []
        for _ in range(self.random.choice((1, 1, 1, 4, 9))):
            name = self.random.choice((*SOURCES, *SOURCES, "a.dead", "nobody"))
            self.bodies += 1
            body = f"{self.bodies}:".encode() + b"." * self.random.choice((0, 5, 30))
            asked = Asked(
                self.random.choice((None, None, 0, 1, 3, 7, 40)),
                self.random.choice((None, None, None, 0, 20, 60, 200)),
                self.random.choice((0, 0, 0, 15, 70)),
            )
            data += publish(PUBLISHER, name, body, properties_of(asked))
            wanted.append((name, body, asked))
        replies = self.run(f"publish {wanted}", "x", data)
        assert self.confirms(replies, len(wanted)) == [self.model.publish(*w) for w in wanted]
        self.finish()

    def confirms(self, replies: list[Method], count: int) -> list[bool]:
        """Return the results of the last publishes from the confirms."""
        told: dict[int, bool] = {}
        for reply in replies:
            assert reply.channel == PUBLISHER
            assert reply.name in ("basic.ack", "basic.nack")
            first = self.confirmed + 1 if reply.fields["multiple"] else reply.tag
            told |= dict.fromkeys(range(first, reply.tag + 1), reply.name == "basic.ack")
            self.confirmed = reply.tag
        return [told[seq] for seq in range(self.confirmed - count + 1, self.confirmed + 1)]

    def settle(self) -> None:
        """Ack, nack or reject one delivery, or several in one turn."""
        busy = [channel for channel in self.model.channels.values() if channel.unacked]
        if not busy:
            return
        channel = self.random.choice(busy)
        peer, number = channel.name[0], int(channel.name[1:])
        data, told, effects = b"", [], []
        left = dict(channel.unacked)
        for _ in range(self.random.choice((1, 1, 2, 5))):
            if not left:
                break
            tag = self.random.choice(list(left))
            kind = self.random.choice(("ack", "ack", "nack", "nack", "reject"))
            multiple = kind != "reject" and self.random.random() < 0.3
            requeue = self.random.random() < 0.6
            fields: dict[str, object] = {"delivery_tag": tag}
            if kind != "reject":
                fields["multiple"] = multiple
            if kind != "ack":
                fields["requeue"] = requeue
            data += method(number, f"basic.{kind}", **fields)
            told.append(f"{kind} {fields}")
            effects.append((kind, tag, multiple, requeue))
            left = {t: h for t, h in left.items() if t != tag and not (multiple and t < tag)}
        assert self.run(f"{channel.name}: {told}", peer, data) == []
        for kind, tag, multiple, requeue in effects:
            if requeue and kind != "ack":
                self.model.catch_up(channel, tag, multiple)
            taken = self.model.settled(channel, tag, multiple)
            assert taken is not None
            if kind == "ack":
                self.model.ack(taken)
            elif requeue:
                self.model.give_back(taken, failed=kind == "reject")
            else:
                self.model.discard(taken)
        self.finish()

    def get(self) -> None:
        name = self.random.choice([*SOURCES, *DEAD.values()])
        channel = self.any_channel()
        if self.model.queues[name].rules.single_active:
            return
        no_ack = self.random.random() < 0.4
        data = method(int(channel.name[1:]), "basic.get", queue=name, no_ack=no_ack)
        (reply,) = self.run(f"{channel.name}: get {name} {no_ack=}", channel.name[0], data)
        wanted = self.model.get(name)
        if wanted is None:
            assert reply.name == "basic.get-empty"
        else:
            assert reply.name == "basic.get-ok"
            assert reply.body == wanted.body
            self.model.got(name, channel, reply.tag, wanted, no_ack)
            assert reply.fields["redelivered"] == (wanted.returns > 0)
            assert reply.fields["message_count"] == len(self.model.queues[name].order())
        self.finish()

    def consume(self) -> None:
        channel = self.any_channel()
        peer, number = channel.name[0], int(channel.name[1:])
        queue = self.model.queues[self.random.choice([*SOURCES, *DEAD.values()])]
        if len(queue.consumers) > 4:
            return
        prefetch = self.random.choice((0, 1, 1, 2, 3))
        prefetch_bytes = self.random.choice((0, 0, 0, 35))
        qos = method(number, "basic.qos", prefetch_count=prefetch, prefetch_size=prefetch_bytes)
        assert len(self.run(f"{channel.name}: qos", peer, qos)) == 1
        # In quorum queues a higher priority takes over; another test covers that.
        can_choose = not (queue.rules.quorum and queue.rules.single_active)
        priority = self.random.choice((0, 0, 0, 1, 5)) if can_choose else 0
        arguments: dict[str, object] = {"x-priority": priority} if priority else {}
        timeout_ms = self.timeout_for(queue.rules)
        if timeout_ms is not None:
            arguments["x-consumer-timeout"] = timeout_ms
        self.bodies += 1
        tag = f"t{self.bodies}"
        no_ack = self.random.random() < 0.2
        consumer = Consumer(
            tag, channel, queue, no_ack, prefetch, prefetch_bytes, priority, timeout_ms
        )
        data = method(
            number,
            "basic.consume",
            queue=queue.name,
            consumer_tag=tag,
            no_ack=no_ack,
            arguments=arguments,
        )
        told = f"{channel.name}: consume {queue.name} {consumer}"
        (reply,) = self.run(told, peer, data)
        assert reply.name == "basic.consume-ok"
        self.model.consume(consumer)
        self.finish()

    def timeout_for(self, rules: Rules) -> int | None:
        """Return a consumer timeout, or None for queues in which the order of returns matters.

        After a timeout, the order in which several channels return messages is not defined.
        """
        orderly = rules.length_max is None and rules.bytes_max is None
        if rules.quorum or not orderly or rules.delivery_limit is not None:
            return None
        return self.random.choice((None, *TIMEOUTS_MS))

    def cancel(self) -> None:
        consumers = [
            c for channel in self.model.channels.values() for c in channel.consumers.values()
        ]
        if not consumers:
            return
        consumer = self.random.choice(consumers)
        peer, number = consumer.channel.name[0], int(consumer.channel.name[1:])
        data = method(number, "basic.cancel", consumer_tag=consumer.tag)
        (reply,) = self.run(f"cancel {consumer.tag}", peer, data)
        assert reply.name == "basic.cancel-ok"
        self.model.cancel(consumer)
        self.finish()

    def advance(self) -> None:
        """Advance the time, from one due moment to the next."""
        left_ms = self.random.choice((1, 5, 20, 20, 60, 150))
        while left_ms > 0:
            due_ms = self.stage.broker.timers.next_due_ms()
            step_ms = left_ms
            if due_ms != NEVER:
                step_ms = min(left_ms, max(0, due_ms - self.stage.now_ms))
            self.log.append(f"advance {step_ms}")
            self.ended, self.model.ended = [], []
            self.stage.advance(step_ms)
            assert self.collect("") == []
            self.model.advance(step_ms)
            self.finish()
            self.compare()
            left_ms -= step_ms

    def recover(self) -> None:
        channel = self.any_channel()
        data = method(int(channel.name[1:]), "basic.recover", requeue=True)
        (reply,) = self.run(f"{channel.name}: recover", channel.name[0], data)
        assert reply.name == "basic.recover-ok"
        self.model.catch_up(channel, 0, True)
        taken = self.model.settled(channel, 0, True)
        assert taken is not None
        self.model.give_back(taken, failed=False)
        self.finish()

    def close_channel(self) -> None:
        """Close a channel by request, or by acking an unknown tag."""
        channel = self.any_channel()
        peer, number = channel.name[0], int(channel.name[1:])
        if self.random.random() < 0.5:
            (reply,) = self.run(f"{channel.name}: close", peer, method(number, "channel.close"))
            assert reply.name == "channel.close-ok"
        else:
            bad = method(number, "basic.ack", delivery_tag=channel.last_tag + 1)
            (reply,) = self.run(f"{channel.name}: bad ack", peer, bad)
            assert (reply.name, reply.fields["reply_code"]) == ("channel.close", 406)
        self.model.close([channel])
        self.finish()
        if reply.name == "channel.close":
            assert self.exchange(peer, method(number, "channel.close-ok")) == []
        self.open_channel(peer, number)

    def lose_connection(self) -> None:
        """Lose the second peer's socket with all its channels, and connect it again."""
        self.log.append("y: lost")
        self.ended, self.model.ended = [], []
        self.peers.pop("y").lose()
        self.collect("")
        lost = [name for name in self.model.channels if name.startswith("y")]
        self.model.close([self.model.channels.pop(name) for name in lost])
        self.finish()
        self.peers["y"] = self.stage.opened()
        for number in CHANNELS:
            self.open_channel("y", number)

    def purge(self) -> None:
        name = self.random.choice([*SOURCES, *DEAD.values()])
        number = CHANNELS[0]
        (reply,) = self.run(f"purge {name}", "x", method(number, "queue.purge", queue=name))
        assert reply.fields["message_count"] == self.model.purge(name)
        self.finish()

    def redeclare(self) -> None:
        """Delete a queue with its messages, and declare it again with other arguments."""
        name = self.random.choice([*SOURCES, *DEAD.values()])
        (reply,) = self.run(f"delete {name}", "x", method(1, "queue.delete", queue=name))
        assert reply.fields["message_count"] == self.model.delete(name)
        self.finish()
        self.declare(name)

    def declare(self, name: str) -> None:
        rules = self.source_rules(name) if name in SOURCES else self.dead_rules(name)
        arguments = rules.arguments()
        data = method(1, "queue.declare", queue=name, durable=rules.quorum, arguments=arguments)
        (reply,) = self.run(f"declare {name} {arguments}", "x", data)
        assert reply.name == "queue.declare-ok", reply
        self.model.declare(name, rules)
        self.finish()

    def source_rules(self, name: str) -> Rules:
        choose = self.random.choice
        rules = Rules(quorum=choose((False, False, True)))
        rules.ttl_ms = choose((None, None, 30, 120))
        rules.length_max = choose((None, None, 0, 2, 6))
        rules.bytes_max = choose((None, None, None, 60))
        rules.overflow = choose(("drop-head", "reject-publish", "reject-publish-dlx"))
        rules.delivery_limit = choose((None, None, 0, 2))
        rules.dead_letter = choose((None, DEAD[name], DEAD[name]))
        rules.single_active = choose((False, False, True))
        rules.delayed = choose((False, True))
        if rules.quorum:
            rules.retry_type = choose((None, "all", "failed", "returned"))
            if rules.retry_type is not None:
                rules.retry_min_ms, rules.retry_max_ms = 10, 25
        else:
            rules.priority_max = choose((None, None, 5))
        return rules

    def dead_rules(self, name: str) -> Rules:
        """Return arguments: mostly of a plain queue, sometimes of one that sends messages back."""
        rules = Rules(length_max=self.random.choice((None, None, 3)))
        if self.random.random() < 0.5:
            rules.ttl_ms = 40
            rules.dead_letter = name.removesuffix(".dead")
        return rules

    def open_channel(self, peer: str, number: int) -> None:
        """Open a channel on both sides. A lost peer's channels end in the order of opening."""
        name = f"{peer}{number}"
        self.peers[peer].open_channel(number)
        self.model.channels.pop(name, None)
        self.model.channels[name] = Channel(name)

    def any_channel(self) -> Channel:
        return self.random.choice(list(self.model.channels.values()))

    def compare(self) -> None:
        """Compare the internal state of every queue with the model."""
        real = self.stage.broker.vhost("/").queues
        assert set(real) == set(self.model.queues)
        channels = list(self.model.channels.values())
        for name, queue in self.model.queues.items():
            found = real[name]
            wanted = queue.order()
            bodies = [m.body for m in found.ready.messages()]
            expected = [m.body for m in wanted]
            if name == PARKED:  # of several queues whose messages expire at one time
                bodies, expected = sorted(bodies), sorted(expected)
            assert bodies == expected, name
            assert found.ready.count == len(wanted)
            assert found.ready.body_bytes == sum(len(m.body) for m in wanted)
            scheduled = [(due, m.body) for due, m in found.scheduled.entries()]
            assert scheduled == by_time(queue.scheduled)
            in_flight = queue.in_flight(channels)
            assert found.unacked == in_flight
            assert len(found.consumers) == len(queue.consumers)
            kept = len(wanted) + in_flight + len(scheduled)
            assert found.published == queue.pushed
            assert queue.pushed == kept + found.acked + sum(queue.gone.values())
            assert found.acked == queue.acked
            assert found.expired == queue.gone.get("expired", 0)
            assert found.purged == queue.gone.get("purged", 0)
            assert found.dropped == queue.gone.get("maxlen", 0)
            assert found.got_no_ack + found.delivered_no_ack == queue.gone.get("no_ack", 0)


def properties_of(asked: Asked) -> dict[str, object]:
    properties: dict[str, object] = {}
    if asked.priority is not None:
        properties["priority"] = asked.priority
    if asked.ttl_ms is not None:
        properties["expiration"] = str(asked.ttl_ms)
    if asked.delay_ms:
        properties["headers"] = {"x-delay": asked.delay_ms}
    return properties


def headers_of(event: Event) -> wire.Table:
    assert isinstance(event, Method)
    assert event.content is not None
    return event.content.headers


def by_time(scheduled: list[tuple[int, Message]]) -> list[tuple[int, bytes]]:
    return [(due, message.body) for due, message in sorted(scheduled, key=lambda entry: entry[0])]


@pytest.mark.parametrize("number", range(ROUNDS))
def test_random_commands_lead_both_brokers_to_the_same_state(seed: int, number: int) -> None:
    driver = Driver(seed + number)
    try:
        for _ in range(STEPS):
            driver.step()
    except AssertionError:
        print(f"seed {seed + number}; the last commands:", *driver.log, sep="\n  ")
        raise
