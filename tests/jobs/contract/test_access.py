"""Access and refusals: tokens, namespaces, limits, problem documents."""

import base64
from typing import Any

import jwt
import pytest

from leveret import job_model
from leveret.job_model import BACKOFF_MS_MAX, LEASE_MS_MAX, LEASE_MS_MIN
from tests.jobs.api import Answer, Api
from tests.jobs.stores import Service

TOPIC = "guarded"
PROBLEM = "application/problem+json"


def calls(api: Api, namespace: str) -> list[tuple[str, str, Any]]:
    """Every operation, each in a namespace."""
    place = {"namespace": namespace, "topic": TOPIC}
    handle = {**place, "id": 1}
    schedule = {"name": "s", **place, "cron": "* * * * *"}
    return [
        ("POST", "/enqueue", [{**place, "payload": ""}]),
        ("GET", f"/dequeue?namespace={namespace}&topic={TOPIC}", None),
        ("POST", f"/dequeue?namespace={namespace}&topic={TOPIC}", [handle]),
        *[("POST", path, handle) for path in ("/ack", "/nack", "/extend")],
        *[("POST", path, handle) for path in ("/cancel", "/deliver-now")],
        *[("POST", path, [handle]) for path in ("/ack", "/nack", "/extend")],
        ("GET", f"/job?namespace={namespace}&topic={TOPIC}&id=1", None),
        ("GET", f"/dead?namespace={namespace}&topic={TOPIC}", None),
        ("POST", "/dead/redrive", place),
        ("POST", "/dead/delete", place),
        ("GET", f"/topics/{namespace}/{TOPIC}", None),
        ("PUT", f"/topics/{namespace}/{TOPIC}", {}),
        ("GET", f"/stats?namespace={namespace}", None),
        ("GET", f"/schedules?namespace={namespace}", None),
        ("PUT", f"/schedules/{namespace}/s", schedule),
        ("DELETE", f"/schedules/{namespace}/s", None),
    ]


def test_no_token_is_401_everywhere(api: Api) -> None:
    for call in calls(api, api.namespace):
        answer = Api(api.port, None, "").call(*call)
        assert answer.status == 401, call
        assert answer.headers["www-authenticate"].startswith("Bearer"), call
        assert answer.headers["content-type"] == PROBLEM, call


def test_another_namespace_is_403_everywhere(api: Api) -> None:
    for call in calls(api, "somebody-elses"):
        answer = api.call(*call)
        assert answer.status == 403, call
        assert answer.headers["content-type"] == PROBLEM, call
        assert "somebody-elses" in answer.body["detail"], call


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("GET", "/enqueue", 405, "POST"),  # by the fast path
        ("DELETE", "/enqueue", 405, "POST"),
        ("PUT", "/dequeue?topic=t", 405, "GET"),
        ("POST", "/topics/a/b", 405, "PUT"),
        ("DELETE", "/dead/redrive", 405, "POST"),
        ("GET", "/topics/a", 404, ""),
        ("GET", "/topics/a/b/", 404, ""),
        ("GET", "/dead/", 404, ""),
        ("POST", "/schedules/a/b/c", 404, ""),
        ("GET", "/enqueue/more", 404, ""),
    ],
)
def test_unknown_path_or_method_answers_a_problem_document(
    api: Api, method: str, path: str, status: int, allowed: str
) -> None:
    answer = api.call(method, path)
    assert (answer.status, answer.headers["content-type"]) == (status, PROBLEM)
    title = {404: "Not Found", 405: "Method Not Allowed"}[status]
    assert (answer.body["status"], answer.body["title"]) == (status, title)
    assert allowed in answer.headers.get("allow", "").split(", ")


def test_paths_outside_the_jobs_api_answer_in_the_form_of_the_management_api(api: Api) -> None:
    for path in ("/api/jobs/nothing", "/api/enqueue", "/enqueues", "/nothing"):
        answer = api.call("GET", path)
        assert (answer.status, answer.body["error"]) == (404, "Object Not Found"), path


def test_a_token_for_all_namespaces_is_good_everywhere(api: Api, service: Service) -> None:
    master = Api(service.port, service.token("*"), api.namespace)
    for call in calls(api, api.namespace):
        assert master.call(*call).status not in (401, 403), call


