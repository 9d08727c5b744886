"""Shovels act with the permissions of the users who set them, and reach only allowed addresses."""

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from leveret.auth.user import User
from leveret.definitions.parameters import OPERATOR
from leveret.http.framework.permissions import owner_name
from leveret.storage.disk import Disk
from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask, reason
from tests.http.test_shovels import Client, endpoint, wait_until

MAKER = "maker:pw"
LOCAL = {"src-uri": "amqp://", "dest-uri": "amqp://"}


def add_maker(server: RunningBroker, *, read: str = "", write: str = "", tags: str = "") -> None:
    """Make or change a user who may set shovels, with these permissions in vhost /."""
    user = {"password": "pw", "tags": tags or "policymaker"}
    assert ask(server, "PUT", "/api/users/maker", user)[0] in (201, 204)
    allow(server, read=read, write=write)


def allow(server: RunningBroker, *, read: str = "", write: str = "", configure: str = "") -> None:
    patterns = {"configure": configure, "write": write, "read": read}
    assert ask(server, "PUT", "/api/permissions/%2F/maker", patterns)[0] in (201, 204)


def put(server: RunningBroker, name: str, login: str = MAKER, **value: Any) -> tuple[int, Any]:
    given = {key.replace("_", "-"): found for key, found in value.items()}
    path = f"/api/parameters/shovel/%2F/{name}"
    return ask(server, "PUT", path, {"value": given}, login=login)


def wait_for_refusal(client: Client, name: str, text: str) -> None:
    """Wait until a shovel is terminated for a reason that contains this text."""
    wait_until(lambda: text in client.shovel(name).get("reason", ""))


@pytest.fixture
def near() -> Iterator[Client]:
    with broker(http=True) as server:
        client = Client(server)
        yield client
        client.connection.close()


def test_policymaker_without_permissions_drains_no_queue(near: Client) -> None:
    near.declare("secrets", "mine")
    near.publish("secrets", "1", "2")
    add_maker(near.server)
    put(near.server, "s", **LOCAL, src_queue="secrets", dest_queue="mine")
    wait_for_refusal(near, "s", "refused for user 'maker'")
    assert (near.count("secrets"), near.count("mine")) == (2, 0)


