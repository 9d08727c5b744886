"""A worker or a producer, as a process that may be killed at any moment.

    python actor.py work|produce BOOK TOKEN PORT… [option=value…]

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
NAMESPACE: Final = "chaos"
CALL_S: Final = 20.0
FRESH_MAX: Final = 100  # topics; workers find the last jobs of a run by asking each topic


class Actor:
    """Calls of the service, at whichever node answers."""

    def __init__(self, book: str, token: str, ports: list[int], options: dict[str, str]) -> None:
        self.name = os.path.basename(book)
        self._book = os.open(book, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._ports = ports
        self.options = options
        self.chance = random.Random(self.name)
        self._connection: http.client.HTTPConnection | None = None

    def note(self, kind: str, **facts: Any) -> None:
        line = json.dumps({"kind": kind, "at": time.monotonic(), "by": self.name, **facts})
        os.write(self._book, line.encode() + b"\n")

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """A status and an answer; 0 where nobody knows what became of the call."""
        try:
            if self._connection is None:
                port = self.chance.choice(self._ports)
                self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CALL_S)
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
            self._connection.close()
            self._connection = None
            return 0, None
        return response.status, json.loads(answer) if answer else None


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
    number = 0
    pause_s = float(actor.options["pause"])
    while not os.path.exists(actor.options["over"]):
        batch: list[dict[str, Any]] = []
        for _ in range(actor.chance.randint(1, 10)):
            number += 1
            name = f"{actor.name} {number}"
            batch.append(
                {
                    "namespace": NAMESPACE,
                    "topic": actor.chance.choice(topics(actor)),
                    "priority": actor.chance.randint(0, 3),
                    "payload": base64.b64encode(name.encode()).decode(),
                }
            )
        names = [base64.b64decode(job["payload"]).decode() for job in batch]
        actor.note("put", names=names)
        status, ids = actor.call("POST", "/enqueue", batch)
        actor.note("told", status=status, names=names, ids=ids if status == 200 else None)
        time.sleep(pause_s)


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
            name = base64.b64decode(job["payload"]).decode()
            facts = {"id": job["id"], "token": job["token"], "name": name}
            actor.note("got", asked=asked, topic=topic, attempt=job["attempt"], **facts)
        for job in jobs:
            settle(actor, topic, job)


def settle(actor: Actor, topic: str, job: dict[str, Any]) -> None:
    handle = {"id": job["id"], "token": job["token"], "namespace": NAMESPACE, "topic": topic}
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
    ports = [int(word) for word in rest if "=" not in word]
    options = dict(word.split("=", 1) for word in rest if "=" in word)
    actor = Actor(book, token, ports, options)
    {"work": work, "produce": produce}[role](actor)


if __name__ == "__main__":
    main(sys.argv[1:])
