"""Logins over HTTP: guesses, floods, and clients that go away."""

import socket
import threading
import time
from base64 import b64encode
from collections.abc import Callable

from leveret.auth.fair_queue import NETWORK_WAITING_MAX
from leveret.testing import ManualClock
from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask, ask_whole

WITHIN_S = 60.0


def wait_until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + WITHIN_S
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_too_many_guesses_answer_429_and_right_passwords_pass() -> None:
    with broker(http=True, login_failures_max=2, clock=ManualClock()) as server:
        ask(server, "PUT", "/api/users/amy", {"password": "right", "tags": "management"})
        for number in range(4):
            assert ask(server, "GET", "/api/whoami", login=f"guest:wrong{number}")[0] == 401
        status, _, headers = ask_whole(server, "GET", "/api/whoami", login="guest:wrong")
        assert status == 429
        assert headers["Retry-After"] == "1"
        assert ask(server, "GET", "/api/whoami", login="guest:wrong1")[0] == 401
        for login in ("guest:guest", "amy:right"):
            assert ask(server, "GET", "/api/whoami", login=login)[0] == 200


class HashingThread:
    """Stands in for the hashing thread of a node: it computes when the test says so."""

    def __init__(self, server: RunningBroker) -> None:
        self._node = server.node
        self._loop = server.node.amqp._loop
        self.work: list[tuple[Callable[[], bool], Callable[[bool | None], None]]] = []
        self.has_work = threading.Semaphore(0)
        server.node.directory.password_verifier.run_in_thread = self._put

    def _put(self, work: Callable[[], bool], then: Callable[[bool | None], None]) -> None:
        self.work.append((work, then))
        self.has_work.release()

    def waiting(self) -> int:
        return len(self._node.directory.password_verifier._queue)

    def compute(self) -> None:
        """Compute the next hash, as soon as there is one."""
        assert self.has_work.acquire(timeout=60)
        work, then = self.work.pop(0)
        done = threading.Event()

        def on_loop() -> None:
            then(work())
            done.set()

        self._loop.call_soon_threadsafe(on_loop)
        assert done.wait(60)


def sent(server: RunningBroker, login: str) -> socket.socket:
    """Send a request with a login, and do not wait for the answer."""
    encoded = b64encode(login.encode()).decode()
    client = socket.create_connection((server.host, server.http_port), timeout=60)
    head = f"GET /api/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {encoded}\r\n\r\n"
    client.sendall(head.encode())
    return client


def status_of(client: socket.socket) -> int:
    return int(client.recv(65_536).split()[1])


def test_full_line_of_logins_answers_503_and_forgets_closed_sockets() -> None:
    with broker(http=True) as server:
        thread = HashingThread(server)
        clients = [sent(server, "first:x")]
        wait_until(lambda: thread.work)
        clients += [sent(server, f"stranger{n}:x") for n in range(NETWORK_WAITING_MAX)]
        wait_until(lambda: thread.waiting() == NETWORK_WAITING_MAX)
        status, _, headers = ask_whole(server, "GET", "/api/whoami", login="stranger:x")
        assert (status, headers["Retry-After"]) == (503, "5")
        assert ask(server, "GET", "/api/whoami", login="guest:guest")[0] == 200
        for client in clients[1:]:
            client.close()
        wait_until(lambda: thread.waiting() == 0)
        with sent(server, "stranger:x") as late:
            thread.compute()
            assert status_of(clients[0]) == 401
            thread.compute()
            assert status_of(late) == 401
        clients[0].close()
