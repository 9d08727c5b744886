"""State of a store for health checks and metrics, read without I/O.

Plain dataclasses: a node without jobs imports nothing else for them.
"""

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class ServerReport:
    """One server that the store needs: a shard, or Redis."""

    name: str  # its kind and address, without the password
    public_name: str  # its kind and number, for clients
    is_shard: bool
    is_up: bool
    was_up: bool  # it has answered since the start of the node
    cause: str  # why it is down
    failures: int  # how often it went down
    skew_ms: int | None  # how far the node's clock is ahead of the server's; None: not known
    write_refusal: str  # why the server takes no changes though it answers; empty if it does
    skew_refusal: str  # why the node leases no jobs of this server; empty if it does
    connections_refused: int = 0

    def fault(self) -> str:
        """Return why the server cannot be used fully; empty if all is well."""
        if not self.is_up:
            return f"{self.name} does not answer: {self.cause or 'it has not been asked yet'}"
        if self.write_refusal:
            return f"{self.name} refuses changes: {self.write_refusal}"
        return self.skew_refusal

    def takes_changes(self) -> bool:
        return self.is_up and not self.write_refusal


@dataclass(slots=True, kw_only=True)
class TopicReport:
    """Jobs of one topic by state, and counters of this node."""

    namespace: str
    topic: str
    states: dict[str, int]  # empty where the shard does not answer
    oldest_ready_ms: int | None
    counts: dict[str, int]


@dataclass(slots=True, kw_only=True)
class StoreReport:
    """The state of a whole store."""

    servers: list[ServerReport] = field(default_factory=list)
    log_jobs: int = 0  # jobs in the local log that may not be in their tables yet
    flush_lag_s: float = 0.0  # age of the oldest job counted by `log_jobs`
    busy_topics: int = 0  # topics whose jobs are leased ahead
    ended: list[str] = field(default_factory=list)  # parts that have stopped because of a bug
    topics: list[TopicReport] = field(default_factory=list)

    def faults(self) -> list[str]:
        """Return a sentence for each server that cannot be used fully."""
        return [fault for server in self.servers if (fault := server.fault())]

    def not_ready(self) -> list[str]:
        """Return why a load balancer must not send clients to the node; empty if it may.

        A server that has never answered has a wrong address, login or name. One shard that fails
        later does not count: the other topics work, and every node would be taken out for it.
        """
        shards = [server for server in self.servers if server.is_shard]
        if shards and all(server.fault() for server in shards):
            return [server.fault() for server in shards]
        return [server.fault() for server in self.servers if not server.was_up]
