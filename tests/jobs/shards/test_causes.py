"""Causes of failures: in the log, in answers, in health checks and in metrics."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
import redis

from leveret.cli.ctl.status import show_status
from leveret.cli.shared.management import ManagementClient
from leveret.errors import ConfigError, JobsUnavailableError
from leveret.job_service.shards.addresses import check_addresses
from leveret.storage.disk import Disk
from leveret.testing import RunningBroker, broker
from tests.jobs.api import Api
from tests.jobs.shards.deployment import (
    QUICK,
    QUIET,
    WITHIN_S,
    Deployment,
    drain,
    eventually,
    new,
    refuses,
    topic_on,
)
from tests.jobs.stores import patient_shards
from tests.tls.certificates import TestAuthority
from tools.ports import free_port
from tools.services import Postgres, RedisServer

pytestmark = pytest.mark.compiled_only("the store is the same in both forms")

# Jobs stay in Redis until a call needs them in their shard.
SLOW_TO_FLUSH = msgspec.structs.replace(QUICK, flush_interval_ms=600_000, sweep_after_s=600.0)


def test_the_first_failed_probe_tells_its_cause(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = deployment.at(dsns=[deployment.dsns[0], deployment.dsns[1] + "_missing"])

    async def main() -> None:
        with caplog.at_level(logging.WARNING):
            async with wrong.node(missing=1) as store:
                reason = await refuses(store.enqueue([new(topic_on(1))]), JobsUnavailableError)
                assert "shard 1 (" in reason and "does not exist" in reason
                report = store.report()
                assert [server.failures for server in report.servers] == [0, 0, 1]
                assert "does not exist" in report.not_ready()[0]
                await store._shards[1].probe()
                assert store.report().servers[2].failures == 1
        lines = [line for line in caplog.messages if "does not exist" in line]
        assert len(lines) == 1  # the same cause is not told again

    asyncio.run(main())


def test_causes_are_sentences_without_numbers_of_the_system(deployment: Deployment) -> None:
    port = free_port()
    dsns = [f"postgresql://leveret@127.0.0.1:{port}/jobs"]
    nowhere = deployment.at(redis_url=f"redis://127.0.0.1:{port}/0", dsns=dsns)

    async def main() -> None:
        store = nowhere.store()
        await store.start()
        assert store.report().faults() == [
            f"redis (127.0.0.1:{port}) does not answer: Connection refused",
            f"shard 0 (127.0.0.1:{port}/jobs) does not answer: Connection refused",
        ]
        refusal = await refuses(store.enqueue([new()]), JobsUnavailableError)
        assert "shard 0" in refusal and "has the shard map" in refusal
        await store.stop(WITHIN_S)

    asyncio.run(main())


def test_a_node_number_that_cannot_be_renewed_is_told_once(
    deployment: Deployment, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with deployment.node(settings=QUIET) as store:
            await asyncio.sleep(0)  # the node's own watch begins to wait, for minutes
            store._redis.health.on_down("cut off")
            generator = store._id_generator
            monkeypatch.setattr(
                generator, "_settings", msgspec.structs.replace(QUIET, node_lease_ms=4)
            )
            renew, tries = generator.renew, 0

            async def counted() -> None:
                nonlocal tries
                tries += 1
                await renew()

            monkeypatch.setattr(generator, "renew", counted)
            watch = asyncio.get_running_loop().create_task(generator.watch())
            await eventually(lambda: tries > 3)
            watch.cancel()
            await store._redis.probe()
        assert len([line for line in caplog.messages if "is not renewed" in line]) == 1

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())


def test_a_shard_that_fails_later_leaves_the_node_ready(
    apart: Deployment, other_postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        store = await apart.started(settings=SLOW_TO_FLUSH)
        try:
            await store.enqueue([new(topic_on(0)), new(topic_on(1))])
            await store.stats(None)
            await store.enqueue([new(topic_on(1))])  # stays in Redis
            other_postgres.end()
            await eventually(lambda: not store._shards[1].is_up)
            assert store.report().not_ready() == []
            assert "shard 1 (" in store.report().faults()[0]
            skews = [server.skew_ms for server in store.report().servers]
            assert [skew is None for skew in skews] == [False, False, True]
            here, there = sorted(await store.stats("n"), key=lambda each: each.missing)
            assert (here.topic, here.ready, here.missing) == (topic_on(0), 1, "")
            assert (there.topic, there.ready, there.dead) == (topic_on(1), None, None)
            assert there.missing == "shard 1 does not answer"
            assert there.enqueued == 2
            assert not [line for line in caplog.messages if "for the statistics" in line]
        finally:
            other_postgres.start()
            await eventually(lambda: store._shards[1].is_up)
            await store.stop(WITHIN_S)

    asyncio.run(main())


def test_a_shard_that_is_made_read_only_is_told(
    apart: Deployment, other_postgres: Postgres
) -> None:
    """Some providers do that to a database whose disk is almost full."""

    async def set_read_only(value: str) -> None:
        connection = await asyncpg.connect(other_postgres.dsn(), timeout=WITHIN_S)
        await connection.execute("SET default_transaction_read_only = off")
        await connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.close()

    async def main() -> None:
        async with apart.node() as store:
            # No probe comes to a shard at rest: a statement of the node itself finds out.
            await eventually(lambda: all(shard._may_rest() for shard in store._shards))
            try:
                await set_read_only("on")
                await eventually(lambda: bool(store.report().faults()))
                (fault,) = store.report().faults()
                assert fault.startswith("shard 1 (") and "read-only" in fault
                changing = [server.takes_changes() for server in store.report().servers]
                assert changing == [True, True, False]
            finally:
                await set_read_only("off")
            await eventually(lambda: not store.report().faults())

    asyncio.run(main())


def test_a_shard_whose_disk_is_full_is_told_and_still_hands_out_jobs(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = "leveret.job_service.shards.shard.FULL_KEPT_S"
    monkeypatch.setattr(kept, 600.0)

    async def main() -> None:
        async with deployment.node() as store:
            topic = topic_on(1)
            await store.enqueue([new(topic, b"before")])
            await store.stats(None)  # flushes the buffer
            await deployment.rows(
                "CREATE FUNCTION refuse() RETURNS TRIGGER LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE disk_full USING MESSAGE = 'no space left'; END $$",
                shard=1,
            )
            trigger = "CREATE TRIGGER full_disk BEFORE INSERT ON items EXECUTE FUNCTION refuse()"
            await deployment.rows(trigger, shard=1)
            await store.enqueue([new(topic, b"during")])
            await eventually(lambda: bool(store.report().faults()))
            (fault,) = store.report().faults()
            assert fault.startswith("shard 1 (") and "its disk is full" in fault
            assert "its disk is full" in await refuses(store.enqueue([new(topic)]))
            assert await drain(store, topic) == [b"before"]
            assert store.report().servers[2].failures == 0
            await deployment.rows("DROP TRIGGER full_disk ON items", shard=1)
            monkeypatch.setattr(kept, 0.0)
            store._shards[1]._full_until_s = 0.0  # the time has passed
            await eventually(lambda: not store.report().faults())
            assert await drain(store, topic) == [b"during"]

    asyncio.run(main())


@contextlib.contextmanager
def served(folder: Path, redis_url: str, dsns: list[str]) -> Iterator[RunningBroker]:
    options: dict[str, Any] = {"jobs_redis": redis_url, "jobs_postgres": " ".join(dsns)}
    with patient_shards(), broker(http=True, disk=Disk(folder), **options) as running:
        yield running


def _get(server: RunningBroker, path: str) -> tuple[int, str]:
    import base64
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=WITHIN_S)
    login = base64.b64encode(b"guest:guest").decode()
    try:
        connection.request("GET", path, headers={"Authorization": f"Basic {login}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_health_names_the_servers_and_clients_get_their_numbers_alone(
    deployment: Deployment,
) -> None:
    wrong = [deployment.dsns[0], deployment.dsns[1] + "_missing"]
    with served(deployment.folder / "a", deployment.redis_url, wrong) as server:
        for path in ("ready-to-serve-clients", "jobs"):
            status, body = _get(server, f"/api/health/checks/{path}")
            assert status == 503
            assert "shard 1 (" in body and "does not exist" in body
        logins: tuple[tuple[str | None, str], ...] = (("guest", "does not exist"), (None, "--user"))
        for login, words in logins:
            lines: list[str] = []
            client = ManagementClient(server.http_url, login, login)
            assert show_status(client, as_json=False, echo=lines.append) == 0
            (line,) = [line for line in lines if line.startswith("jobs ")]
            assert words in line
        token = server.node.jobs.sign(["n"], "test", 600)
        api = Api(server.http_port, token, "n")
        api.enqueue(topic_on(0), b"x")
        answer = api.get("/stats", namespace="n")
        assert answer.headers["jobs-missing"] == "shard 1"
        assert [each["ready"] for each in answer.body] == [1]
        assert api.get("/schedules", namespace="n").headers["jobs-missing"] == "shard 1"
        refused = api.get("/dequeue", namespace="n", topic=topic_on(1))
        assert refused.status == 500
        assert refused.body["detail"] == "shard 1 does not answer", "no address, and no cause"
        _, metrics = _get(server, "/metrics")
        assert f'leveret_jobs{{namespace="n",topic="{topic_on(0)}",state="ready"}} 1' in metrics
        up = [line for line in metrics.splitlines() if line.startswith("leveret_jobs_server_up")]
        assert [line.rsplit(" ", 1)[1] for line in up] == ["1", "1", "0"]
        assert 'leveret_jobs_clock_skew_seconds{server="shard 0' in metrics


def test_health_is_well_when_all_servers_answer(deployment: Deployment) -> None:
    with served(deployment.folder / "a", deployment.redis_url, deployment.dsns) as server:
        for path in ("ready-to-serve-clients", "jobs"):
            assert _get(server, f"/api/health/checks/{path}")[0] == 200


@pytest.mark.parametrize(
    ("redis_url", "dsn", "reason"),
    [
        ("localhost:6379", "postgresql://a/b", "an address begins with redis://"),
        (
            "redis://h:port/0",
            "postgresql://a/b",
            "jobs_redis: the address redis://h:… cannot be read: its port",
        ),
        (
            "rediss://h?ssl_ca_certs=/none",
            "postgresql://a/b",
            "ssl_ca_certs: there is no file /none",
        ),
        ("redis://h/0", "postgresql://u:p@ss@a/b", "jobs_postgres: in a user name or password, wr"),
        ("redis://h/0", "postgresql://u:secret/x@a/b", "cannot be read: its port is not a number"),
        (
            "redis://h/0",
            "postgresql://a/b,postgresql://a/c",
            "jobs_postgres: addresses are separat",
        ),
        ("redis://h/zero", "postgresql://a/b", "zero is not the number of a database"),
        ("redis+sentinel://h/0", "postgresql://a/b", "Redis Sentinel is not supported"),
        ("redis://a:1,b:2/0", "postgresql://a/b", "Redis Cluster is not supported"),
        ("redis://a,b/0", "postgresql://a/b", "Redis Cluster is not supported"),
        ("redis://h/0", "mysql://a/b", "jobs_postgres: an address begins with postgresql://"),
        ("redis://h/0", "postgresql://a:x/b", "jobs_postgres: the address postgresql://a:… cannot"),
    ],
)
def test_addresses_that_cannot_be_right_are_refused(redis_url: str, dsn: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_addresses(redis_url, [dsn])


def test_an_address_that_cannot_be_read_does_not_tell_the_password() -> None:
    with pytest.raises(ConfigError) as told:
        check_addresses("redis://h", ["postgresql://u:sec/ret@a/b"])
    assert "sec" not in str(told.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://u:secret@db:x/jobs", "postgresql://db:…"),
        ("postgresql://u:sec/ret@db/jobs", "postgresql://db"),
        ("postgresql://u:secret", "postgresql://u:…"),
        ("postgresql://db:x/jobs?password=a@secret", "…"),
        ("mysql://u:secret@db:3306/jobs", "mysql://db:3306"),
        ("secret", "…"),
    ],
)
def test_a_malformed_address_is_shown_without_its_password(address: str, shown: str) -> None:
    with pytest.raises(ConfigError) as told:
        check_addresses("redis://h", [address])
    text = str(told.value)
    assert shown in text
    assert "secret" not in text


@pytest.mark.parametrize("query", ["nosuch=1", "socket_timeout=soon"])
def test_options_of_redis_that_do_not_exist_are_told(deployment: Deployment, query: str) -> None:
    with pytest.raises(ConfigError, match=r"jobs_redis: the options after .* cannot be used: .+"):
        deployment.at(redis_url=f"redis://h/0?{query}").store()


def test_addresses_of_every_kind_are_taken() -> None:
    for url in ("redis://h", "rediss://user:word@h:6380/3", "unix:///run/redis.sock?db=1"):
        check_addresses(url, ["postgresql://u:p@h:5432/d?sslmode=require", "postgres://h/d"])


def test_a_redis_cluster_is_refused_with_a_sentence(deployment: Deployment) -> None:
    class Clustered(RedisServer):
        def command(self) -> list[str]:
            # Without a port of its own for other nodes it takes the client's port + 10,000.
            cluster = ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
            return [*super().command(), *cluster, "--databases", "1"]

    server = Clustered()

    async def main() -> None:
        store = deployment.at(redis_url=server.url).store()
        await store.start()
        assert "Redis Cluster is not supported" in store.report().not_ready()[0]
        await store.stop(WITHIN_S)

    try:
        server.start()
        asyncio.run(main())
    finally:
        server.remove()


def test_the_address_of_a_sentinel_is_refused_with_a_sentence(deployment: Deployment) -> None:
    class Sentinel(RedisServer):
        def command(self) -> list[str]:
            settings = self.folder / "sentinel.conf"
            settings.write_text(f"bind 127.0.0.1\nport {self.port}\n")
            return [super().command()[0], str(settings), "--sentinel"]

    server = Sentinel()

    async def main() -> None:
        store = deployment.at(redis_url=server.url).store()
        await store.start()
        assert "Redis Sentinel is not supported" in store.report().not_ready()[0]
        await store.stop(WITHIN_S)

    try:
        server.start()
        asyncio.run(main())
    finally:
        server.remove()


def test_a_node_leases_a_number_as_soon_as_redis_is_there(
    deployment: Deployment, own_redis: RedisServer
) -> None:
    """Not only when the next renewal is due, which is in a quarter of an hour here."""

    async def main() -> None:
        own_redis.end()
        slowly = msgspec.structs.replace(QUICK, node_lease_ms=3_600_000)
        store = deployment.at(redis_url=own_redis.url).store(settings=slowly)
        await store.start()
        own_redis.start()
        await eventually(lambda: store._id_generator.node_number is not None)
        await store.stop(WITHIN_S)

    asyncio.run(main())


def test_a_user_of_redis_with_few_rights_is_enough(
    deployment: Deployment, own_redis: RedisServer
) -> None:
    with contextlib.closing(redis.Redis(port=own_redis.port)) as client:
        rules = ["on", ">word", "~mqueue:*", "+@all", "-@dangerous"]
        client.execute_command("ACL", "SETUSER", "jobs", *rules)  # type: ignore[no-untyped-call]
    url = own_redis.url.replace("redis://", "redis://jobs:word@")

    async def main() -> None:
        async with deployment.at(redis_url=url).node() as store:
            await store.enqueue([new(idempotency_key="k")])
            assert await drain(store, "t") == [b"x"]

    asyncio.run(main())


def test_redis_with_tls(deployment: Deployment, tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "authority")
    pair = authority.server()

    class Encrypted(RedisServer):
        def command(self) -> list[str]:
            files = ["--tls-cert-file", str(pair.cert), "--tls-key-file", str(pair.key)]
            tls = ["--tls-port", str(tls_port), "--tls-auth-clients", "no", *files]
            return [*super().command(), *tls]

    tls_port = free_port()
    server = Encrypted()

    async def main() -> None:
        url = f"rediss://127.0.0.1:{tls_port}/0"
        async with deployment.at(redis_url=f"{url}?ssl_ca_certs={authority.ca}").node() as store:
            await store.enqueue([new(idempotency_key="k")])
            assert await drain(store, "t") == [b"x"]
        stranger = deployment.at(redis_url=url).store("b")  # trusts other authorities only
        await stranger.start()
        assert "certificate verify failed" in stranger.report().not_ready()[0]
        await stranger.stop(WITHIN_S)

    try:
        server.start()
        asyncio.run(main())
    finally:
        server.remove()


def test_a_pooler_that_refuses_the_settings_of_a_session_is_refused(
    deployment: Deployment,
) -> None:
    fields = (b"SFATAL", b"C08P01", b"Munsupported startup parameter: enable_bitmapscan", b"")
    body = b"".join(field + b"\0" for field in fields)

    async def pgbouncer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer as PgBouncer 1.18 does to settings that it is not told to ignore."""
        size = int.from_bytes(await reader.readexactly(4), "big")
        request = await reader.readexactly(size - 4)
        if request[:4] == (80877103).to_bytes(4, "big"):  # for TLS
            writer.write(b"N")
            size = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(size - 4)
        writer.write(b"E" + (len(body) + 4).to_bytes(4, "big") + body)
        await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(pgbouncer, "127.0.0.1")
        port = server.sockets[0].getsockname()[1]
        dsns = [*deployment.dsns[:1], f"postgresql://leveret@127.0.0.1:{port}/jobs"]
        store = deployment.at(dsns=dsns).store()
        with pytest.raises(ConfigError, match="give the address of PostgreSQL itself"):
            await store.start()
        server.close()

    asyncio.run(main())
