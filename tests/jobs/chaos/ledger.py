"""The ledger: workers report each job over TCP, one line each.

`took ID TOKEN KEY` when a job was handed out, `apply ID TOKEN` before it is acknowledged (answered
`yes`, or `no` where the ledger knows a larger token), `acked ID TOKEN` when the service has said
so. A worker can be killed between any two of them.
"""

import socketserver
import threading
import time
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Entry:
    """All that is known of one job."""

    took: list[int] = field(default_factory=list)  # tokens, as told
    applied: list[int] = field(default_factory=list)
    acked: list[int] = field(default_factory=list)
    applied_s: float = 0.0  # when it was first applied
    key: str = ""


class Ledger:
    """Entries by the id of the job."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.refused = 0  # applications under a token that was not the newest
        self._put_in = 0
        self._done = 0
        self.news = threading.Condition()

    def told(self, line: str) -> str:
        """What a worker says; the answer."""
        verb, id_, token_, *rest = line.split(" ")
        token = int(token_)
        with self.news:
            entry = self.entries.setdefault(int(id_), Entry())
            self.news.notify_all()
            if verb == "took":
                entry.took.append(token)
                entry.key = rest[0] if rest else ""
            elif verb == "acked":
                entry.acked.append(token)
            elif token < max(entry.took, default=0):
                self.refused += 1
                return "no"
            else:
                self._done += not entry.applied
                entry.applied_s = entry.applied_s or time.monotonic()
                entry.applied.append(token)
        return "yes"

    def on_put_in(self, count: int) -> None:
        """Note that a producer was told of new jobs."""
        with self.news:
            self._put_in += count

    def waiting(self) -> int:
        """Return the number of jobs that are known and not done."""
        with self.news:
            return self._put_in - self._done

    def faults(self, told: dict[int, float]) -> list[str]:
        """What is wrong, given the ids that producers were told, and when."""
        found = [f"job {id} was put in and never done" for id in told if not self._is_done(id)]
        keys: Counter[str] = Counter()
        for id, entry in self.entries.items():
            keys[entry.key] += bool(entry.key)
            if len(set(entry.took)) < len(entry.took):
                found.append(f"job {id} was handed out twice under one token: {entry.took}")
            if entry.acked and max(entry.took) > min(entry.acked):
                found.append(f"job {id} came back after its ack: {entry.took}, {entry.acked}")
            if len(entry.acked) > 1:
                found.append(f"job {id} was acknowledged twice: {entry.acked}")
        found += [f"the key {key} made {count} jobs" for key, count in keys.items() if count > 1]
        return found

    def _is_done(self, id: int) -> bool:
        return id in self.entries and bool(self.entries[id].applied)


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, LedgerServer)
        for line in self.rfile:
            answer = self.server.ledger.told(line.decode().strip())
            try:
                self.wfile.write(f"{answer}\n".encode())
            except OSError:
                return  # the worker was killed


class LedgerServer(socketserver.ThreadingTCPServer):
    """Serves a ledger on a free port, in threads."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ledger = Ledger()
        self.port: int = self.server_address[1]
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    def handle_error(self, request: object, client_address: object) -> None:
        """A worker that is killed resets its connection: that is what it is for."""

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()
