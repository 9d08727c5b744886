"""The hot paths: their preparation, the counted work, and a check that the work was done.

Only `run` is counted. Every path handles its messages once, with cold caches, in reads of 50. There
are so many messages that one-time work hardly counts.
"""

from typing import Final

from leveret.amqp.methods import BASIC_ACK
from leveret.amqp.writer import MethodWriter
from leveret.engine.broker import Broker
from leveret.engine.restore import apply_definition
from leveret.journal.journal import Journal
from leveret.perf.protocol import Publishes, Template
from leveret.storage.log_reader import LogReader
from leveret.storage.queue_recovery import QueueRestoration
from leveret.storage.replay import Replay
from leveret.wire.tables import table_of
from tools.guard.stage import BURST, LOG_FILE, NOW_MS, NOW_NS, Stage, method, publishes

MESSAGES: Final = 2000
TOPICS: Final = 10_000
HEADERS: Final = 500


class Path:
    """One counted path."""

    messages = MESSAGES

    def __init__(self) -> None:
        """Prepare the work."""

    def run(self) -> None:
        """Do the counted work."""
        raise NotImplementedError

    def check(self) -> None:
        """Fail unless the work was done."""


class Reference(Path):
    """Plain Python: shows whether the interpreter is the one of the baseline."""

    def run(self) -> None:
        total = 0
        for number in range(MESSAGES):
            total += number & 7


