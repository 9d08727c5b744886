"""A network of the kernel for the nodes of a cluster: one network namespace for each node.

    node a: eth0 10.213.N.1 ──┐
    node b: eth0 10.213.N.2 ──┼── bridge 10.213.N.254, where the clients are
    node c: eth0 10.213.N.3 ──┘

A cut is a rule in the namespace that receives: it drops the packets of one address and tells
nobody. Only nodes are cut off from each other; clients reach all of them. `tc` delays, loses and
reorders the packets that a node sends, to nodes and to clients.

This needs root and the programs `ip` and `tc` (Debian's package iproute2). All names have the id of
this process. `close` removes everything, and a start removes what a killed process has left.
"""

import contextlib
import os
import re
import shutil
import signal
import string
import subprocess
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from leveret.errors import ConfigError

SUBNET: Final = "10.213"  # of private addresses; each process has another third number
SUBNETS: Final = 256
CLIENTS: Final = 254  # the last number of the address of clients
COMMAND_S: Final = 60.0
NEEDS: Final = (
    "--namespaces needs root and the programs ip and tc (on Debian: apt-get install iproute2)"
)
# Rules are tried in this order. The kernel's own rule for local addresses comes first, at 0.
_CUT_RULE: Final = 10
_LOCAL_RULE: Final = 20
_LEFT: Final = re.compile(r"^lv(\d+)-[a-z]\b", re.MULTILINE)


class Namespaces:
    """The hosts of a cluster: `leveret.testing.cluster.Hosts`."""

    def __init__(self, names: Iterable[str]) -> None:
        self._number = {name: number for number, name in enumerate(names, 1)}
        self._subnet = f"{SUBNET}.0"
        self._bridge = f"lv{os.getpid()}"
        self._cuts: set[tuple[str, str]] = set()
        self._shaped: set[str] = set()  # nodes whose packets `tc` changes
        self.has_netem = False  # the kernel can delay, lose and reorder packets

    def address(self, name: str) -> str:
        """Return the IP address of a node."""
        return f"{self._subnet}.{self._number[name]}"

    def prefix(self, name: str) -> list[str]:
        """Return the words in front of a command that runs in the namespace of a node."""
        return ["ip", "netns", "exec", self._space(name)]

    def _space(self, name: str) -> str:
        return f"{self._bridge}-{name}"

    def _hardware(self, name: str) -> str:
        return f"02:00:00:00:00:{self._number[name]:02x}"

    def open(self) -> None:
        """Make the bridge and the namespaces."""
        self._subnet = free_subnet(run(["ip", "-4", "addr"]))
        run(["ip", "link", "add", self._bridge, "type", "bridge"])
        run(["ip", "addr", "add", f"{self._subnet}.{CLIENTS}/24", "dev", self._bridge])
        run(["ip", "link", "set", self._bridge, "up"])
        for name in self._number:
            self._add(name)
        first = next(iter(self._number))
        self.has_netem = self._try_netem(first)

    def _add(self, name: str) -> None:
        space, cable = self._space(name), self._space(name)
        run(["ip", "netns", "add", space])
        peer = ["peer", "name", "eth0", "address", self._hardware(name), "netns", space]
        run(["ip", "link", "add", cable, "type", "veth", *peer])
        run(["ip", "link", "set", cable, "master", self._bridge, "up"])
        inside = ["ip", "-n", space]
        run([*inside, "link", "set", "lo", "up"])
        run([*inside, "link", "set", "eth0", "up"])
        run([*inside, "addr", "add", f"{self.address(name)}/24", "dev", "eth0"])
        # Rules for cuts must come before the rule for local addresses.
        run([*inside, "rule", "add", "pref", str(_LOCAL_RULE), "lookup", "local"])
        run([*inside, "rule", "del", "pref", "0"])
        # Without ARP: otherwise connections fail with "no route to host" after a long cut.
        for other in self._number:
            if other != name:
                place = [self.address(other), "lladdr", self._hardware(other), "dev", "eth0"]
                run([*inside, "neigh", "replace", *place, "nud", "permanent"])

    def _try_netem(self, name: str) -> bool:
        try:
            self.shape(name, ["netem", "delay", "1ms"])
        except RuntimeError:
            return False
        self.calm()
        return True

    def cut(self, a: str, b: str, *, one_way: bool) -> None:
        """Drop all packets from `a` to `b`, and those back unless the cut is one way."""
        for source, target in [(a, b)] if one_way else [(a, b), (b, a)]:
            if (source, target) not in self._cuts:
                self._change_rule("add", source, target)
                self._cuts.add((source, target))

    def heal(self) -> None:
        """Let all packets pass."""
        for source, target in sorted(self._cuts):
            self._change_rule("del", source, target)
        self._cuts.clear()

    def _change_rule(self, verb: str, source: str, target: str) -> None:
        rule = ["pref", str(_CUT_RULE), "from", self.address(source), "blackhole"]
        run(["ip", "-n", self._space(target), "rule", verb, *rule])

    def shape(self, name: str, words: list[str]) -> None:
        """Let `tc` change the packets that a node sends; `words` are a queueing discipline."""
        run(["tc", "-n", self._space(name), "qdisc", "replace", "dev", "eth0", "root", *words])
        self._shaped.add(name)

    def calm(self) -> None:
        """Send the packets of all nodes unchanged."""
        for name in sorted(self._shaped):
            run(["tc", "-n", self._space(name), "qdisc", "del", "dev", "eth0", "root"])
        self._shaped.clear()

    def close(self) -> None:
        """Remove everything that exists."""
        remove(self._bridge, list(self._number))


def free_subnet(addresses: str) -> str:
    """Return a subnet that none of these addresses is in. Processes begin at different places."""
    for step in range(SUBNETS):
        subnet = f"{SUBNET}.{(os.getpid() + step) % SUBNETS}"
        if f" {subnet}." not in addresses:
            return subnet
    raise RuntimeError(f"all networks in {SUBNET}.0.0/16 are in use")


def remove(bridge: str, names: Iterable[str]) -> None:
    """Remove the namespaces and the bridge of a process; some may not exist."""
    commands = [["ip", "netns", "del", f"{bridge}-{name}"] for name in names]
    commands += [["ip", "link", "del", f"{bridge}-{name}"] for name in names]
    for command in [*commands, ["ip", "link", "del", bridge]]:
        with contextlib.suppress(RuntimeError):
            run(command)


def remove_left() -> None:
    """Remove the namespaces of processes that do not run any more."""
    for found in _LEFT.finditer(run(["ip", "netns", "list"])):
        if not Path("/proc", found[1]).exists():
            remove(f"lv{found[1]}", [found[0].partition("-")[2]])


def require_network_rights() -> None:
    """Raise ConfigError if this process cannot make namespaces."""
    if os.geteuid() != 0 or not all(shutil.which(program) for program in ("ip", "tc")):
        raise ConfigError(NEEDS)


@contextlib.contextmanager
def namespaces(size: int) -> Iterator[Namespaces]:
    """Make namespaces, and remove them at the end, also after Ctrl+C and SIGTERM."""
    require_network_rights()
    remove_left()
    found = Namespaces(string.ascii_lowercase[:size])
    with ended_by_sigterm():
        try:
            found.open()
            yield found
        finally:
            with without_interrupts():
                found.close()


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit, so that a block is left in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Ignore Ctrl+C and SIGTERM for a short time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def run(command: list[str]) -> str:
    """Run a command and return its output. Raise RuntimeError if it fails.

    It has a session of its own, so that Ctrl+C does not end it halfway.
    """
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
        start_new_session=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
