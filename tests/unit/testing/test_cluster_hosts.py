"""Nodes of a test's cluster that run on hosts of their own."""

from pathlib import Path

from leveret.testing import cluster


class Hosts:
    """Two hosts that do not exist."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def address(self, name: str) -> str:
        return {"a": "10.0.0.1", "b": "10.0.0.2"}[name]

    def prefix(self, name: str) -> list[str]:
        return ["on", name]

    def cut(self, a: str, b: str, *, one_way: bool) -> None:
        self.calls.append(f"cut {a} {b} {one_way}")

    def heal(self) -> None:
        self.calls.append("heal")


def test_nodes_are_reached_at_the_addresses_of_their_hosts(tmp_path: Path) -> None:
    with cluster(2, folder=tmp_path, start=False, hosts=Hosts(), default_pass="secret") as pair:
        node = pair["b"]
        assert pair.url("b") == f"amqp://guest:secret@10.0.0.2:{node.amqp_port}/"
        assert pair.http_url("b") == f"http://10.0.0.2:{node.http_port}"
        assert node.http_login_url == f"http://guest:secret@10.0.0.2:{node.http_port}"
        peers = node.flags[node.flags.index("--cluster-peers") + 1].split(",")
        assert [peer.partition(":")[0] for peer in peers] == ["b=10.0.0.2", "a=10.0.0.1"]


def test_hosts_make_the_cuts(tmp_path: Path) -> None:
    hosts = Hosts()
    with cluster(2, folder=tmp_path, start=False, hosts=hosts) as pair:
        pair.cut("a", "b", one_way=True)
        pair.isolate("b")
        pair.heal()
    assert hosts.calls == ["cut a b True", "cut b a False", "heal"]
