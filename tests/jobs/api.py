"""Calls of the jobs API over HTTP, for tests in any thread."""

import base64
import http.client
import json
from typing import Any
from urllib.parse import quote, urlencode

WAIT_S = 60  # of a dequeue that a job or the end of the node must wake: the longest there is
WOKEN_WITHIN_S = 55  # less than that: it was woken
WITHIN_S = 90.0


class Answer:
    """A status, headers and a decoded body."""

    def __init__(self, response: http.client.HTTPResponse, data: bytes) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.data = data

    @property
    def body(self) -> Any:
        return json.loads(self.data)


class Api:
    """Calls of one token, in one namespace."""

    def __init__(self, port: int, token: str | None, namespace: str) -> None:
        self.port = port
        self.token = token
        self.namespace = namespace

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """One call, by a connection of its own."""
        sent = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WITHIN_S)
        try:
            connection.request(
                method, path, None if body is None else data, {**sent, **(headers or {})}
            )
            response = connection.getresponse()
            return Answer(response, response.read())
        finally:
            connection.close()

    def get(self, path: str, **query: Any) -> Answer:
        return self.call("GET", f"{path}?{urlencode(query)}" if query else path)

    def item(self, topic: str, payload: bytes = b"", **more: Any) -> dict[str, Any]:
        encoded = base64.b64encode(payload).decode()
        return {"namespace": self.namespace, "topic": topic, "payload": encoded, **more}

    def enqueue(self, topic: str, *payloads: bytes, **more: Any) -> list[int]:
        """Put jobs in that differ by their payloads alone."""
        answer = self.call("POST", "/enqueue", [self.item(topic, p, **more) for p in payloads])
        assert answer.status == 200, answer.data
        ids: list[int] = answer.body
        return ids

    def dequeue(self, topic: str, limit: int = 100, **more: Any) -> list[dict[str, Any]]:
        answer = self.get("/dequeue", namespace=self.namespace, topic=topic, limit=limit, **more)
        assert answer.status == 200, answer.data
        jobs: list[dict[str, Any]] = answer.body
        return jobs

    def take(self, topic: str, **more: Any) -> dict[str, Any]:
        """The next job, which there is."""
        (job,) = self.dequeue(topic, 1, **more)
        return job

    def handle(self, topic: str, job: dict[str, Any] | int, **more: Any) -> dict[str, Any]:
        """What names a job, with its token where it was taken."""
        meant = {"id": job} if isinstance(job, int) else {"id": job["id"], "token": job["token"]}
        return {**meant, "namespace": self.namespace, "topic": topic, **more}

    def ack(self, topic: str, job: dict[str, Any] | int) -> int:
        return self.call("POST", "/ack", self.handle(topic, job)).status

    def ack_and_dequeue(self, topic: str, *jobs: dict[str, Any], **query: Any) -> Answer:
        place = urlencode({"namespace": self.namespace, "topic": topic, **query})
        return self.call("POST", f"/dequeue?{place}", [self.handle(topic, job) for job in jobs])

    def nack(self, topic: str, job: dict[str, Any] | int, error: str = "no", **more: Any) -> int:
        return self.call("POST", "/nack", self.handle(topic, job, error=error, **more)).status

    def extend(self, topic: str, job: dict[str, Any] | int, lease: float) -> Answer:
        return self.call("POST", "/extend", self.handle(topic, job, lease=lease))

    def job(self, topic: str, id: int) -> dict[str, Any]:
        answer = self.get("/job", namespace=self.namespace, topic=topic, id=id)
        assert answer.status == 200, answer.data
        found: dict[str, Any] = answer.body
        return found

    def dead(self, topic: str, **more: Any) -> list[dict[str, Any]]:
        answer = self.get("/dead", namespace=self.namespace, topic=topic, **more)
        assert answer.status == 200, answer.data
        found: list[dict[str, Any]] = answer.body
        return found

    def set_topic(self, topic: str, **settings: Any) -> None:
        path = f"/topics/{quote(self.namespace, safe='')}/{quote(topic, safe='')}"
        answer = self.call("PUT", path, settings)
        assert answer.status == 204, answer.data

    def stats(self, topic: str) -> dict[str, Any]:
        answer = self.get("/stats", namespace=self.namespace)
        assert answer.status == 200, answer.data
        (found,) = [one for one in answer.body if one["topic"] == topic]
        stats: dict[str, Any] = found
        return stats


def payload(job: dict[str, Any]) -> bytes:
    return base64.b64decode(job["payload"])
