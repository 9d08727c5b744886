"""A run: a broker used by many connections and killed at random moments; then the accounting.

Queues and their clients; every queue has a consumer that comes and goes:

    plain          two publishers on their own connections
    prio           messages of several priorities
    later          behind a delayed exchange
    fan.one, .two  each message goes to both
    quorum         a quorum queue
    work, dead     messages of work are acked or rejected; rejected ones go to dead
    tokens.*       moved back and forth by transactions

With `--audit` all queues remember their messages, and a judge is asked at the end.

Most kills hit a busy broker, some hit one that is just starting. Now and then it is stopped
cleanly.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import IO, Final

from leveret.testing.cluster import wait_until
from tests.compat.client import Channel, is_method
from tools.chaos.accounts import Account, Sender
from tools.chaos.actor import Actor
from tools.chaos.consumers import FENCE, Consumer
from tools.chaos.publishers import DELAY_MS_MAX, PRIORITIES, Publisher, Route
from tools.chaos.teller import QUEUES, Teller
from tools.server import Server

UP_S: Final = (0.05, 1.2)  # how long a broker lives
CONFIRMED_MIN: Final = 12  # messages for each kill, so that a run is a test of something
START_KILLED_S: Final = (0.05, 0.6)  # one that is killed while it starts
DRAIN_S: Final = 300.0
TRACEBACK_LINES: Final = 40  # shown of each
LIVES: Final = "lives"  # the stream of life events, where there is a judge
SMALL_FILES: Final = ("-m", "tools.chaos.small_files", "serve")


Judge = Callable[[int], list[str]]  # is told the HTTP port at the end; what is wrong


@dataclass
class Outcome:
    """The result of a run."""

    kills: int = 0
    polite_ends: int = 0
    files: int = 0  # log files begun
    files_left: int = 0
    published: int = 0
    confirmed: int = 0
    turned_up: int = 0  # unconfirmed messages that were delivered
    deliveries: int = 0
    commits: int = 0
    lost: int = 0
    invented: int = 0
    balance: int = 0
    faults: list[str] = field(default_factory=list)


class Chaos:
    """All participants of a run."""

    def __init__(self, data: Path, seed: int, log: IO[str], judge: Judge | None = None) -> None:
        self._data = data
        self._judge = judge
        self._judged: list[str] = []
        self._rng = Random(seed)
        self.server = Server(data, log, SMALL_FILES)
        names = ("plain", "prio", "fan.one", "fan.two", "work")
        self.accounts = {name: Account(name) for name in names}
        self.accounts["quorum"] = Account("quorum", keeps_place=False)
        self.accounts["later"] = Account("later", is_direct=False)
        self.accounts["dead"] = Account("dead", is_direct=False)
        self.publishers = [
            Publisher(self.server, self._fork(), route, number)
            for number, route in enumerate(self._routes(), 1)
        ]
        self.consumers = [self._consumer(account) for account in self.accounts.values()]
        self.teller = Teller(self.server, self._fork())
        self.outcome = Outcome()

    def _fork(self) -> Random:
        """Return a random generator for one thread; a seed gives each thread the same numbers."""
        return Random(self._rng.getrandbits(64))

    def _routes(self) -> list[Route]:
        of = self.accounts
        plain = Route("", "plain", (of["plain"],))
        return [
            plain,
            plain,
            Route("", "prio", (of["prio"],), has_priorities=True),
            Route("later", "later", (of["later"],), has_delays=True),
            Route("fan", "", (of["fan.one"], of["fan.two"])),
            Route("", "quorum", (of["quorum"],)),
            Route("", "work", (of["work"],)),
        ]

    def _consumer(self, account: Account) -> Consumer:
        rejected = None
        if account.name == "work":
            rejected = Sender(0)
            self.accounts["dead"].senders.append(rejected)
        return Consumer(self.server, self._fork(), account, rejected)

    def run(self, kills: int) -> Outcome:
        self.server.start()
        try:
            self._define()
            self.teller.set_out()
            actors: list[Actor] = [*self.publishers, *self.consumers, self.teller]
            for actor in actors:
                actor.start()
            while self.outcome.kills < kills:
                time.sleep(self._rng.uniform(*UP_S))
                self._strike()
            wait_until(lambda: self._has_done_enough(kills), "the clients have done enough")
            self._end(actors)
            self._take_the_rest()
            if self._judge is not None:
                self._judged = [f"audit: {fault}" for fault in self._judge(self.server.http_port)]
        finally:
            self.server.kill()
        return self._add_up()

    def _has_done_enough(self, kills: int) -> bool:
        """On a busy machine the last broker lives on until then."""
        return self._confirmed() >= CONFIRMED_MIN * kills and self.teller.commits > 0

    def _confirmed(self) -> int:
        return sum(len(publisher.sender.confirmed) for publisher in self.publishers)

    def _define(self) -> None:
        connection = self.server.connect()
        channel = connection.channel()
        arguments: dict[str, dict[str, object]] = {
            "prio": {"x-max-priority": PRIORITIES},
            "quorum": {"x-queue-type": "quorum"},
            "work": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
            FENCE: {"x-max-length": 1},
        }
        remember = {"x-remember": LIVES} if self._judge is not None else {}
        for name in (*self.accounts, *QUEUES, FENCE):
            given = {**arguments.get(name, {}), **remember}
            call(channel, "queue.declare", queue=name, durable=True, arguments=given)
        fan = {"exchange": "fan", "type": "fanout", "durable": True}
        call(channel, "exchange.declare", **fan, arguments=remember)
        later = {"exchange": "later", "type": "x-delayed-message", "durable": True}
        call(
            channel, "exchange.declare", **later, arguments={"x-delayed-type": "direct", **remember}
        )
        call(channel, "queue.bind", queue="later", exchange="later", routing_key="later")
        for name in ("fan.one", "fan.two"):
            call(channel, "queue.bind", queue=name, exchange="fan")
        connection.close()

    def _strike(self) -> None:
        """Kill or stop the broker, and start it again."""
        if self._rng.random() < 0.1:
            assert self.server.stop() == 0
            self.outcome.polite_ends += 1
        else:
            self.server.kill()
            self.outcome.kills += 1
        if self._rng.random() < 0.15:
            self.server.start_and_kill(self._rng.uniform(*START_KILLED_S))
            self.outcome.kills += 1
        self.server.start()

    def _end(self, actors: list[Actor]) -> None:
        """Stop all clients; then kill the idle broker once more."""
        for actor in actors:
            actor.stopping.set()
        for actor in actors:
            actor.end()
        self.server.kill()
        self.outcome.kills += 1
        self.server.start()

    def _take_the_rest(self) -> None:
        """Take the remaining messages; after a last kill none of them may be back."""
        time.sleep(DELAY_MS_MAX / 1000)
        deadline_s = time.monotonic() + DRAIN_S
        while self._drain() and time.monotonic() < deadline_s:
            pass
        connection = self.server.connect()
        self.teller.audit(connection.channel())
        connection.close()
        self.server.kill()
        self.server.start()
        assert self._drain() == 0 or self._faults(), "something came back that is no fault"

    def _drain(self) -> int:
        """Put `dead` last, because rejected messages still go there."""
        return sum(consumer.drain() for consumer in self.consumers)

    def _faults(self) -> list[str]:
        found = [f"teller: {fault}" for fault in self.teller.noted] + self._judged
        for account in self.accounts.values():
            found += account.faults()
        return found

    def _add_up(self) -> Outcome:
        accounts = self.accounts.values()
        senders = [publisher.sender for publisher in self.publishers]
        outcome = self.outcome
        outcome.files_left = len(list(self._data.glob("*.log")))
        outcome.files = max(int(path.stem) for path in self._data.glob("*.log"))
        outcome.published = sum(len(sender.sent) for sender in senders)
        outcome.confirmed = self._confirmed()
        outcome.turned_up = sum(len(account.turned_up()) for account in accounts)
        outcome.deliveries = sum(account.deliveries for account in accounts)
        outcome.commits = self.teller.commits
        outcome.lost = sum(len(account.lost()) for account in accounts)
        outcome.invented = sum(len(account.invented()) for account in accounts)
        outcome.balance = sum(abs(account.balance()) for account in accounts)
        outcome.faults = self._faults()
        return outcome


def call(channel: Channel, name: str, **fields: object) -> None:
    """Call a function that must succeed."""
    given = {field: value for field, value in fields.items() if value is not None}
    answer = channel.call(name, **given)
    if not is_method(answer, f"{name}-ok"):
        raise RuntimeError(f"{name} was answered by {answer}")


def run(data: Path, kills: int, seed: int, log: IO[str], judge: Judge | None = None) -> Outcome:
    """Kill a broker `kills` times under load, then account, and ask a judge if there is one."""
    return Chaos(data, seed, log, judge).run(kills)


def tracebacks(said: str) -> list[str]:
    """Return the faults that a broker logged, each with the line before and the lines after it."""
    lines = said.splitlines()
    found = [at for at, line in enumerate(lines) if "Traceback" in line]
    return ["\n".join(lines[max(0, at - 1) : at + TRACEBACK_LINES]) for at in found]
