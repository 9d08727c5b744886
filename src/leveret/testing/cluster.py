"""Run a cluster of real nodes for a test, and take its nodes and its network away.

`cluster(3)` starts processes of `leveret serve` on free ports and temporary directories. It yields
a `RunningCluster` that says how to reach the nodes. The nodes are killed at the end of the `with`
block. They reach each other through proxies of the test's process (`leveret.testing.cables`), so
that a test can cut them off from each other without rights over the network. A test that has these
rights can give each node a host of its own (`Hosts`).

All methods wait for the nodes, up to `WITHIN_S`: they are meant for busy machines.
"""

import contextlib
import http.client
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from leveret.config.settings import Settings
from leveret.testing.cables import Cables
from leveret.testing.ports import HOST, free_port

WITHIN_S: Final = 240.0  # for a start, a stop, and the election of a leader
POLL_S: Final = 0.05
ANSWER_S: Final = 10.0  # for one HTTP answer
# On a busy machine a process may get no time for more than a second, and must not lose its lead.
ELECTION_TIMEOUT_MS: Final = 4_000
NODES_MAX: Final = 9
_NAMES: Final = "abcdefghi"
_LOG_END_CHARS: Final = 4000  # of a log in an error


class Cuts(Protocol):
    """Cuts nodes off from each other."""

    def cut(self, a: str, b: str, *, one_way: bool) -> None:
        """Let nothing pass from `a` to `b`, and nothing back unless the cut is one way."""

    def heal(self) -> None:
        """Let everything pass."""


class Hosts(Cuts, Protocol):
    """Gives each node a host of its own, and cuts the network between the hosts."""

    def address(self, name: str) -> str:
        """Return the IP address at which clients and other nodes reach a node."""

    def prefix(self, name: str) -> list[str]:
        """Return the words in front of a command that run it on the host of a node."""