def test_address_of_another_broker_needs_its_own_credentials(near: Client) -> None:
    """Without a login in the address, a shovel of a policymaker would act as guest."""
    uri = f"amqp://127.0.0.1:{near.server.port}/other"
    assert ask(near.server, "PUT", "/api/vhosts/other")[0] == 201
    add_maker(near.server, read=".*", write=".*")
    answer = put(near.server, "s", src_uri=uri, src_queue="q", dest_uri="amqp://", dest_queue="q")
    status, why = reason(answer)
    assert (status, "needs a user and a password" in why) == (400, True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"])
def test_policymaker_reaches_no_other_vhost_over_this_machine(near: Client, host: str) -> None:
    assert ask(near.server, "PUT", "/api/vhosts/other")[0] == 201
    add_maker(near.server, read=".*", write=".*")
    uri = f"amqp://guest:guest@{host}:{near.server.port}/other"
    near.declare("mine")
    put(near.server, "s", src_uri=uri, src_queue="q", dest_uri="amqp://", dest_queue="mine")
    wait_for_refusal(near, "s", "is not a public address")


def test_policymaker_posts_nothing_to_the_api_of_the_node(near: Client) -> None:
    near.declare("mine")
    add_maker(near.server, read="mine", write="mine|amq.default")
    document = {"users": [{"name": "maker", "password": "pw", "tags": ["administrator"]}]}
    near.publish("mine", json.dumps(document), content_type="application/json")
    put(
        near.server,
        "s",
        src_uri="amqp://",
        src_queue="mine",
        dest_protocol="http",
        dest_uri=f"{near.server.http_url}/api/definitions",
        dest_http_headers={"Authorization": "Basic " + b64encode(b"guest:guest").decode()},
    )
    wait_for_refusal(near, "s", "is not a public address")
    tags = ask(near.server, "GET", "/api/users/maker")[1]["tags"]
    assert tags == ["policymaker"]
    assert near.count("mine") == 1


def test_shovel_stops_when_its_owner_loses_a_permission(near: Client) -> None:
    near.declare("a", "b")
    add_maker(near.server, read="a", write="amq.default")
    put(near.server, "s", **LOCAL, src_queue="a", dest_queue="b", reconnect_delay=0.05)
    near.publish("a", "1")
    assert near.bodies("b", 1) == ["1"]
    assert near.shovel("s")["owner"] == "maker"
    allow(near.server, read="b", write="amq.default")
    near.publish("a", "2")
    wait_for_refusal(near, "s", "read access to queue 'a'")
    allow(near.server, read="a", write="^a$")
    wait_for_refusal(near, "s", "write access to exchange 'amq.default'")
    assert (near.count("a"), near.count("b")) == (1, 0)
    allow(near.server, read="a", write="amq.default")
    assert near.bodies("b", 1) == ["2"]


def test_shovel_of_a_deleted_user_stays_ended_even_if_the_name_is_used_again(near: Client) -> None:
    near.declare("a", "b")
    add_maker(near.server, read=".*", write=".*")
    put(near.server, "s", **LOCAL, src_queue="a", dest_queue="b", reconnect_delay=0.05)
    wait_until(lambda: near.shovel("s")["state"] == "running")
    assert ask(near.server, "DELETE", "/api/users/maker")[0] == 204
    wait_for_refusal(near, "s", "nobody owns it")
    add_maker(near.server, read=".*", write=".*")
    assert ask(near.server, "DELETE", "/api/shovels/vhost/%2F/s/restart")[0] == 204
    wait_for_refusal(near, "s", "nobody owns it")
    put(near.server, "s", **LOCAL, src_queue="a", dest_queue="b")
    wait_until(lambda: near.shovel("s")["state"] == "running")


def test_shovel_that_declares_needs_configure(near: Client) -> None:
    near.declare("a")
    add_maker(near.server, read="a", write="amq.default")
    put(near.server, "s", **LOCAL, src_queue="a", dest_queue="new", reconnect_delay=0.05)
    wait_for_refusal(near, "s", "configure access to queue 'new'")
    allow(near.server, read="a", write="amq.default", configure="new")
    near.publish("a", "1")
    wait_until(lambda: "new" in near.server.node.broker.vhost("/").queues)
    assert near.bodies("new", 1) == ["1"]


def test_topic_permissions_hold_for_every_message(near: Client) -> None:
    near.declare("a", "b")
    near.channel.exchange_declare("t", "topic")
    near.channel.queue_bind("b", "t", "#")
    add_maker(near.server, read="a", write="t")
    keys = {"exchange": "t", "write": "^open", "read": ""}
    assert ask(near.server, "PUT", "/api/topic-permissions/%2F/maker", keys)[0] == 201
    put(near.server, "s", **LOCAL, src_queue="a", dest_exchange="t", dest_exchange_key="open")
    near.publish("a", "1")
    assert near.bodies("b", 1) == ["1"]
    near.publish("a", "2", headers={"CC": ["closed"]})
    wait_for_refusal(near, "s", "access to topic 'closed'")
    wait_until(lambda: near.count("a") == 1)
    assert near.count("b") == 0


def test_topic_permissions_hold_for_dead_letters_of_a_declared_queue(near: Client) -> None:
    near.declare("a")
    near.channel.exchange_declare("t", "topic")
    add_maker(near.server)
    allow(near.server, configure="new", read="a|new", write="t|amq.default")
    keys = {"exchange": "t", "write": "^open", "read": ""}
    ask(near.server, "PUT", "/api/topic-permissions/%2F/maker", keys)
    arguments = {"x-dead-letter-exchange": "t"}
    put(near.server, "s", **LOCAL, src_queue="a", dest_queue="new", dest_queue_args=arguments)
    wait_for_refusal(near, "s", "access to every topic in exchange 't'")


def test_shovel_of_a_former_administrator_leaves_private_addresses(near: Client) -> None:
    near.declare("a", "b")
    uri = near.server.url
    add_maker(near.server, tags="administrator")
    put(near.server, "s", src_uri=uri, src_queue="a", dest_uri=uri, dest_queue="b")
    near.publish("a", "1")
    assert near.bodies("b", 1) == ["1"]
    add_maker(near.server)
    wait_for_refusal(near, "s", "is not a public address")
    near.publish("a", "2")
    assert near.count("b") == 0


@pytest.mark.parametrize("allowed", ["127.0.0.0/8", "localhost", "example.org, 127.0.0.1"])
def test_policymaker_reaches_allowed_targets(allowed: str) -> None:
    with broker(http=True, shovel_allowed_targets=allowed) as server:
        client = Client(server)
        client.declare("a")
        add_maker(server, read="a")
        with endpoint(204) as (uri, seen):
            named = uri.replace("127.0.0.1", "localhost") if allowed == "localhost" else uri
            put(server, "s", src_uri="amqp://", src_queue="a", dest_protocol="http", dest_uri=named)
            client.publish("a", "1")
            wait_until(lambda: seen)
        client.connection.close()


def test_owner_is_exported_imported_and_survives_a_restart(tmp_path: Path) -> None:
    with broker(http=True, disk=Disk(tmp_path)) as server:
        client = Client(server)
        client.declare("a", "b")
        add_maker(server)
        put(server, "s", **LOCAL, src_queue="a", dest_queue="b")
        put(server, "g", "guest:guest", **LOCAL, src_queue="b", dest_queue="b")
        document = ask(server, "GET", "/api/definitions")[1]
        owners = {row["name"]: row["owner"] for row in document["parameters"]}
        assert owners == {"s": "maker", "g": "guest"}
        client.connection.close()
    with broker(http=True, disk=Disk(tmp_path)) as server:
        found = ask(server, "GET", "/api/shovels")[1]
        assert [(row["name"], row["owner"]) for row in found] == [("g", "guest"), ("s", "maker")]
        rows = [dict(row) for row in document["parameters"]]
        del rows[0]["owner"]  # as in an export of RabbitMQ: the importing user owns it
        rows[1]["owner"] = None
        assert ask(server, "POST", "/api/definitions", {"parameters": rows})[0] == 204
        found = ask(server, "GET", "/api/shovels")[1]
        assert [(row["name"], row.get("owner")) for row in found] == [("g", "guest"), ("s", None)]


def test_shovel_that_an_older_version_stored_does_not_run(near: Client) -> None:
    near.declare("a", "b")
    near.publish("a", "1")
    row: dict[str, Any] = {"vhost": "/", "component": "shovel", "name": "s", "owner": None}
    row["value"] = {**LOCAL, "src-queue": "a", "dest-queue": "b"}
    assert ask(near.server, "POST", "/api/definitions", {"parameters": [row]})[0] == 204
    wait_for_refusal(near, "s", "nobody owns it")
    assert near.count("a") == 1


def test_import_does_not_make_an_administrator_the_owner_of_links_of_others(near: Client) -> None:
    """A refused shovel of a policymaker must not begin to run after an export and an import."""
    near.declare("secrets", "mine")
    near.publish("secrets", "1")
    add_maker(near.server)
    put(near.server, "s", **LOCAL, src_queue="secrets", dest_queue="mine")
    wait_for_refusal(near, "s", "refused for user 'maker'")
    document = ask(near.server, "GET", "/api/definitions")[1]
    assert ask(near.server, "POST", "/api/definitions", document)[0] == 204
    wait_for_refusal(near, "s", "refused for user 'maker'")
    assert near.count("secrets") == 1


def test_definitions_file_of_the_node_makes_the_operator_the_owner(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    queues = [{"name": name, **facts} for name in ("a", "b")]
    value = {**LOCAL, "src-queue": "a", "dest-queue": "b"}
    row = {"vhost": "/", "component": "shovel", "name": "s", "value": value}
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps({"queues": queues, "parameters": [row]}))
    with broker(http=True, load_definitions=str(path)) as server:
        client = Client(server)
        client.publish("a", "1")
        assert client.bodies("b", 1) == ["1"]
        assert client.shovel("s")["owner"] == ""
        client.connection.close()


def test_policymaker_uses_no_files_of_the_broker(near: Client) -> None:
    add_maker(near.server, read=".*", write=".*")
    near.declare("mine")
    uri = "amqps://u:p@broker.example?cacertfile=/etc/passwd"
    value = {"src_uri": uri, "src_queue": "q", "dest_uri": "amqp://", "dest_queue": "mine"}
    put(near.server, "s", **value)
    wait_for_refusal(near, "s", "may not use files of the broker")
    assert "passwd" not in near.shovel("s")["reason"]
    add_maker(near.server, read=".*", write=".*", tags="administrator")
    put(near.server, "s", **value)
    wait_until(
        lambda: "may not use files" not in near.shovel("s").get("reason", "may not use files")
    )


def test_token_owns_nothing_unless_it_is_an_administrators() -> None:
    assert owner_name(User("t", ("administrator",))) == OPERATOR
    with pytest.raises(HTTPException, match="a token cannot own a shovel"):
        owner_name(User("t", ("policymaker",)))
