"""The commands that make a network for nodes, cut it, and remove it again."""

import os
import signal

import pytest

from leveret.errors import ConfigError
from tools.chaos_cluster import namespaces as module
from tools.chaos_cluster.namespaces import Namespaces, free_subnet, namespaces, remove_left
from tools.chaos_cluster.network_faults import NETWORK_FAULTS, available


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the commands that were run. All of them succeed, without an effect."""
    found: list[str] = []

    def run(command: list[str]) -> str:
        found.append(" ".join(command))
        return ""

    monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(module, "require_network_rights", lambda: None)
    return found


def test_cut_drops_packets_where_they_arrive(commands: list[str]) -> None:
    spaces = Namespaces("ab")
    spaces.cut("a", "b", one_way=True)
    assert [command.split()[2:] for command in commands] == [
        f"{spaces.prefix('b')[-1]} rule add pref 10 from {spaces.address('a')} blackhole".split()
    ]


def test_heal_takes_back_each_direction_once(commands: list[str]) -> None:
    spaces = Namespaces("ab")
    spaces.cut("a", "b", one_way=True)
    spaces.cut("a", "b", one_way=False)
    commands.clear()
    spaces.heal()
    spaces.heal()
    assert len(commands) == 2
    assert all("rule del" in command for command in commands)


def test_calm_removes_what_shape_has_set(commands: list[str]) -> None:
    spaces = Namespaces("ab")
    spaces.shape("b", ["netem", "loss", "1%"])
    spaces.calm()
    spaces.calm()
    assert [command.split()[4] for command in commands] == ["replace", "del"]


def test_everything_is_removed_after_an_error(commands: list[str]) -> None:
    with pytest.raises(ZeroDivisionError), namespaces(2) as spaces:
        commands.clear()
        raise ZeroDivisionError
    bridge = f"lv{os.getpid()}"
    assert [f"ip netns del {spaces.prefix(name)[-1]}" for name in "ab"] == commands[:2]
    assert commands[-1] == f"ip link del {bridge}"


def test_sigterm_ends_a_run_in_order(commands: list[str]) -> None:
    with pytest.raises(SystemExit), namespaces(1):
        commands.clear()
        signal.raise_signal(signal.SIGTERM)
    assert commands
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_kernel_without_netem_is_noticed(
    commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str]) -> str:
        if "netem" in command:
            raise RuntimeError("Error: Specified qdisc kind is unknown.")
        return ""

    monkeypatch.setattr(module, "run", run)
    with namespaces(1) as spaces:
        assert not spaces.has_netem
        assert sorted(available(spaces)) == ["loose-contact", "slow-line"]


def test_all_faults_of_the_network_are_available_with_netem(commands: list[str]) -> None:
    with namespaces(1) as spaces:
        assert sorted(available(spaces)) == sorted(NETWORK_FAULTS)


def test_namespaces_of_an_ended_process_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = f"lv99999999-a (id: 1)\nlv{os.getpid()}-a\nother\n"
    ran: list[str] = []

    def run(command: list[str]) -> str:
        ran.append(" ".join(command))
        return listed

    monkeypatch.setattr(module, "run", run)
    remove_left()
    assert ran[1:] == [
        "ip netns del lv99999999-a",
        "ip link del lv99999999-a",
        "ip link del lv99999999",
    ]


def test_subnet_of_another_process_is_passed_over() -> None:
    first = free_subnet("inet 127.0.0.1/8")
    assert free_subnet(f"inet {first}.254/24") not in (first, "")


def test_missing_rights_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigError, match="needs root"), namespaces(1):
        pass