class PublishPath(Path):
    """Parse, route by the cached route, put into the queue."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.stage.declare("q")
        self.blocks = publishes("q", MESSAGES)

    def run(self) -> None:
        self.stage.feed_all(self.blocks)

    def check(self) -> None:
        assert self.stage.broker.vhost("/").queues["q"].message_count() == MESSAGES


class ConfirmPath(PublishPath):
    """Publish with publisher confirms."""

    def __init__(self) -> None:
        super().__init__()
        self.stage.select_confirms()


class DeliverPath(Path):
    """From the queue to the bytes of a consumer without acks."""

    acks = False

    def __init__(self) -> None:
        self.stage = Stage()
        self.stage.declare("q")
        self.stage.feed_all(publishes("q", MESSAGES))
        self.before = self.stage.sent_bytes

    def run(self) -> None:
        self.stage.consume("q", acks=self.acks)

    def check(self) -> None:
        assert self.stage.sent_bytes - self.before > MESSAGES * 60


class DeliverToAckPath(DeliverPath):
    """From the queue to the bytes of a consumer with acks."""

    acks = True


class AckPath(Path):
    """Acks of a hundred messages each."""

    every = 100

    def __init__(self) -> None:
        self.stage = Stage()
        self.stage.declare("q")
        self.stage.feed_all(publishes("q", MESSAGES))
        self.stage.consume("q", acks=True)
        tags = range(self.every, MESSAGES + 1, self.every)
        acks = [method(MethodWriter(BASIC_ACK).longlong(tag).octet(self.every > 1)) for tag in tags]
        self.blocks = [b"".join(acks[at : at + BURST]) for at in range(0, len(acks), BURST)]

    def run(self) -> None:
        self.stage.feed_all(self.blocks)

    def check(self) -> None:
        (channel,) = self.stage.connection.channels.values()
        assert len(list(channel.unacked.messages())) == 0


class AckEachPath(AckPath):
    """One ack for each message."""

    every = 1


class TopicPath(Path):
    """Uncached routes: every message has its own key, among 10,000 bindings."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.stage.declare_exchange("t", "topic")
        for number in range(10):
            self.stage.declare(f"q{number}")
        for number in range(TOPICS):
            pattern = (f"eu.*.{number}.#", f"eu.{number}.*", f"*.{number}.up")[number % 3]
            self.stage.bind(f"q{number % 10}", "t", pattern)
        keys = [f"eu.{number}.up" for number in range(MESSAGES)]
        made = Publishes(Template("t", False, {}, False), keys, [16], True, BURST)
        self.blocks = [made.block(BURST, NOW_NS) for _ in range(MESSAGES // BURST)]

    def run(self) -> None:
        self.stage.feed_all(self.blocks)

    def check(self) -> None:
        queues = self.stage.broker.vhost("/").queues.values()
        assert sum(queue.message_count() for queue in queues) > MESSAGES // 2


class HeadersPath(Path):
    """A headers exchange with 500 bindings."""

    messages = 500

    def __init__(self) -> None:
        self.stage = Stage()
        self.stage.declare_exchange("h", "headers")
        self.stage.declare("q")
        for number in range(HEADERS):
            match = {"x-match": "all", "shop": f"s{number}", "kind": "order"}
            self.stage.bind("q", "h", "", dict(match))
        headers = table_of({"shop": "s17", "kind": "order", "colour": "red"})
        made = Publishes(Template("h", False, headers, False), ["k"], [16], True, BURST)
        self.blocks = [made.block(BURST, NOW_NS) for _ in range(self.messages // BURST)]

    def run(self) -> None:
        self.stage.feed_all(self.blocks)

    def check(self) -> None:
        assert self.stage.broker.vhost("/").queues["q"].message_count() == self.messages


class JournalPath(Path):
    """Persistent messages with confirms, to the bytes of the log."""

    def __init__(self) -> None:
        self.stage = Stage(Journal())
        self.stage.declare("q", durable=True)
        self.stage.select_confirms()
        self.blocks = publishes("q", MESSAGES, persistent=True)

    def run(self) -> None:
        self.stage.feed_all(self.blocks)

    def check(self) -> None:
        assert len(self.stage.log) > MESSAGES * 50


class RecoveryPath(Path):
    """Recovery: from the bytes of the log to the state of the queue."""

    def __init__(self) -> None:
        written = JournalPath()
        written.run()
        self.data = bytes(written.stage.log)
        self.broker = Broker(1)
        self.broker.begin_turn(NOW_MS)
        self.pages = LogReader(self._read)
        self.pages.trusted_from = LOG_FILE  # there are no block heads to verify

    def _read(self, file: int, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    def run(self) -> None:
        replay = Replay()
        replay.read(self.data, 0, len(self.data), LOG_FILE, False)
        for table in replay.definitions:
            apply_definition(self.broker, table)
        queue = self.broker.vhost("/").queues["q"]
        queue.open_pages(self.pages)
        log = replay.queues[int(queue.ledger.id)]
        QueueRestoration(queue, log, True, set(), {}).restore_all()

    def check(self) -> None:
        assert self.broker.vhost("/").queues["q"].message_count() == MESSAGES


class StreamAppendPath(Path):
    """Publish messages into a stream."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.stage.declare("s", durable=True, kind="stream")
        self.blocks = publishes("s", MESSAGES, persistent=True)

    def run(self) -> None:
        self.stage.feed_all(self.blocks)

    def check(self) -> None:
        assert self.stage.broker.vhost("/").queues["s"].message_count() == MESSAGES


class StreamReadPath(Path):
    """Read a stream from its first message on, to the bytes of a consumer."""

    def __init__(self) -> None:
        appended = StreamAppendPath()
        appended.run()
        self.stage = appended.stage
        self.before = self.stage.sent_bytes

    def run(self) -> None:
        self.stage.consume("s", acks=True, prefetch=MESSAGES, offset="first")

    def check(self) -> None:
        assert self.stage.sent_bytes - self.before > MESSAGES * 60


PATHS: Final[dict[str, type[Path]]] = {
    "reference": Reference,
    "publish": PublishPath,
    "publish with confirms": ConfirmPath,
    "deliver without acks": DeliverPath,
    "deliver": DeliverToAckPath,
    "ack of 100": AckPath,
    "ack of each": AckEachPath,
    "topic route among 10,000": TopicPath,
    "headers route among 500": HeadersPath,
    "publish to the log": JournalPath,
    "recovery": RecoveryPath,
    "stream append": StreamAppendPath,
    "stream read": StreamReadPath,
}