def test_stats_cover_only_the_namespaces_of_the_token(api: Api, service: Service) -> None:
    api.enqueue(TOPIC, b"")
    other = Api(service.port, service.token("no-such-namespace"), "no-such-namespace")
    assert [one["namespace"] for one in api.get("/stats").body] == [api.namespace]
    assert other.get("/stats").body == []


def test_expired_token_is_401(api: Api, service: Service) -> None:
    brief = Api(service.port, service.token(api.namespace, lasts_s=2), api.namespace)
    assert brief.dequeue(TOPIC) == []
    service.pass_time(3)
    answer = brief.get("/dequeue", namespace=api.namespace, topic=TOPIC)
    assert answer.status == 401
    assert "expired" in answer.body["detail"]


def forged(secret: str, algorithm: str, **claims: Any) -> str:
    token: str = jwt.encode(claims, secret, algorithm=algorithm)
    return token


BAD_TOKENS = {
    "no token at all": "nonsense",
    "another secret": forged("x" * 40, "HS256", exp=9e9, namespaces=["*"]),
    "no algorithm": forged("", "none", exp=9e9, namespaces=["*"]),
    "another algorithm": forged("x" * 64, "HS512", exp=9e9, namespaces=["*"]),
}


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_a_bad_token_is_401(api: Api, name: str) -> None:
    answer = Api(api.port, BAD_TOKENS[name], "").get("/dequeue", namespace="n", topic="t")
    assert answer.status == 401
    assert "invalid_token" in answer.headers["www-authenticate"]


def test_token_without_namespaces_is_403(api: Api, service: Service) -> None:
    empty = Api(service.port, service.token(), api.namespace)
    assert empty.get("/dequeue", namespace=api.namespace, topic="t").status == 403


def test_login_of_an_administrator_is_accepted_instead_of_a_token(api: Api) -> None:
    login = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
    anybody = Api(api.port, None, api.namespace)
    path = f"/dequeue?namespace={api.namespace}&topic=t"
    assert anybody.call("GET", path, headers=login).status == 200
    wrong = {"Authorization": "Basic " + base64.b64encode(b"guest:wrong").decode()}
    assert anybody.call("GET", path, headers=wrong).status == 401
    answer = anybody.call("POST", "/api/jobs/token", {}, headers=login)
    api.token = answer.body["token"]
    assert api.dequeue("t") == []


# Limits


def refused(answer: Answer, field: str, item: int | None = None) -> str:
    """The detail of a 400 that names a field, and in a batch the item."""
    assert answer.status == 400, answer.data
    assert answer.headers["content-type"] == PROBLEM
    body = answer.body
    assert body["status"] == 400
    assert body["type"]
    assert body["title"] == "Bad Request"
    assert (body.get("field", ""), body.get("item")) == (field, item)
    detail: str = body["detail"]
    return detail


BAD_ITEMS: list[tuple[str, Any]] = [
    ("namespace", ""),
    ("namespace", "x" * 201),
    ("namespace", "line\nbreak"),
    ("namespace", 7),
    ("topic", ""),
    ("topic", "ü" * 101),
    ("topic", "refunds.dead"),
    ("topic", "amq.topic"),
    ("priority", job_model.PRIORITY_MAX + 1),
    ("priority", job_model.PRIORITY_MIN - 1),
    ("priority", 1.5),
    ("priority", "high"),
    ("payload", "not base64!"),
    ("payload", None),
    ("deliver_after", "tomorrow"),
    ("deliver_after", "2023-10-27T10:00:00"),
    ("deliver_after", "9999-01-01T00:00:00Z"),
    ("idempotency_key", ""),
    ("idempotency_key", "k" * 201),
    ("fair_key", "k" * 201),
]


@pytest.mark.parametrize(("field", "value"), BAD_ITEMS)
def test_a_bad_item_is_named_by_index_and_field(api: Api, field: str, value: Any) -> None:
    master = Api(api.port, api.token, api.namespace)
    batch = [api.item(TOPIC, b""), {**api.item(TOPIC, b""), field: value}]
    assert refused(master.call("POST", "/enqueue", batch), field, 1)
    assert api.dequeue(TOPIC) == []


def test_a_first_item_with_empty_names_is_refused(api: Api) -> None:
    """Items are compared with the one before; this one has none."""
    batch = [{**api.item("", b""), "namespace": ""}]
    assert refused(api.call("POST", "/enqueue", batch), "namespace", 0)


