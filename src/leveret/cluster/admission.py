"""Decide which nodes may connect, and explain each refusal in one sentence.

Each side of a handshake checks the card of the other. A refusal is one sentence that names both
nodes and says what to do, so that it fits the log of either side. This module is pure.
"""

from leveret.cluster.errors import LinkRefusedError
from leveret.cluster.handshake import (
    HAS_DATA,
    LOST_DATA,
    OTHER_CLUSTER,
    OTHER_FORMAT,
    OTHER_NODE,
    OTHER_PEERS,
    REMOVED,
    TWICE,
    Card,
)
from leveret.cluster.raft.members import Members


def require_welcome(
    me: Card, members: Members | None, peer: Card, here: Card | None = None
) -> None:
    """Raise `LinkRefusedError` if a node that knows the secret must not be connected with.

    `members` are those of the own cluster; None on a new node. They may be old: a node with a
    number that was not given yet as far as they know has joined since. `here` is the node of the
    same name that is connected now.
    """
    _require_format(me, peer)
    if peer.name == me.name:
        raise name_twice(me.name, me.address, peer.address)
    if me.cluster and peer.cluster and me.cluster != peer.cluster:
        raise _other_cluster(me, peer)
    if me.cluster and members is not None:
        _require_member(members, peer, here)
    elif peer.cluster == b"" and me.peers != peer.peers:
        raise _refused(
            OTHER_PEERS,
            f"node {me.name} lists the peers {', '.join(me.peers)} and node {peer.name} lists "
            f"{', '.join(peer.peers)}: give all new nodes the same --cluster-peers",
        )


def _require_format(me: Card, peer: Card) -> None:
    for old, new in ((me, peer), (peer, me)):
        if old.format_max < new.format_min:
            raise _refused(
                OTHER_FORMAT,
                f"node {old.name} can read log formats up to {old.format_max} and node {new.name} "
                f"needs {new.format_min} or later: upgrade node {old.name}",
            )


def _other_cluster(me: Card, peer: Card) -> LinkRefusedError:
    for some, other in ((peer, me), (me, peer)):
        if some.has_data:
            return _refused(
                HAS_DATA,
                f"node {some.name} has data of its own, so it cannot join the cluster of node "
                f"{other.name}: to let it join without its data, stop it, move its data directory "
                "away and start it again",
            )
    return _refused(
        OTHER_CLUSTER,
        f"node {peer.name} belongs to cluster {peer.cluster.hex()} and node {me.name} to cluster "
        f"{me.cluster.hex()}: correct --cluster-peers, or to let a node join the other cluster, "
        "stop it, move its data directory away and start it again",
    )


def _require_member(members: Members, peer: Card, here: Card | None) -> None:
    """Raise unless a node is a member, is new and may become one, or joined after `members`.

    A new node need not be in the list of this one: it knows the secret, and its own list names
    the cluster.
    """
    if peer.number >= members.next_number and peer.cluster:
        return
    member = members.named(peer.name)
    if member is not None and member.uid != peer.uid:
        if here is not None and here.uid == member.uid:  # the member is well: keep it
            raise name_twice(peer.name, here.address, peer.address)
        raise _refused(
            LOST_DATA,
            f"node {peer.name} is a member of the cluster with another data directory than it has "
            "now: bring its directory back; start a new node with another --node; if the data of "
            f"{peer.name} are lost, run `leveret ctl cluster remove {peer.name}` to let it join "
            "again without them",
        )
    if member is not None:
        return
    if peer.cluster:
        raise removed(peer.name)


def removed(name: str) -> LinkRefusedError:
    return _refused(
        REMOVED,
        f"node {name} was removed from the cluster: stop it, or move its data directory away and "
        "start it again to let it join",
    )


def name_twice(name: str, first: str, second: str) -> LinkRefusedError:
    return _refused(
        TWICE,
        f"two nodes are called {name}, at {first} and at {second}: stop one of them, or start it "
        "with another --node (after a restart this may pass in a few seconds)",
    )


def other_node(wanted: str, found: str, where: str) -> LinkRefusedError:
    return _refused(
        OTHER_NODE,
        f"node {found} answers at the address {where} of node {wanted}: correct --cluster-peers "
        "and --cluster-listen",
    )


def _refused(code: int, sentence: str) -> LinkRefusedError:
    return LinkRefusedError(code, sentence, by_peer=False)
