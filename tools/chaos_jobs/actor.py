"""A worker or a producer, as a process that may be killed at any moment.

    python actor.py work|produce|rush|pile BOOK TOKEN [HOST:]PORT… [option=value…]

`work` takes jobs of all topics but the busy ones, and `produce` fills them. `rush` and `pile` do so
with the busy topics, from which jobs are prefetched: many jobs of one priority come at once, and a
worker takes one after the other at one node.

Every line of the file BOOK is JSON, written by one call before the next step, so that a kill loses
nothing that happened before. Only the standard library is used: a worker must start quickly, since
one is killed each second. Times are of the monotonic clock, which all processes share.
"""

import base64
import http.client
import itertools
import json
import os
import random
import sys
import time
from typing import Any, Final

TOPICS: Final = ("refunds", "mails", "reports", "thumbnails")
BUSY: Final = ("invoices", "letters")  # with two or three shards: on different ones
NAMESPACE: Final = "chaos"
CALL_S: Final = 20.0
FAVOURED: Final = 0.9  # of the connections go to the favourite node of an actor that has one
CALLS: Final = 100  # of a rushing worker, by one connection
PILE: Final = 50  # jobs in a call
PILE_S: Final = 0.5  # between two piles
FORGOTTEN: Final = 0.002  # of the jobs: their worker does not ack them
ACKED_EACH: Final = (200, 207)  # the answer has the outcome of each ack
OUTCOMES: Final = {"done": 200, "unknown": 404, "stale": 409}  # as a call for one ack answers
FRESH_MAX: Final = 100  # topics; workers find the last jobs of a run by asking each topic


class Actor:
    """Calls of the service, at whichever node answers."""

    def __init__(self, book: str, token: str, nodes: list[str], options: dict[str, str]) -> None:
        self.name = os.path.basename(book)
        self._book = os.open(book, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._headers = {"Authorization": f"Bearer {token}"}
        self.nodes = nodes  # their addresses, HOST:PORT
        self.options = options
        self.chance = random.Random(self.name)
        self.favourite = ""  # if not empty: the node to which most connections go
        self._connection: http.client.HTTPConnection | None = None

    def note(self, kind: str, **facts: Any) -> None:
        line = json.dumps({"kind": kind, "at": time.monotonic(), "by": self.name, **facts})
        os.write(self._book, line.encode() + b"\n")

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """A status and an answer; 0 where nobody knows what became of the call."""
        try:
            if self._connection is None:
                is_usual = self.favourite and self.chance.random() < FAVOURED
                node = self.favourite if is_usual else self.chance.choice(self.nodes)
                self._connection = http.client.HTTPConnection(node, timeout=CALL_S)
                self._connection.connect()
        except OSError:
            self._connection = None
            time.sleep(0.05)
            return -1, None  # nothing was sent
        try:
            data = None if body is None else json.dumps(body).encode()
            self._connection.request(method, path, data, self._headers)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException):
            self.disconnect()
            return 0, None
        return response.status, json.loads(answer) if answer else None

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def topics(actor: Actor) -> list[str]:
    """Return the fixed topics and, with the option `fresh`, one more for each second."""
    begun = actor.options.get("fresh")
    fresh = 0 if begun is None else int(time.monotonic() - float(begun))
    return [*TOPICS, *(f"fresh{number}" for number in range(min(fresh, FRESH_MAX)))]


def next_topic(actor: Actor, calls: int) -> str:
    """Return a topic by chance; at the end of the run each in turn, so that none is left out."""
    some = topics(actor)
    is_over = os.path.exists(actor.options["over"])
    return some[calls % len(some)] if is_over else actor.chance.choice(some)


def produce(actor: Actor) -> None:
    """Put batches in, each job with a payload of its own."""
    numbers = itertools.count(1)
    pause_s = float(actor.options["pause"])
    while not os.path.exists(actor.options["over"]):
        batch = [
            new_job(actor, next(numbers), actor.chance.choice(topics(actor)), priorities=3)
            for _ in range(actor.chance.randint(1, 10))
        ]
        put(actor, batch)
        time.sleep(pause_s)


def pile(actor: Actor) -> None:
    """Put many jobs into the busy topics at once, and more whenever the file `burst` changes."""
    numbers = itertools.count(1)
    few, many = int(actor.options["pile"]), int(actor.options["many"])
    seen = changed = ""
    while not os.path.exists(actor.options["over"]):
        for _ in range(few if seen == changed else many):
            for topic in BUSY:
                put(actor, [new_job(actor, next(numbers), topic) for _ in range(PILE)])
        seen = changed
        end = time.monotonic() + PILE_S
        while seen == changed and time.monotonic() < end:
            time.sleep(0.02)
            changed = read(actor.options["burst"])


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