def test_a_field_that_nobody_knows_is_refused(api: Api) -> None:
    batch = [api.item(TOPIC, b""), {**api.item(TOPIC, b""), "prioriti": 1}]
    assert refused(api.call("POST", "/enqueue", batch), "prioriti", 1)
    handle = api.handle(TOPIC, 1, eror="no")
    assert refused(api.call("POST", "/nack", handle), "eror")


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        ("/ack", "error", "it has failed"),  # an ack would delete the job
        ("/ack", "dead", True),
        ("/ack", "delay", 5),
        ("/ack", "lease", 60),
        ("/nack", "lease", 60),
        ("/extend", "delay", 60),
        ("/cancel", "dead", True),
        ("/deliver-now", "delay", 60),
    ],
)
def test_a_field_of_another_call_is_refused(api: Api, path: str, field: str, value: Any) -> None:
    api.enqueue(TOPIC, b"")
    job = api.take(TOPIC)
    handle = api.handle(TOPIC, job, **{field: value})
    assert "not a known field" in refused(api.call("POST", path, handle), field)
    query = f"namespace={api.namespace}&topic={TOPIC}"
    if path == "/ack":
        refused(api.call("POST", f"/dequeue?{query}", [handle]), field, 0)
    assert api.ack(TOPIC, job) == 200


@pytest.mark.parametrize(("path", "field"), [("/nack", "delay"), ("/extend", "lease")])
@pytest.mark.parametrize("seconds", [-1, 1e12, 1e308])
def test_duration_out_of_range_is_refused(api: Api, path: str, field: str, seconds: float) -> None:
    handles = [api.handle(TOPIC, 1), api.handle(TOPIC, 2, **{field: seconds})]
    assert "seconds" in refused(api.call("POST", path, handles), field, 1)


def test_item_in_a_foreign_namespace_is_named(api: Api) -> None:
    jobs = [api.item(TOPIC, b""), {**api.item(TOPIC, b""), "namespace": "other"}]
    handles = [api.handle(TOPIC, 1), {**api.handle(TOPIC, 2), "namespace": "other"}]
    for path, batch in (("/enqueue", jobs), ("/ack", handles)):
        answer = api.call("POST", path, batch)
        assert answer.status == 403
        assert (answer.body["field"], answer.body["item"]) == ("namespace", 1)


@pytest.mark.parametrize("missing", ["namespace", "topic", "payload"])
def test_a_missing_field_is_named(api: Api, missing: str) -> None:
    item = api.item(TOPIC, b"")
    del item[missing]
    batch = [api.item(TOPIC, b""), item]
    assert missing in refused(api.call("POST", "/enqueue", batch), missing, 1)


@pytest.mark.parametrize("body", [b"", b"{", b"7", b"null", b'"x"', b"[]", b"[[]]", b"\xff"])
def test_a_body_that_is_no_batch_is_400(api: Api, body: bytes) -> None:
    answer = api.call("POST", "/enqueue", body)
    assert answer.status == 400
    assert answer.headers["content-type"] == PROBLEM


def test_batch_with_too_many_jobs_is_refused(api: Api) -> None:
    batch = [api.item(TOPIC, b"")] * (job_model.BATCH_MAX + 1)
    assert str(job_model.BATCH_MAX) in refused(api.call("POST", "/enqueue", batch), "")
    assert len(api.call("POST", "/enqueue", batch[:-1]).body) == job_model.BATCH_MAX


def test_payload_with_too_many_bytes_is_refused(api: Api) -> None:
    most = job_model.PAYLOAD_BYTES_MAX
    answer = api.call("POST", "/enqueue", [api.item(TOPIC, b"x" * (most + 1))])
    assert str(most) in refused(answer, "payload", 0)
    assert api.enqueue(TOPIC, b"x" * most)
    assert len(base64.b64decode(api.take(TOPIC)["payload"])) == most


