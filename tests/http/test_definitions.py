"""Definitions as one document: exports of RabbitMQ are imported and exported unchanged.

`definitions_3.10.json` was exported by RabbitMQ 3.10.8. `definitions_4.1.json` is written by hand,
in the form of 4.1.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from leveret.testing.broker import RunningBroker, broker
from leveret.testing.disk import FakeDisk
from tests.http.asking import ask, reason

HERE = Path(__file__).parent
FILES = pytest.mark.parametrize("name", ["definitions_3.10.json", "definitions_4.1.json"])
LISTS = (
    "users",
    "vhosts",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "policies",
    "queues",
    "exchanges",
    "bindings",
)


@pytest.fixture
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as server:
        yield server


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / name).read_text())
    return found


def lists(document: dict[str, Any]) -> dict[str, list[str]]:
    """Return the lists of a document, each sorted. An empty list of limits means nothing.

    Only Leveret names the owner of a parameter.
    """
    return {
        name: sorted(
            json.dumps({key: row[key] for key in row if key != "owner"}, sort_keys=True)
            for row in document[name]
            if row.get("value") != []
        )
        for name in LISTS
    }


def objects(rng: random.Random, vhosts: list[str]) -> dict[str, Any]:
    """Generate queues, exchanges, and bindings between them."""
    names = [f"{word}.{number}" for word in ("orders", "mail", "täsk") for number in range(40)]
    queues = [
        {
            "name": name,
            "vhost": rng.choice(vhosts),
            "durable": True,
            "auto_delete": rng.random() < 0.1,
            "arguments": rng.choice(
                [
                    {},
                    {"x-max-length": rng.randrange(1000), "x-overflow": "reject-publish"},
                    {"x-message-ttl": rng.randrange(10**9), "x-note": {"a": [1, {"b": "c"}]}},
                    {"x-max-priority": rng.randrange(1, 255)},
                ]
            ),
        }
        for name in names
    ]
    exchanges = [
        {
            "name": f"x{number}",
            "vhost": rng.choice(vhosts),
            "type": rng.choice(["direct", "topic", "fanout", "headers"]),
            "durable": True,
            "auto_delete": False,
            "internal": rng.random() < 0.1,
            "arguments": {},
        }
        for number in range(30)
    ]
    bindings = [
        {
            "source": exchange["name"],
            "vhost": queue["vhost"],
            "destination": queue["name"],
            "destination_type": "queue",
            "routing_key": f"k{rng.randrange(5)}",
            "arguments": {},
        }
        for exchange in exchanges
        for queue in queues
        if queue["vhost"] == exchange["vhost"] and rng.random() < 0.1
    ]
    return {"queues": queues, "exchanges": exchanges, "bindings": bindings}


def generated(seed: int) -> dict[str, Any]:
    """Generate a document with users, policies and some hundred objects."""
    rng = random.Random(seed)
    vhosts = ["/", "a/b", "größe"]
    guest = {
        "name": "guest",
        "password_hash": "oeuSIKNayf5vXl4bhVj3wyeSuvP8IGg0eRCrzFNUtk9RHktO",
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": ["administrator"],
        "limits": {},
    }
    return {
        "users": [guest, *({**guest, "name": f"u{number}", "tags": []} for number in range(10))],
        "vhosts": [{"name": name} for name in vhosts],
        "permissions": [
            {"user": user, "vhost": vhost, "configure": "^x", "write": ".*", "read": ".*"}
            for user in ("guest", "u1", "u2")
            for vhost in vhosts
        ],
        "topic_permissions": [],
        "parameters": [],
        "global_parameters": [{"name": "g", "value": {"deep": [1, None, True]}}],
        "policies": [
            {
                "vhost": vhost,
                "name": f"p{number}",
                "pattern": f"^(orders|mail)\\.{number}",
                "apply-to": "queues",
                "definition": {"max-length": number, "dead-letter-exchange": "x1"},
                "priority": rng.randrange(10),
            }
            for number in range(5)
            for vhost in vhosts
        ],
        **objects(rng, vhosts),
    }


@FILES
def test_export_of_rabbitmq_is_imported_and_exported_unchanged(name: str) -> None:
    document = read(name)
    disk = FakeDisk()
    with broker(http=True, disk=disk) as server:
        assert ask(server, "POST", "/api/definitions", document) == (204, None)
        _, first = ask(server, "GET", "/api/definitions")
        assert ask(server, "POST", "/api/definitions", document) == (204, None)
        assert ask(server, "GET", "/api/definitions")[1] == first, "taken in twice, it is the same"
    with broker(http=True, disk=disk) as server:
        _, again = ask(server, "GET", "/api/all-configuration")
    assert lists(first) == lists(document)
    first["queues"] = [row for row in first["queues"] if row["durable"]]
    assert again == first, "all but what is transient"


def test_generated_document_is_imported_and_exported_unchanged() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    document = generated(seed)
    disk = FakeDisk()
    with broker(http=True, disk=disk) as server:
        assert ask(server, "POST", "/api/definitions", document) == (204, None)
        assert lists(ask(server, "GET", "/api/definitions")[1]) == lists(document)
    with broker(http=True, disk=disk) as server:
        assert lists(ask(server, "GET", "/api/definitions")[1]) == lists(document)


def test_imported_definitions_are_in_force(server: RunningBroker) -> None:
    assert ask(server, "POST", "/api/definitions", read("definitions_4.1.json"))[0] == 204
    _, queue = ask(server, "GET", "/api/queues/orders/work.07")
    assert (queue["type"], queue["policy"], queue["operator_policy"]) == ("quorum", "retry", "cap")
    assert queue["effective_policy_definition"]["delivery-limit"] == 50
    parameters = pika.ConnectionParameters(
        server.host, server.port, "orders", pika.PlainCredentials("app", "throwaway")
    )
    connection = pika.BlockingConnection(parameters)
    connection.channel().queue_declare("work.07", passive=True)
    connection.close()
    assert ask(server, "GET", "/api/vhost-limits/orders")[1][0]["value"]["max-queues"] == 1000
    assert ask(server, "GET", "/api/cluster-name") == (200, {"name": "rabbit@example"})


def test_document_has_its_product_and_version(server: RunningBroker) -> None:
    _, document = ask(server, "GET", "/api/definitions")
    assert list(document) == [
        "rabbit_version",
        "rabbitmq_version",
        "product_name",
        "product_version",
        "rabbitmq_definition_format",
        "original_cluster_name",
        "explanation",
        *(name for name in LISTS),
    ]
    assert document["rabbitmq_definition_format"] == "cluster"
    assert document["explanation"] == "Definitions of cluster 'test'"


def test_one_vhost_can_be_exported_and_imported(server: RunningBroker) -> None:
    assert ask(server, "POST", "/api/definitions", read("definitions_3.10.json"))[0] == 204
    _, document = ask(server, "GET", "/api/definitions/shop")
    assert document["original_vhost_name"] == "shop"
    assert all("vhost" not in row for row in document["queues"])
    assert len(document["queues"]) == 63
    assert ask(server, "PUT", "/api/vhosts/copy")[0] == 201
    assert ask(server, "POST", "/api/definitions/copy", document) == (204, None)
    _, copied = ask(server, "GET", "/api/definitions/copy")
    for name in ("queues", "exchanges", "bindings", "policies", "parameters"):
        assert copied[name] == document[name]
    assert ask(server, "POST", "/api/definitions/none", document) == (
        404,
        {"error": "not_found", "reason": "vhost_not_found"},
    )
    assert reason(ask(server, "GET", "/api/definitions/none")) == (400, "vhost_not_found")


QUEUE = {"name": "x", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
USER = {"name": "u", "password_hash": "", "tags": ""}
POLICY = {"vhost": "/", "name": "p", "pattern": "a", "definition": {"nope": 1}}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (b"nojson", "failed_to_parse_json"),
        ({"queues": 5}, "queues must be a list of objects"),
        (
            {"queues": [{"name": "x"}]},
            "Virtual host does not exist and is not specified in definitions file.",
        ),
        (
            {"queues": [{**QUEUE, "vhost": "nope"}]},
            'Please create virtual host "nope" prior to importing definitions.',
        ),
        (
            {"queues": [{**QUEUE, "arguments": {"x-max-length": -4}}]},
            "invalid arg 'x-max-length' for queue 'x' in vhost '/': {value_negative,-4}",
        ),
        (
            {"policies": [POLICY]},
            'Validation failed\n\n[{<<"nope">>,1}] are not recognised policy settings\n'
            ' (vhost: "/" key: "p")',
        ),
        (
            {"parameters": [{"vhost": "/", "component": "nope", "name": "p", "value": {}}]},
            "Validation failed\n\ncomponent nope not found\n"
            ' (vhost: "/" / component: "nope" / key: "p")',
        ),
        ({"users": [{"name": "u"}]}, "tags_not_present"),
        ({"users": [USER, {**USER, "tags": 5}]}, "tags must be a list or a text"),
        (
            {"users": [USER, {**USER, "name": ""}]},
            "a user's name has 1 to 255 characters of UTF-8",
        ),
        (
            {"users": [USER, {**USER, "tags": ["t"] * 65}]},
            "a user has at most 64 tags of at most 255 characters",
        ),
        ({"queues": [QUEUE, {**QUEUE, "name": ""}]}, "a queue must have a name"),
        (
            {"queues": [QUEUE, {**QUEUE, "arguments": {"x-max-length": 4}}]},
            "queues: /, x is in the document twice, with different values",
        ),
        (
            {"users": [USER, USER, {**USER, "tags": "monitoring"}]},
            "users: u is in the document twice, with different values",
        ),
        (
            {"exchanges": [{"name": "x", "vhost": "/", "type": "odd"}]},
            "unknown exchange type 'odd'",
        ),
        (
            {
                "permissions": [
                    {"user": "u", "vhost": "/", "configure": "", "write": "", "read": ""}
                ]
            },
            "no_such_user: u",
        ),
        (
            {
                "parameters": [
                    {
                        "vhost": "/",
                        "component": "vhost-limits",
                        "name": "limits",
                        "value": {"max-queues": 1},
                    }
                ],
                "queues": [QUEUE, {**QUEUE, "name": "y"}],
            },
            'Adding 2 queue(s) to virtual host "/" would exceed the limit of 1 queue(s).\n\n'
            "This virtual host currently has 0 queue(s) defined.\n\nImport aborted!",
        ),
    ],
)
def test_a_document_with_a_fault_changes_nothing(
    server: RunningBroker, document: Any, text: str
) -> None:
    _, before = ask(server, "GET", "/api/definitions")
    if isinstance(document, dict):
        document = {"vhosts": [{"name": "new"}], "queues": [QUEUE], **document}
    assert reason(ask(server, "POST", "/api/definitions", document)) == (400, text)
    assert ask(server, "GET", "/api/definitions")[1] == before


def test_import_keeps_existing_objects_and_skips_impossible_ones(server: RunningBroker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(server.url))
    connection.channel().queue_declare("x", durable=True, arguments={"x-max-length": 5})
    connection.close()
    binding = {
        "source": "amq.fanout",
        "vhost": "/",
        "destination": "gone",
        "destination_type": "queue",
        "routing_key": "",
        "arguments": {},
    }
    document = {
        "queues": [QUEUE, {**QUEUE, "name": "amq.gen-1"}],
        "exchanges": [{"name": "amq.topic", "vhost": "/", "type": "topic"}],
        "bindings": [binding, {**binding, "destination": "x"}],
    }
    assert ask(server, "POST", "/api/definitions", document) == (204, None)
    _, found = ask(server, "GET", "/api/definitions")
    assert [(row["name"], row["arguments"]) for row in found["queues"]] == [
        ("x", {"x-max-length": 5})
    ]
    assert [row["destination"] for row in found["bindings"]] == ["x"]
    assert ask(server, "POST", "/api/definitions", b"") == (204, None)


def test_file_of_a_form_is_imported(server: RunningBroker) -> None:
    document = json.dumps({"vhosts": [{"name": "from a form"}]}).encode()
    lines = [
        b"--cut",
        b'Content-Disposition: form-data; name="file"; filename="d.json"',
        b"Content-Type: application/json",
        b"",
        document,
        b"--cut--",
        b"",
    ]
    headers = {"Content-Type": "multipart/form-data; boundary=cut"}
    body = b"\r\n".join(lines)
    assert ask(server, "POST", "/api/definitions", body, headers=headers) == (204, None)
    assert ask(server, "GET", "/api/vhosts/from%20a%20form")[0] == 200


@pytest.mark.parametrize(
    "form",
    [
        b"--cut--\r\n",
        b"--cut\r\nContent-Disposition: form-data " + b"(" * 5_000 + b"\r\n\r\n{}\r\n--cut--",
        b'--cut\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * 10_000 + b"--cut--",
        b'--cut\r\nContent-Disposition: form-data; name="file"\r\n\r\n{}',  # no end
    ],
    ids=["empty", "nested comments", "many fields", "no end"],
)
def test_a_form_without_a_file_is_refused(server: RunningBroker, form: bytes) -> None:
    headers = {"Content-Type": 'multipart/form-data; boundary="cut"'}
    found = ask(server, "POST", "/api/definitions", form, headers=headers)
    assert reason(found) == (400, "the form has no field 'file'")


def test_definitions_file_is_imported_at_start() -> None:
    path = HERE / "definitions_3.10.json"
    with broker(http=True, load_definitions=str(path)) as server:
        assert lists(ask(server, "GET", "/api/definitions")[1]) == lists(read(path.name))


def test_plain_passwords_are_hashed(server: RunningBroker) -> None:
    user = {"name": "plain", "password": "secret", "tags": "management"}
    permission = {"user": "plain", "vhost": "/", "configure": "", "write": "", "read": ""}
    document = {"users": [user], "permissions": [permission]}
    assert ask(server, "POST", "/api/definitions", document) == (204, None)
    assert ask(server, "GET", "/api/vhosts", login="plain:secret")[0] == 200
    (row,) = [
        row for row in ask(server, "GET", "/api/definitions")[1]["users"] if row["name"] == "plain"
    ]
    assert "secret" not in json.dumps(row)


def test_only_administrators_may_export_and_import(server: RunningBroker) -> None:
    user = {"name": "maker", "password": "secret", "tags": "policymaker"}
    assert ask(server, "POST", "/api/definitions", {"users": [user]})[0] == 204
    login = "maker:secret"
    assert ask(server, "GET", "/api/definitions", login=login)[0] == 401
    assert ask(server, "POST", "/api/definitions", {}, login=login)[0] == 401
    assert ask(server, "GET", "/api/policies", login=login) == (200, [])
    assert ask(server, "GET", "/api/operator-policies", login=login) == (200, [])