class ClusterProcess:
    """One node: a process of `leveret serve` that may be killed and started again.

    It runs at `host`. `prefix` are the words in front of its command, if it does not run here.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        flags: list[str],
        env: dict[str, str],
        *,
        host: str = HOST,
        prefix: list[str] | None = None,
    ) -> None:
        self.name = name
        self.host = host
        self.data = folder / name  # its data directory
        self.log_file = folder / f"{name}.log"  # its standard error, of all its starts
        self.amqp_port = free_port()
        self.http_port = free_port()
        self.flags = flags
        self.env = env
        self.process: subprocess.Popen[bytes] | None = None  # None: it is not running
        self._prefix = prefix or []
        self._out_file = folder / f"{name}.out"

    @property
    def login(self) -> str:
        """Return the default user and password, `user:password`."""
        user = self.env.get("LEVERET_DEFAULT_USER", "guest")
        return f"{user}:{self.env.get('LEVERET_DEFAULT_PASS', 'guest')}"

    @property
    def url(self) -> str:
        """Return its AMQP address, with a login."""
        return f"amqp://{self.login}@{self.host}:{self.amqp_port}/"

    @property
    def http_url(self) -> str:
        """Return its HTTP address, without a login."""
        return f"http://{self.host}:{self.http_port}"

    @property
    def http_login_url(self) -> str:
        """Return its HTTP address, with a login."""
        return f"http://{self.login}@{self.host}:{self.http_port}"

    @property
    def log(self) -> str:
        """Return what the node has logged."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    @property
    def addresses(self) -> dict[str, str]:
        """Return the addresses of its ready line by service; empty if it is not ready."""
        text = self._out_file.read_text() if self._out_file.exists() else ""
        line = next((line for line in text.splitlines() if line.startswith("leveret ready ")), "")
        return dict(word.split("=", 1) for word in line.split()[2:])

    def spawn(self) -> None:
        """Start the process. It need not be ready yet."""
        if self.process is not None:
            raise RuntimeError(f"node {self.name} is running")
        ports = ["--amqp-port", str(self.amqp_port), "--http-port", str(self.http_port)]
        options = ["--node", self.name, "--data", str(self.data), *ports, *self.flags]
        if self.host != HOST:
            options += ["--host", self.host]
        with self._out_file.open("wb") as out, self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._prefix, sys.executable, "-m", "leveret", "serve", *options],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env=self.env,
            )

    def wait_ready(self) -> None:
        """Wait for the ready line. Raise RuntimeError if the process ends before."""
        wait_until(lambda: bool(self.addresses) or self._has_ended(), f"node {self.name} is ready")
        if not self.addresses:
            raise RuntimeError(f"node {self.name} has ended:\n{self.log[-_LOG_END_CHARS:]}")

    def _has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        if self.process is None:
            raise RuntimeError(f"node {self.name} is not running")
        self.process.send_signal(number)

    def wait_ended(self) -> int:
        """Wait for the end of the process. Return its exit code."""
        assert self.process is not None
        code = self.process.wait(WITHIN_S)
        self.process = None
        return code

    def facts(self) -> dict[str, Any] | None:
        """Return the cluster as the node sees it (`GET /api/cluster`); None: no answer."""
        if self.process is None:
            return None
        login = b64encode(self.login.encode()).decode()
        connection = http.client.HTTPConnection(self.host, self.http_port, timeout=ANSWER_S)
        try:
            connection.request("GET", "/api/cluster", headers={"Authorization": f"Basic {login}"})
            answer = connection.getresponse()
            found: dict[str, Any] = msgspec.json.decode(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            return None  # it starts, stops, or changes its role
        finally:
            connection.close()
        return found if answer.status == 200 else None


class RunningCluster:
    """The nodes of a cluster, by name: a, b, c and so on."""

    def __init__(self, nodes: dict[str, ClusterProcess], cuts: Cuts | None) -> None:
        self._nodes = nodes
        self._maybe_cuts = cuts  # None: nothing can be cut

    @property
    def nodes(self) -> list[str]:
        """Return the names of all nodes, running or not."""
        return list(self._nodes)

    @property
    def running(self) -> list[str]:
        """Return the names of the nodes whose process was started and not ended."""
        return [name for name, node in self._nodes.items() if node.process is not None]

    def __getitem__(self, name: str) -> ClusterProcess:
        return self._nodes[name]

    def url(self, name: str) -> str:
        """Return the AMQP address of a node, with a login."""
        return self._nodes[name].url

    def http_url(self, name: str) -> str:
        """Return the HTTP address of a node, without a login."""
        return self._nodes[name].http_url

    @property
    def leader(self) -> str:
        """Return the node that a majority of the members follows; wait until there is one."""
        found: list[str] = []
        wait_until(lambda: bool(found) or self._find_leader(found), "a node leads")
        return found[0]

    @property
    def followers(self) -> list[str]:
        """Return all nodes but the leader."""
        leader = self.leader
        return [name for name in self._nodes if name != leader]

    def _find_leader(self, found: list[str]) -> bool:
        votes: Counter[str] = Counter()
        members = 0
        for node in self._nodes.values():
            facts = node.facts()
            if facts is not None and facts["raft"] is not None:
                votes[facts["raft"]["leader"]] += 1
                members = max(members, len(facts["members"]))
        for name, count in votes.items():
            if name and count > members // 2:
                found.append(name)
        return bool(found)

    def start(self, *names: str, wait: bool = True) -> None:
        """Start nodes, and wait until each serves clients, itself or through another node."""
        for name in names:
            self._nodes[name].spawn()
        if wait:
            for name in names:
                self._nodes[name].wait_ready()

    def stop(self, *names: str) -> None:
        """Stop nodes in order (SIGTERM), and wait for their end. A leader hands over."""
        for name in names:
            self._nodes[name].signal(signal.SIGTERM)
        for name in names:
            self._nodes[name].wait_ended()

    def kill(self, *names: str) -> None:
        """Kill nodes (SIGKILL)."""
        for name in names:
            self._nodes[name].signal(signal.SIGKILL)
        for name in names:
            self._nodes[name].wait_ended()

    def pause(self, name: str) -> None:
        """Freeze a node (SIGSTOP): its connections stay open, and it is silent."""
        self._nodes[name].signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a frozen node go on."""
        self._nodes[name].signal(signal.SIGCONT)

    def wipe(self, name: str) -> None:
        """Remove the data directory of a node that is not running."""
        if self._nodes[name].process is not None:
            raise RuntimeError(f"node {name} is running")
        shutil.rmtree(self._nodes[name].data, ignore_errors=True)

    def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Cut two nodes off from each other, or let nothing pass from `a` to `b` only."""
        self._cuts.cut(a, b, one_way=one_way)

    def isolate(self, name: str) -> None:
        """Cut a node off from all others."""
        for other in self._nodes:
            if other != name:
                self.cut(name, other)

    def heal(self) -> None:
        """Take back all cuts."""
        self._cuts.heal()

    @property
    def _cuts(self) -> Cuts:
        if self._maybe_cuts is None:
            raise RuntimeError("the nodes are connected directly: they cannot be cut off")
        return self._maybe_cuts

    def wait_for_members(self) -> None:
        """Wait until all nodes are connected, vote, and have all blocks of the leader."""
        wait_until(self._is_whole, "all nodes vote and have caught up")

    def _is_whole(self) -> bool:
        facts = self._nodes[self.leader].facts()
        members = facts["members"] if facts is not None else []
        return len(members) == len(self._nodes) and all(
            row["is_connected"] and row["role"] != "non-voter" and row["lag_blocks"] in (0, None)
            for row in members
        )

    def close(self) -> None:
        """Kill all nodes."""
        for node in self._nodes.values():
            if node.process is not None:
                node.process.kill()
                node.wait_ended()


@contextlib.contextmanager
def cluster(
    size: int = 3,
    *,
    folder: Path | None = None,
    start: bool = True,
    is_direct: bool = False,
    hosts: Hosts | None = None,
    **settings: Any,
) -> Iterator[RunningCluster]:
    """Run a cluster of real nodes until the end of the block.

    `folder` keeps data directories and logs; without it they are removed at the end. `settings` are
    fields of `leveret.config.settings.Settings`, for every node. A leader may be silent for
    `ELECTION_TIMEOUT_MS`, unless they say otherwise. With `start=False` the test starts the nodes
    itself. With `is_direct` there are no proxies between the nodes, which cost time: then
    nothing can be cut. With `hosts` there are none either, and the hosts make the cuts; then
    `settings` need a `default_pass`, because no node takes the public password from another host.
    """
    if not 1 <= size <= NODES_MAX:
        raise ValueError(f"a cluster of {size} nodes: 1 to {NODES_MAX} are possible")
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leveret-")))
        cables: Cables | None = None
        if not is_direct and hosts is None:
            cables = Cables()
            stack.callback(cables.close)
        settings.setdefault("cluster_election_timeout_ms", ELECTION_TIMEOUT_MS)
        nodes = _make_nodes(_NAMES[:size], folder, cables, hosts, settings)
        running = RunningCluster(nodes, cables if hosts is None else hosts)
        stack.callback(running.close)
        if start:
            running.start(*running.nodes)
            running.wait_for_members()
        yield running


def _make_nodes(
    names: str,
    folder: Path,
    cables: Cables | None,
    hosts: Hosts | None,
    settings: dict[str, Any],
) -> dict[str, ClusterProcess]:
    folder.mkdir(parents=True, exist_ok=True)
    secret = folder / "secret"
    secret.write_text(secrets.token_hex())
    secret.chmod(0o600)
    env = {key: value for key, value in os.environ.items() if not key.startswith("LEVERET_")}
    for name, value in settings.items():
        if name not in Settings.__dataclass_fields__:
            raise TypeError(f"{name} is no setting")
        env[f"LEVERET_{name.upper()}"] = str(value)
    ports = {name: free_port() for name in names}
    address = {name: HOST if hosts is None else hosts.address(name) for name in names}
    nodes: dict[str, ClusterProcess] = {}
    for name in names:
        peers = [f"{name}={address[name]}:{ports[name]}"]
        for other in names:
            if other != name:
                port = ports[other]
                if cables is not None:
                    port = free_port()
                    cables.add(name, other, port=port, target_port=ports[other])
                peers.append(f"{other}={address[other]}:{port}")
        flags = ["--cluster-listen", f"{address[name]}:{ports[name]}"]
        flags += ["--cluster-peers", ",".join(peers), "--cluster-secret-file", str(secret)]
        prefix = None if hosts is None else hosts.prefix(name)
        host = address[name]
        nodes[name] = ClusterProcess(name, folder, flags, env, host=host, prefix=prefix)
    return nodes


def wait_until(is_done: Callable[[], bool], what: str) -> None:
    """Wait until something is so. Raise TimeoutError with `what` after `WITHIN_S`."""
    last_s = time.monotonic() + WITHIN_S
    while not is_done():
        if time.monotonic() > last_s:
            raise TimeoutError(f"waited for {WITHIN_S:.0f} s: {what}")
        time.sleep(POLL_S)