def test_batch_with_too_many_bytes_is_refused(api: Api) -> None:
    each = job_model.PAYLOAD_BYTES_MAX
    batch = [api.item(TOPIC, b"x" * each)] * (job_model.BATCH_BYTES_MAX // each)
    batch.append(api.item(TOPIC, b"one more"))
    answer = api.call("POST", "/enqueue", batch)
    assert str(job_model.BATCH_BYTES_MAX) in refused(answer, "")
    assert api.dequeue(TOPIC) == []


BAD_QUERIES: list[tuple[str, str]] = [
    ("limit", "0"),
    ("limit", "1001"),
    ("limit", "-1"),
    ("limit", "ten"),
    ("wait", "61"),
    ("wait", "nan"),
    ("wait", "soon"),
    ("lease", "0.05"),
    ("lease", "43201"),
    ("lease", "inf"),
    ("wait", "1_0"),
    ("wait", " 1"),
    ("wait", "\u0661"),  # the digit one in Arabic, which Python reads as a number
    ("topic", ""),
    ("namespace", ""),
]


@pytest.mark.parametrize(("field", "value"), BAD_QUERIES)
def test_a_bad_query_names_its_field(api: Api, field: str, value: str) -> None:
    query = {"namespace": api.namespace, "topic": TOPIC, field: value}
    refused(api.get("/dequeue", **query), field)


CALLS = [
    ("POST", "/enqueue", "none"),
    ("GET", "/dequeue", "namespace, topic, limit, wait, lease"),
    ("POST", "/dequeue", "namespace, topic, limit, wait, lease"),
    ("POST", "/ack", "none"),
    ("POST", "/nack", "none"),
    ("POST", "/extend", "none"),
    ("POST", "/cancel", "none"),
    ("POST", "/deliver-now", "none"),
    ("GET", "/job", "namespace, topic, id"),
    ("GET", "/jobs", "namespace, topic, state, after, limit, payloads"),
    ("GET", "/dead", "namespace, topic, after, limit, payloads"),
    ("POST", "/dead/redrive", "none"),
    ("POST", "/dead/delete", "none"),
    ("GET", "/topics/n/t", "none"),
    ("PUT", "/topics/n/t", "none"),
    ("GET", "/stats", "namespace"),
    ("GET", "/schedules", "namespace"),
    ("PUT", "/schedules/n/s", "none"),
    ("DELETE", "/schedules/n/s", "none"),
]


@pytest.mark.parametrize(("method", "path", "known"), CALLS)
def test_an_unknown_query_parameter_is_refused(
    api: Api, method: str, path: str, known: str
) -> None:
    detail = refused(api.call(method, f"{path}?limt=10"), "limt")
    assert detail == f"'limt' is not a known parameter; this call takes: {known}"


def test_a_call_with_an_unknown_parameter_changes_nothing(api: Api) -> None:
    refused(api.call("POST", "/enqueue?dry_run=true", [api.item(TOPIC, b"")]), "dry_run")
    api.enqueue(TOPIC, b"1")
    job = api.take(TOPIC)
    path = f"/dequeue?namespace={api.namespace}&topic={TOPIC}&limt=10"
    refused(api.call("POST", path, [api.handle(TOPIC, job)]), "limt")
    assert api.ack(TOPIC, job) == 200
    assert api.dequeue(TOPIC) == []


def test_a_query_parameter_that_is_given_twice_is_refused(api: Api) -> None:
    query = f"namespace={api.namespace}&topic={TOPIC}"
    assert "twice" in refused(api.call("GET", f"/dequeue?{query}&limit=1&limit=2"), "limit")


def test_names_in_a_query_are_utf_8(api: Api) -> None:
    (id,) = api.enqueue("grün", b"")
    assert [job["id"] for job in api.dequeue("grün")] == [id]
    answer = api.call("GET", f"/dequeue?namespace={api.namespace}&topic=gr%FCn")
    assert "UTF-8" in refused(answer, "")


def test_a_flag_is_true_or_false(api: Api) -> None:
    place = {"namespace": api.namespace, "topic": TOPIC, "state": "ready"}
    for value in ("no", "1", ""):
        refused(api.get("/jobs", **place, payloads=value), "payloads")


def test_a_missing_query_is_named(api: Api) -> None:
    refused(api.get("/dequeue", namespace=api.namespace), "topic")
    refused(api.get("/dequeue", topic=TOPIC), "namespace")


@pytest.mark.parametrize(
    ("path", "more", "field"),
    [
        ("/ack", {"id": -1}, "id"),
        ("/ack", {"id": 2**63}, "id"),
        ("/ack", {"id": "abc"}, "id"),
        ("/ack", {"id": "9" * 400}, "id"),
        ("/ack", {"id": None}, "id"),
        ("/ack", {"token": -5}, "token"),
        ("/nack", {"delay": -1}, "delay"),
        ("/nack", {"error": 7}, "error"),
        ("/extend", {"lease": 0}, "lease"),
        ("/extend", {"lease": 1e300}, "lease"),
        ("/cancel", {"topic": ""}, "topic"),
    ],
)
def test_a_bad_handle_names_its_field(api: Api, path: str, more: Any, field: str) -> None:
    handle = {**api.handle(TOPIC, 1), **more}
    refused(api.call("POST", path, handle), field)
    refused(api.call("POST", path, [api.handle(TOPIC, 1), handle]), field, 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"retries_max": -1},
        {"retries_max": 10_001},
        {"retries_max": 1.0},
        {"retries_max": None},
        {"backoff_ms": -1},
        {"backoff_ms": BACKOFF_MS_MAX + 1},
        {"backoff_ms_max": BACKOFF_MS_MAX + 1},
        {"backoff_ms_max": 999},  # the first backoff is 1,000 by default
        {"lease_ms": LEASE_MS_MIN - 1},
        {"lease_ms": LEASE_MS_MAX + 1},
        {"jitter": 1.000001},
        {"jitter": -0.000001},
        {"concurrency_max": -1},
        {"concurrency_max": 1_000_001},
        {"concurrency_max": True},
        {"concurrency_max": 10**30},
    ],
)
def test_bad_settings_name_their_field(api: Api, settings: dict[str, Any]) -> None:
    (field,) = settings
    path = f"/topics/{api.namespace}/{TOPIC}"
    before = api.get(path).body
    refused(api.call("PUT", path, settings), field)
    assert api.get(path).body == before


