"""The settings of one node: every option, declared once.

`Settings` is frozen and complete: each field has a default, so `Settings()` is a working broker,
and tests name only the fields they change. The name of a field is the key in the file. `LEVERET_`
and capitals make the environment variable; dashes make the flag. `Option.read` returns the type of
the field.

The text of a `ConfigError` about an option begins with the name of the field and a colon.
`Settings.placed` replaces the name by the place that an operator has to change.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from leveret.config.option import Option, Secret

_KINDS: Final = {bool: "bool", int: "int", float: "float", str: "str", Secret: "str"}
_MEBIBYTE: Final = 1024 * 1024
# `tls_ca: …` or `amqp_port and http_port: …`
_NAMED: Final = re.compile(r"([a-z0-9_]+)(?: and ([a-z0-9_]+))?(?=: )")


def _option(default: Any, help: str, *, kind: str = "", **facts: Any) -> Any:
    """Return a field of Settings that carries its Option; `kind` is needed without a default."""
    kind = kind or _KINDS.get(type(default), "path")
    option = Option(kind=kind, help=help, secret=isinstance(default, Secret), **facts)
    return field(default=default, metadata={"option": option})


def _port(default: int | None, help: str) -> Any:
    help += " 0 picks a free port."
    return _option(default, help, kind="int", low=0, high=65535, metavar="PORT")


def _file(help: str) -> Any:
    return _option(None, help, kind="path", metavar="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings; the help text of each option describes it."""

    data: Path = _option(
        Path("leveret-data"),
        "Data directory: holds everything that must survive a restart.",
        metavar="DIR",
    )
    durability: str = _option(
        "sync",
        "When a message is safe. sync: it is on disk. os: the operating system has it, so"
        " a power loss can lose confirmed messages. No other option turns syncs off.",
        choices=("sync", "os"),
    )
    disk_free_min: int = _option(
        50 * _MEBIBYTE,
        "Publishers are blocked while the disk of the data directory has less free space than"
        " this.",
        unit="bytes",
        low=0,
    )
    host: str = _option(
        "127.0.0.1",
        "Address to listen on. 0.0.0.0 means every IPv4 address; :: means every IPv6 and IPv4"
        " address (only IPv6 if the system cannot do both with one socket). An address that other"
        " machines can reach needs a password: see default_pass.",
        pattern=r"\S+",
        metavar="HOST",
    )
    amqp_port: int = _port(5672, "Port for AMQP clients.")
    http_port: int = _port(15672, "Port for the HTTP API and the web page.")
    amqps_port: int | None = _port(
        None, "Port for AMQP clients over TLS, usually 5671. Without it AMQP over TLS is off."
    )
    https_port: int | None = _port(
        None, "Port for the HTTP API over TLS, usually 15671. Without it HTTPS is off."
    )
    tls_cert: Path | None = _file(
        "Certificate of this node, followed by its intermediate certificates, as PEM."
    )
    tls_key: Path | None = _file(
        "Private key of the certificate, as PEM. Without it the key is read from tls_cert."
    )
    tls_key_pass: Secret = _option(Secret(""), "Password of the private key.", metavar="PASSWORD")
    tls_version_min: str = _option(
        "1.2", "Oldest TLS version that clients may use.", choices=("1.2", "1.3")
    )
    tls_ca: Path | None = _file(
        "Certificate authorities that are trusted to sign client certificates, as PEM."
    )
    tls_verify: str = _option(
        "none",
        "Whether AMQP clients over TLS present a certificate. none: it is not requested."
        " optional: a presented certificate must be trusted. required: every client must present a"
        " trusted one.",
        choices=("none", "optional", "required"),
    )
    tls_login_from: str = _option(
        "distinguished_name",
        "The part of the client certificate that is the user name in an EXTERNAL login.",
        choices=("distinguished_name", "common_name", "subject_alternative_name"),
    )
    tls_login_san_type: str = _option(
        "dns",
        "The type of subject alternative name that is the user name. The first name of this type"
        " is used.",
        choices=("dns", "email", "uri", "ip"),
    )
    node: str = _option(
        "leveret", "Name of this node.", pattern=r"[A-Za-z0-9_.@-]{1,255}", metavar="NAME"
    )
    cluster_listen: str = _option(
        "",
        "Address on which this node listens for the other nodes of its cluster. If it is empty, the"
        " node is not in a cluster.",
        pattern=r"(\S+:[0-9]+)?",
        metavar="HOST:PORT",
    )
    cluster_peers: str = _option(
        "",
        "The nodes of the cluster, separated by commas, this node included. The addresses are those"
        " at which the nodes reach each other.",
        pattern=r"([^=,\s]+=[^=,\s]+:[0-9]+(,[^=,\s]+=[^=,\s]+:[0-9]+)*)?",
        metavar="NAME=HOST:PORT,…",
    )
    cluster_secret: Secret = _option(
        Secret(""),
        "Secret that all nodes of the cluster share, of at least 16 bytes. Nodes without it are"
        " refused.",
        pattern=r"(.{16,1024})?",
        metavar="SECRET",
    )
    cluster_secret_file: Path | None = _file(
        "File with the secret of the cluster. Line breaks at its end are ignored."
    )
    cluster_tls: bool = _option(
        False,
        "Use TLS between the nodes of the cluster, with tls_cert, tls_key and tls_ca. Both sides"
        " must show a certificate of the same authority.",
    )
    cluster_election_timeout_ms: int = _option(
        1_000,
        "Shortest silence of the leader after which another node begins an election. The longest is"
        " twice as long. Set the same on all nodes, and more than their longest pauses.",
        unit="ms",
        low=300,
        high=60_000,
    )
    default_user: str = _option(
        "guest",
        "Administrator that the first start creates.",
        pattern=r".{1,255}",
        metavar="NAME",
    )
    default_pass: Secret = _option(
        Secret("guest"),
        "Password of the default user. Set one to listen on an address that other machines can"
        " reach.",
        pattern=r"(?s).{1,255}",
        metavar="PASSWORD",
    )
    login_failures_max: int = _option(
        10,
        "Number of wrong passwords for one user from one address that cause no wait. After them,"
        " each further wrong password makes the next login wait longer. Passwords that were right"
        " before always pass. 0 turns the limit off.",
        low=0,
        high=1_000_000,
    )
    connections_max: int = _option(
        0, "Maximum number of open AMQP connections; 0 means no limit.", low=0, high=10_000_000
    )
    http_connections_max: int = _option(
        4096,
        "Maximum number of open HTTP connections. Beyond it, a new connection closes the one that"
        " has been idle longest.",
        low=1,
        high=1_000_000,
    )
    http_connections_per_address_max: int = _option(
        1024,
        "Maximum number of open HTTP connections of one address, except trusted proxies. An IPv6"
        " address counts by its /64 network. 0 means no limit.",
        low=0,
        high=1_000_000,
    )
    http_trusted_proxies: str = _option(
        "",
        "Addresses and networks of HTTP proxies whose X-Forwarded-For or Forwarded header names"
        " the client.",
        metavar="ADDRESS[/BITS],…",
    )
    http_allowed_hosts: str = _option(
        "",
        "Further names of this node, as clients and proxies write them in the Host and Origin"
        " headers: name, name:port, or * for any name.",
        pattern=r"[A-Za-z0-9.,:*\[\] _-]*",
        metavar="NAME[:PORT],…",
    )
    unopened_per_address_max: int = _option(
        1024,
        "Maximum number of AMQP connections of one address that have not logged in and opened a"
        " vhost yet. Further ones are closed at once. An IPv6 address counts by its /64 network. 0"
        " means no limit.",
        low=0,
        high=10_000_000,
    )
    amqp_trusted_proxies: str = _option(
        "",
        "Addresses and networks of TCP proxies before the AMQP ports. Their connections must begin"
        " with a header of the PROXY protocol, version 1 or 2, which names the client. No other"
        " peer may send one.",
        metavar="ADDRESS[/BITS],…",
    )
    load_definitions: str = _option(
        "",
        "Definitions file (JSON, exported by RabbitMQ or Leveret) that is imported at every start.",
        metavar="FILE",
    )
    shovel_allowed_targets: str = _option(
        "",
        "Hosts and networks, separated by commas, that shovels and federation links may connect to"
        " besides public addresses: for example billing.internal,10.1.0.0/16. Links that an"
        " administrator set may connect to every address.",
        pattern=r"[A-Za-z0-9_.:/\[\], -]*",
        metavar="HOST,NETWORK,…",
    )
    oauth2_resource_server_id: str = _option(
        "",
        "Name of this broker in OAuth2 tokens. With it, clients can log in with a token as"
        " password or as bearer token.",
        metavar="NAME",
    )
    oauth2_audience: str = _option(
        "", "Audience that a token must name. Default: the resource server id.", metavar="NAME"
    )
    oauth2_issuer: str = _option(
        "", "Issuer that a token must name. Without it every issuer is accepted.", metavar="URL"
    )
    oauth2_algorithms: str = _option(
        "RS256,ES256,HS256",
        "Accepted signature algorithms. A key is used only with algorithms of its own type.",
        pattern=r"[A-Za-z0-9]+(,[A-Za-z0-9]+)*",
        metavar="NAME,…",
    )
    oauth2_secret: Secret = _option(
        Secret(""), "Secret for HS256 tokens, at least 32 characters.", metavar="SECRET"
    )
    oauth2_keys: str = _option(
        "",
        "Public keys for RS256 and ES256 tokens: PEM files, each with an optional key id.",
        metavar="[KID=]FILE,…",
    )
    oauth2_jwks_file: Path | None = _file("File with public keys, as a JSON Web Key Set.")
    oauth2_jwks_url: str = _option(
        "",
        "URL of a JSON Web Key Set. It is fetched at the start, every five minutes, and when a"
        " token names an unknown key.",
        pattern=r"https://\S+|http://(localhost|127\.0\.0\.1|\[::1\])[:/]\S*|",
        metavar="https://…",
    )
    oauth2_leeway_s: int = _option(
        0,
        "Accepted difference between the clocks of the issuer and this node.",
        unit="s",
        low=0,
        high=600,
    )
    oauth2_username_claims: str = _option(
        "sub,client_id",
        "Claims that can hold the user name. The first one in the token is used.",
        metavar="CLAIM,…",
    )
    oauth2_scope_prefix: str | None = _option(
        None,
        "Prefix of the scopes for this broker. Default: the resource server id and a dot.",
        kind="str",
        metavar="TEXT",
    )
    oauth2_scope_claims: str = _option(
        "",
        "Claims that hold scopes in addition to scope. A dot leads into an object, as in"
        " realm_access.roles.",
        metavar="CLAIM,…",
    )
    oauth2_scope_aliases: str = _option(
        "",
        "Aliases for scopes. An alias stands for one or more scopes, separated by spaces.",
        metavar="ALIAS=SCOPE…;…",
    )
    jobs_token_secret: Secret = _option(
        Secret(""),
        "Secret for the HS256 tokens of the jobs service, at least 32 characters. Without it and"
        " without jobs_token_key, a secret is created in the data directory.",
        metavar="SECRET",
    )
    jobs_token_key: Path | None = _file(
        "Public key for the RS256 or ES256 tokens of the jobs service, as PEM."
    )
    jobs_rate: int = _option(
        0,
        "Maximum number of jobs per second that a namespace may add; 0 means no limit.",
        low=0,
        high=100_000_000,
    )
    jobs_redis: Secret = _option(
        Secret(""),
        "Redis of the jobs service. With it and jobs_postgres, jobs are kept there instead of in"
        " the broker.",
        metavar="URL",
    )
    jobs_postgres: Secret = _option(
        Secret(""),
        "PostgreSQL database of the jobs service. Give one for each shard, always in the same"
        " order.",
        metavar="DSN",
        repeats=True,
    )
    jobs_sync: str = _option(
        "interval",
        "When the local log of jobs on Redis and PostgreSQL is synced. always: before each"
        " answer. interval: every 20 ms, because Redis holds a second copy. never: not"
        " at all.",
        choices=("always", "interval", "never"),
    )
    jobs_slow_mode: bool = _option(
        False, "While Redis is down, write jobs to PostgreSQL instead of refusing them."
    )
    handshake_timeout_ms: int = _option(
        10_000,
        "Time within which a new connection must have logged in.",
        unit="ms",
        low=1,
        high=600_000,
    )
    heartbeat_s: int = _option(
        60,
        "Heartbeat interval offered to clients; 0 offers no heartbeats.",
        unit="s",
        low=0,
        high=65535,
    )
    frame_max: int = _option(
        131_072, "Maximum frame size offered to clients.", unit="bytes", low=4096, high=2**31 - 1
    )
    channel_max: int = _option(
        2047, "Maximum number of channels per connection offered to clients.", low=1, high=65535
    )
    consumer_max_per_channel: int = _option(
        10_000,
        "Maximum number of consumers of one channel, against programs that leak them. One more"
        " closes the connection with 530, as RabbitMQ does.",
        low=1,
        high=1_000_000,
    )
    message_bytes_max: int = _option(
        128 * _MEBIBYTE,
        "Maximum size of a message body.",
        unit="bytes",
        low=1,
        high=512 * _MEBIBYTE,
    )
    definitions_bytes_max: int = _option(
        64 * _MEBIBYTE,
        "Maximum size of the definitions of a vhost: of the names, routing keys and arguments of"
        " its queues, exchanges and bindings. Each of them counts 100 bytes more, a queue 256, a"
        " word of a topic pattern 64, a header of a headers binding 64 to 192. Definitions that"
        " exist already stay. In a cluster, give all nodes the same value: the one of the leader"
        " counts.",
        unit="bytes",
        low=1024,
        high=2**40,
    )
    transaction_steps_max: int = _option(
        50_000,
        "Maximum number of steps of an AMQP transaction. Each publish, each copy of it in a queue"
        " and each acked or rejected message is a step. A commit of 50000 steps takes about 0.1 s,"
        " in which no other client is served.",
        low=1,
        high=10_000_000,
    )
    memory_high: float = _option(
        0.6,
        "Publishers are blocked while messages and the buffers of AMQP connections use more memory"
        " than this. A value of at most 1 is a share of the memory that the process may use; a"
        " larger value is a number of bytes.",
        unit="share or bytes",
        low=0.01,
        metavar="SHARE|BYTES",
    )
    consumer_timeout_ms: int = _option(
        1_800_000,
        "A consumer of a quorum queue that holds a message unacknowledged for this long is"
        " cancelled, and the message is requeued; 0 turns this off. Other queues have a timeout"
        " only if x-consumer-timeout or a policy sets one.",
        unit="ms",
        low=0,
        high=2**31 - 1,
    )
    park_over_limit: bool = _option(
        True,
        "Move a message over its delivery limit that has no dead-letter exchange to the queue"
        " leveret.parked. If false, the message is dropped, as in RabbitMQ.",
    )
    park_cycles: bool = _option(
        True,
        "Move a dead letter that would only come back to a queue in which it died, without a"
        " rejection in between, to the queue leveret.parked. If false, the message is dropped, as"
        " in RabbitMQ.",
    )
    event_loop: str = _option(
        "auto",
        "Event loop to use; auto means uvloop if it is installed.",
        choices=("auto", "uvloop", "asyncio"),
    )
    log_level: str = _option(
        "info", "Lowest level that is logged.", choices=("debug", "info", "warning", "error")
    )
    log_format: str = _option(
        "text",
        "Format of the log on stderr. text: key=value. json: one object per line.",
        choices=("text", "json"),
    )
    metrics_login: str = _option(
        "remote",
        "Who must log in to read /metrics. remote: clients on other machines. always: every"
        " client. never: nobody, as in RabbitMQ. The user needs the tag monitoring or"
        " administrator.",
        choices=("remote", "always", "never"),
    )
    otel_endpoint: str = _option(
        "",
        "URL that gets the spans of messages with a sampled traceparent, by OTLP over HTTP. If it"
        " is empty, no spans are sent. Needs the extra leveret[otel].",
        pattern=r"(https?://\S+)?",
        metavar="URL",
    )
    # Maps an option to the place where it was given: a flag, an environment variable, or a line of
    # a file with its key.
    places: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def place(self, name: str) -> str:
        """Return where an option was given; its flag if it has its default."""
        return self.places.get(name, flag_name(name))

    def placed(self, fault: str) -> str:
        """Return the text of a fault with places instead of the names of options it begins with."""
        found = _NAMED.match(fault)
        names = [name for name in found.groups() if name] if found is not None else []
        if found is None or not options().keys() >= set(names):
            return fault
        return " and ".join(map(self.place, names)) + fault[found.end() :]


def options() -> dict[str, Option]:
    """Return every option by the name of its field, in the order of declaration."""
    return {f.name: f.metadata["option"] for f in fields(Settings) if "option" in f.metadata}


def env_name(name: str) -> str:
    return "LEVERET_" + name.upper()


def flag_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def memory_high_bytes(memory_high: float, machine_bytes: int) -> int:
    """Return the limit in bytes. A setting of at most 1 is a share of the machine's memory."""
    return int(memory_high * machine_bytes if memory_high <= 1 else memory_high)