def new_job(actor: Actor, number: int, topic: str, priorities: int = 0) -> dict[str, Any]:
    return {
        "namespace": NAMESPACE,
        "topic": topic,
        "priority": actor.chance.randint(0, priorities),
        "payload": base64.b64encode(f"{actor.name} {number}".encode()).decode(),
    }


def put(actor: Actor, batch: list[dict[str, Any]]) -> None:
    names = [name_of(job) for job in batch]
    actor.note("put", names=names)
    status, ids = actor.call("POST", "/enqueue", batch)
    actor.note("told", status=status, names=names, ids=ids if status == 200 else None)


def name_of(job: dict[str, Any]) -> str:
    return base64.b64decode(job["payload"]).decode()


def work(actor: Actor) -> None:
    """Take jobs, do them, and tell."""
    lease = actor.options["lease"]
    leases = lease, actor.options.get("long", lease)
    wait_s = 0.05 if "fresh" in actor.options else 0.5
    for calls in itertools.count():
        topic = next_topic(actor, calls)
        asked = time.monotonic()
        query = f"topic={topic}&limit=5&wait={wait_s}&lease={actor.chance.choice(leases)}"
        path = f"/dequeue?namespace={NAMESPACE}&{query}"
        status, jobs = actor.call("GET", path)
        if status != 200 or not jobs:
            if status not in (-1, 200):
                time.sleep(0.05)
            continue
        for job in jobs:
            note_got(actor, asked, topic, job)
        for job in jobs:
            settle(actor, topic, job)


def note_got(actor: Actor, asked: float, topic: str, job: dict[str, Any]) -> None:
    facts = {"id": job["id"], "token": job["token"], "name": name_of(job)}
    actor.note("got", asked=asked, topic=topic, attempt=job["attempt"], **facts)


def rush(actor: Actor) -> None:
    """Take the jobs of one busy topic, each by the call that acks the job before."""
    number = int(actor.options["number"])
    topic = BUSY[number % len(BUSY)]
    actor.favourite = actor.nodes[number // len(BUSY) % len(actor.nodes)]
    query = f"topic={topic}&limit=1&wait=0.5&lease={actor.options['long']}"
    held: list[dict[str, Any]] = []
    for calls in itertools.count():
        if calls % CALLS == 0:
            actor.disconnect()  # the favourite may be back
        asked = time.monotonic()
        for job in held:
            actor.note("acking", id=job["id"], token=job["token"])
        acks = [handle_of(topic, job) for job in held]
        status, answer = actor.call("POST", f"/dequeue?namespace={NAMESPACE}&{query}", acks)
        is_answered = status in ACKED_EACH
        for place, job in enumerate(held):
            outcome = OUTCOMES[answer["acked"][place]["outcome"]] if is_answered else status
            actor.note("acked", id=job["id"], token=job["token"], status=outcome, asked=asked)
        held = answer["jobs"] if is_answered else []
        for job in held:
            note_got(actor, asked, topic, job)
        if not is_answered:
            time.sleep(0.1)
        if actor.chance.random() < FORGOTTEN:
            held = []


def handle_of(topic: str, job: dict[str, Any]) -> dict[str, Any]:
    return {"id": job["id"], "token": job["token"], "namespace": NAMESPACE, "topic": topic}


def settle(actor: Actor, topic: str, job: dict[str, Any]) -> None:
    handle = handle_of(topic, job)
    time.sleep(actor.chance.random() * 0.01)  # the work
    asked = time.monotonic()
    is_failure = actor.chance.random() < 0.03
    if is_failure:
        handle["error"] = "bad luck"
        status, _ = actor.call("POST", "/nack", handle)
    else:
        actor.note("acking", id=job["id"], token=job["token"])
        status, _ = actor.call("POST", "/ack", handle)
    kind = "nacked" if is_failure else "acked"
    actor.note(kind, id=job["id"], token=job["token"], status=status, asked=asked)


def main(words: list[str]) -> None:
    role, book, token, *rest = words
    nodes = [word if ":" in word else f"127.0.0.1:{word}" for word in rest if "=" not in word]
    options = dict(word.split("=", 1) for word in rest if "=" in word)
    actor = Actor(book, token, nodes, options)
    {"work": work, "produce": produce, "rush": rush, "pile": pile}[role](actor)


if __name__ == "__main__":
    main(sys.argv[1:])