@pytest.mark.parametrize(
    "settings",
    [
        {"retries_max": 0, "jitter": 0, "concurrency_max": 0, "lease_ms": LEASE_MS_MIN},
        {"retries_max": 10_000, "jitter": 1, "concurrency_max": 1_000_000},
        {"backoff_ms": BACKOFF_MS_MAX, "backoff_ms_max": BACKOFF_MS_MAX, "lease_ms": LEASE_MS_MAX},
        {"backoff_ms": 0, "backoff_ms_max": 0},
    ],
)
def test_settings_at_their_bounds_are_kept(api: Api, settings: dict[str, Any]) -> None:
    api.set_topic(TOPIC, **settings)
    kept = api.get(f"/topics/{api.namespace}/{TOPIC}").body
    assert {name: kept[name] for name in settings} == settings
    (id,) = api.enqueue(TOPIC, b"")
    for job in api.dequeue(TOPIC, lease=60):
        assert api.nack(TOPIC, job) == 200  # the backoff can be computed
    assert api.job(TOPIC, id)["state"] != "leased"


def test_the_longest_backoff_cannot_be_below_the_first(api: Api) -> None:
    path = f"/topics/{api.namespace}/{TOPIC}"
    both = {"backoff_ms": 5_000, "backoff_ms_max": 4_999}
    detail = refused(api.call("PUT", path, both), "backoff_ms_max")
    assert "4999" in detail
    assert "5000" in detail
    api.set_topic(TOPIC, backoff_ms=50, backoff_ms_max=100)
    api.set_topic(TOPIC, backoff_ms_max=50)  # below the default of the first, which is not in force
    refused(api.call("PUT", path, {"backoff_ms": 51}), "backoff_ms_max")
    assert api.get(path).body["backoff_ms"] == 50


def test_a_body_that_a_call_does_not_take_is_refused(api: Api) -> None:
    api.enqueue(TOPIC, b"1", b"2")
    path = f"/dequeue?namespace={api.namespace}&topic={TOPIC}"
    answer = api.call("GET", path, {"limit": 1})
    assert answer.status == 400
    assert answer.body["detail"] == "this call takes no body; its parameters are in the query"
    chunked = {"Transfer-Encoding": "chunked"}
    assert api.call("GET", path, b"2\r\n{}\r\n0\r\n\r\n", chunked).status == 400
    assert len(api.call("GET", path, b"0\r\n\r\n", chunked).body) == 2, "an empty one is none"
    assert api.call("DELETE", f"/schedules/{api.namespace}/s", {}).status == 400


def test_a_query_with_too_many_parameters_is_refused_before_it_is_read(api: Api) -> None:
    path = f"/dequeue?namespace={api.namespace}&topic={TOPIC}"
    answer = api.call("GET", path + "&" * 20_000)
    assert answer.status == 400
    assert answer.body["detail"] == "the query has more than 32 parameters"
