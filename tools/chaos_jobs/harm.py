"""Carries out the steps of outages, and notes each with its time in a book."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from tools.chaos_jobs.node import Node
from tools.chaos_jobs.outages import ALL, Step
from tools.services import Postgres, RedisServer


class Harm:
    """Harms the servers and nodes of a run."""

    def __init__(
        self, book: Path, postgres: list[Postgres], redis: RedisServer, nodes: list[Node]
    ) -> None:
        self._name = book.name
        self._book = os.open(book, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._postgres = postgres
        self._redis = redis
        self._nodes = nodes

    def note(self, kind: str, **facts: Any) -> None:
        line = json.dumps({"kind": kind, "at": time.monotonic(), "by": self._name, **facts})
        os.write(self._book, line.encode() + b"\n")

    def carry_out(self, step: Step) -> None:
        self.note("fault", what=str(step))
        some = slice(None) if step.target == ALL else slice(step.target, step.target + 1)
        servers, nodes, redis = self._postgres[some], self._nodes[some], self._redis
        match step.what:
            case "freeze shard":
                for server in servers:
                    server.freeze()
            case "resume shard":
                for server in servers:
                    server.resume()
            case "freeze redis":
                redis.freeze()
            case "resume redis":
                redis.resume()
            case "wipe redis":
                redis.wipe()
            case "restart redis":
                redis.restart(signal.SIGKILL)
            case "cut off redis":
                redis.cut_connections()
            case "kill node":
                nodes[0].end(signal.SIGKILL)
            case "start node":
                nodes[0].launch()
            case "freeze node":
                nodes[0].freeze()
            case "resume node":
                nodes[0].resume()
            case other:
                raise ValueError(f"there is no step {other}")

    def resume_all(self) -> None:
        for server in (*self._postgres, self._redis):
            server.resume()
        for node in self._nodes:
            node.resume()

    def close(self) -> None:
        self.resume_all()
        os.close(self._book)
