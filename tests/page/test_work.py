"""Exchanges, connections, streams and administration in the page."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from playwright.sync_api import Locator, Route, expect

from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask
from tests.page.browser import PHONE, Reader, asked

pytestmark = pytest.mark.compiled_only("the calls behind the page are tested in both forms")

LONG = "orders.europe.germany.billing"  # the name of a queue
WIDER_THAN_BOX = """(boxes) => boxes
  .map((box) => [box.querySelector("text").getBBox(), box.querySelector("rect").getBBox()])
  .filter(([text, rect]) => text.x + text.width > rect.width)
  .length"""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        yield found


def submit(dialog: Locator, verb: str, **fields: str) -> None:
    """Fill the fields of a dialog, by the names of its form, and send it."""
    for name, value in fields.items():
        field = dialog.locator(f"[name={name}]")
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    dialog.get_by_role("button", name=verb, exact=True).click()
    expect(dialog).to_have_count(0)


def test_wide_graph_shows_its_exchange_first_on_a_phone(
    reader: Reader, server: RunningBroker
) -> None:
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("inner", "topic")
        channel.exchange_bind("inner", "amq.topic", "#")
        channel.exchange_bind("amq.fanout", "inner", "#")
    reader.show_as(PHONE, "light")
    reader.open("#/exchanges/%2F/inner", "/exchanges/:vhost/:name")
    graph = reader.page.locator(".graph")
    reader.page.wait_for_function("() => document.querySelector('.graph').scrollLeft > 0")
    expect(graph.get_by_role("link", name="inner (exchange)")).to_be_in_viewport(ratio=1)
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        connection.channel().exchange_delete("inner")


def test_an_exchange_is_declared_bound_drawn_and_tried(
    reader: Reader, server: RunningBroker
) -> None:
    page = reader.page
    dialog = page.get_by_role("dialog")
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        connection.channel().queue_declare("eu")
        connection.channel().queue_declare(LONG)
    reader.open("#/exchanges", "/exchanges")
    page.get_by_role("button", name="Declare an exchange").click()
    submit(dialog, "Declare", name="orders", type="topic")
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    for queue, key in (("eu", "order.eu.*"), (LONG, "#")):
        page.get_by_role("button", name="Bind", exact=True).click()
        submit(dialog, "Bind", other=queue, key=key)
    graph = page.locator(".graph")
    expect(graph.get_by_role("link", name="eu (queue)")).to_be_visible()
    expect(graph.locator(".label").filter(has_text="order.eu.*")).to_be_visible()
    expect(graph.get_by_role("link", name=f"{LONG} (queue)")).to_be_visible()
    assert graph.locator(".box").evaluate_all(WIDER_THAN_BOX) == 0

    route = page.locator("[data-route]")
    page.get_by_label("Routing key").fill("order.us.new")
    page.get_by_role("button", name="Test").click()
    expect(route).to_contain_text(f"The message would reach 1 queue: {LONG}.")
    page.get_by_label("Routing key").fill("order.eu.new")
    page.get_by_role("button", name="Test").click()
    expect(route).to_contain_text("The message would reach 2 queues")
    expect(graph.get_by_role("link", name="eu (queue, reached)")).to_be_visible()

    page.get_by_role("button", name="Publish").click()
    submit(dialog, "Publish", payload="hello", routingKey="order.eu.new")
    assert [q["messages"] for q in asked(server, "/api/queues/%2F?sort=name")] == [1, 1]
    page.get_by_role("button", name="Unbind").first.click()
    expect(dialog).to_contain_text("Remove 1 binding?")
    dialog.get_by_role("button", name="Unbind").click()
    expect(page.get_by_role("button", name="Unbind")).to_have_count(1)
    page.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete the exchange").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Exchanges")


def test_a_connection_is_closed_with_a_reason(reader: Reader, server: RunningBroker) -> None:
    page = reader.page
    connection = pika.BlockingConnection(pika.URLParameters(server.url))
    (found,) = asked(server, "/api/connections")
    reader.open("#/connections", "/connections")
    page.locator(".rows a").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(found["name"])
    page.get_by_role("button", name="Close", exact=True).click()
    submit(page.get_by_role("dialog"), "Close the connection", reason="Time to go")
    expect(page.get_by_text("The connection is closed.")).to_be_visible()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="Time to go"):
        connection.process_data_events(60)


def test_a_queue_is_paused_and_resumed(reader: Reader, server: RunningBroker) -> None:
    page = reader.page
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        connection.channel().queue_declare("stopped")
    reader.open("#/queues/%2F/stopped", "/queues/:vhost/:name")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert asked(server, "/api/queues/%2F/stopped")["paused"] is True
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    assert asked(server, "/api/queues/%2F/stopped")["paused"] is False


def test_a_stream_is_browsed_by_offset_and_time(reader: Reader, server: RunningBroker) -> None:
    page = reader.page
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()
        for number in range(300):
            channel.basic_publish("", "log", b"event %d" % number)
    reader.open("#/streams/%2F/log", "/streams/:vhost/:name")
    status = page.get_by_role("status").filter(has_text="Offsets")
    expect(status).to_have_text("Offsets 200 to 299.")
    page.get_by_role("button", name="First").click()
    expect(status).to_have_text("Offsets 0 to 99.")
    page.get_by_role("button", name="Next").click()
    expect(status).to_have_text("Offsets 100 to 199.")
    page.get_by_label("From offset").fill("42")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(page.locator("tr[data-row]").first).to_contain_text("event 42")
    page.get_by_label("Or from time").fill("2020-01-01 00:00")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(status).to_have_text("Offsets 0 to 99.")
    page.locator("button.open").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("event 0")
    reader.press("Escape")
    assert ask(server, "PUT", "/api/streams/%2F/log/cursors/me", {"offset": 120})[0] == 201
    lag = page.locator(".list tbody tr").filter(has_text="cursor")
    expect(lag).to_contain_text(re.compile(r"me.*cursor.*120.*180.*(ms|s|min)"))
    assert ask(server, "PUT", "/api/streams/%2F/log/cursors/me", {"offset": 300})[0] == 204
    expect(lag).to_contain_text("up to date")


def test_an_administrator_sets_up_a_vhost_user_policy_and_limit(
    reader: Reader, server: RunningBroker
) -> None:
    page = reader.page
    dialog = page.get_by_role("dialog")
    reader.open("#/vhosts", "/vhosts")
    page.get_by_role("button", name="Add a virtual host").click()
    submit(dialog, "Add", name="team", description="of ours")
    expect(page.get_by_text("of ours")).to_be_visible()
    expect(page.get_by_label("Virtual host").locator("option")).to_have_text(
        ["All vhosts", "/", "team"]
    )

    reader.open("#/users", "/users")
    page.get_by_role("button", name="Add a user").click()
    submit(dialog, "Add", name="ann", password="a long secret", tags="management")
    page.get_by_role("link", name="ann", exact=True).click()
    page.get_by_role("button", name="Set", exact=True).first.click()
    submit(dialog, "Set", vhost="team", configure="^ann", write=".*", read="")
    expect(page.get_by_text("^ann")).to_be_visible()
    (permission,) = asked(server, "/api/users/ann/permissions")
    assert (permission["vhost"], permission["configure"], permission["read"]) == (
        "team",
        "^ann",
        "",
    )

    reader.open("#/policies", "/policies")
    page.get_by_role("button", name="Add", exact=True).first.click()
    submit(
        dialog, "Add", name="short", vhost="team", pattern="^tmp", definition="message-ttl: 60000"
    )
    expect(page.get_by_text("message-ttl: 60000")).to_be_visible()
    reader.open("#/limits", "/limits")
    page.get_by_role("button", name="Set", exact=True).first.click()
    submit(dialog, "Set", of="team", name="max-queues", value="7")
    expect(page.locator("main")).to_contain_text("max-queues")
    assert asked(server, "/api/vhost-limits/team")[0]["value"] == {"max-queues": 7}

    assert ask(server, "GET", "/api/whoami", login="guest:wrong")[0] == 401
    reader.open("#/audit", "/audit")
    page.get_by_label("Search the log").fill("vhosts")
    entry = page.locator("tr[data-row]").last
    expect(entry).to_contain_text("PUT vhosts › team")
    expect(entry.locator(".badge.good")).to_have_text("done")
    page.get_by_label("Search the log").fill("login over HTTP")
    expect(page.locator("tr[data-row] .badge.bad").first).to_have_text("refused")

    assert ask(server, "PUT", "/api/queues/team/tasks", {})[0] == 201
    reader.open("#/vhosts", "/vhosts")
    page.get_by_role("button", name="Delete").last.click()
    expect(dialog).to_contain_text("Its 1 queue with 0 messages, its exchanges")
    submit(dialog, "Delete the virtual host", name="team")
    expect(page.get_by_text("of ours")).to_have_count(0)


def test_definitions_are_exported_and_imported(
    reader: Reader, server: RunningBroker, tmp_path: Path
) -> None:
    page = reader.page
    reader.open("#/definitions", "/definitions")
    with page.expect_download() as begun:
        page.get_by_role("button", name="Export").click()
    found = json.loads(Path(begun.value.path()).read_text())
    assert {"users", "vhosts", "queues", "exchanges", "bindings"} <= set(found)
    file = tmp_path / "definitions.json"
    queue = {"name": "imported", "vhost": "/", "durable": True, "auto_delete": False}
    file.write_text(json.dumps({"queues": [{**queue, "arguments": {}}]}))
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Import").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The file contains 1 queue.")
    dialog.get_by_role("button", name="Import").click()
    expect(page.get_by_text("The definitions are imported.")).to_be_visible()
    assert asked(server, "/api/queues/%2F/imported")["durable"] is True


def test_an_answer_that_comes_late_does_not_replace_a_newer_one(
    reader: Reader, server: RunningBroker
) -> None:
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("late")
        for body in ("slow", "fast"):
            channel.basic_publish("", "late", body.encode())
    page = reader.page
    rows = page.locator(".rows tr[data-row]")
    held: list[Route] = []

    def hold(route: Route) -> None:
        is_slow = "slow" in (route.request.post_data or "")
        held.append(route) if is_slow else route.continue_()

    page.route("**/search", hold)
    reader.open("#/queues/%2F/late/messages", "/queues/:vhost/:name/:tab")
    expect(rows).to_have_count(2)
    for text in ("slow", "fast"):
        page.get_by_label("Text in the payload").fill(text)
        page.get_by_role("button", name="Search").click()
        expect(page.locator(".rows[aria-busy=true]")).to_have_count(1 if text == "slow" else 0)
    expect(rows).to_have_count(1)
    with page.expect_response("**/search"):
        held[0].continue_()
    page.wait_for_timeout(0)  # let the page handle the answer
    expect(rows.first).to_contain_text("fast")


def test_a_long_payload_is_shown_copied_and_downloaded_whole(
    reader: Reader, server: RunningBroker
) -> None:
    page = reader.page
    body = "€" * 100_000  # 300,000 bytes
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("long")
        channel.basic_publish("", "long", body.encode(), pika.BasicProperties(message_id="m 1"))
        channel.queue_declare("octets", durable=True, arguments={"x-queue-type": "stream"})
        channel.basic_publish("", "octets", b"\xff" * 9000)
    reader.context.grant_permissions(["clipboard-read", "clipboard-write"])
    dialog = page.get_by_role("dialog")
    payload = dialog.locator("pre.payload")

    reader.open("#/queues/%2F/long/messages", "/queues/:vhost/:name/:tab")
    page.locator("tr[data-row] button.open").click()
    expect(dialog).to_contain_text("The first 1,998 of 300,000 bytes")
    expect(payload).to_have_text(body[:666])
    dialog.get_by_role("button", name="Copy payload").click()
    expect(page.get_by_text("Copied 300,000 bytes.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == body
    with page.expect_download() as saved:
        dialog.get_by_role("button", name="Download").click()
    assert saved.value.suggested_filename == "message-m_1.bin"
    assert saved.value.path().read_bytes() == body.encode()
    dialog.get_by_role("button", name="Show all").click()
    expect(payload).to_have_text(body)
    expect(dialog.get_by_role("button", name="Show all")).to_have_count(0)
    reader.press("Escape")

    reader.open("#/streams/%2F/octets", "/streams/:vhost/:name")
    page.locator("tr[data-row] button.open").click()
    expect(dialog).to_contain_text("The first 4,000 of 9,000 bytes (8.8 KiB), shown as base64")
    with page.expect_download() as saved:
        dialog.get_by_role("button", name="Download").click()
    assert saved.value.path().read_bytes() == b"\xff" * 9000
    # Without HTTPS, browsers have no navigator.clipboard.
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    dialog.get_by_role("button", name="Copy payload").click()
    expect(page.get_by_text("Copied 9,000 bytes as base64.")).to_be_visible()


def test_connections_have_the_names_that_clients_gave_them(
    reader: Reader, server: RunningBroker
) -> None:
    page = reader.page
    opened = []
    for name in ("zoo", "ant"):
        parameters = pika.URLParameters(server.url)
        parameters.client_properties = {"connection_name": name}
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        channel.queue_declare("named")
        channel.basic_consume("named", lambda *_: None, consumer_tag=name)
        opened.append(connection)
    rows = page.locator("tr[data-row]")
    reader.open("#/connections?q=/^(zoo|ant)$|/", "/connections")
    expect(rows).to_have_text([re.compile("^ant"), re.compile("^zoo")])
    rows.first.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("ant")
    reader.open("#/channels", "/channels")
    expect(page.get_by_role("link", name="zoo (1)", exact=True)).to_be_visible()
    reader.open("#/queues/%2F/named/consumers", "/queues/:vhost/:name/:tab")
    expect(page.get_by_role("link", name="ant (1)", exact=True)).to_be_visible()
    for connection in opened:
        connection.close()


def test_an_empty_queue_without_consumers_is_calm(reader: Reader, server: RunningBroker) -> None:
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        connection.channel().queue_declare("calm")
    reader.open("#/queues/%2F/calm", "/queues/:vhost/:name")
    explanation = reader.page.locator("[data-explanation]")
    expect(explanation).to_contain_text("There are no messages.")
    expect(explanation).not_to_have_class(re.compile("warn"))


def test_a_consumer_that_holds_up_a_queue_is_listed_once(
    reader: Reader, server: RunningBroker
) -> None:
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("full")
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("full", lambda *_: None, consumer_tag="slow")
        for _ in range(2):
            channel.basic_publish("", "full", b"x")
        channel.queue_declare("full", passive=True)  # the broker has both messages
        reader.open("#/queues/%2F/full", "/queues/:vhost/:name")
        explanation = reader.page.locator("[data-explanation]")
        expect(explanation.locator("[data-code=unacked]")).to_be_visible()
        expect(explanation.locator("li li")).to_have_text(re.compile("^slow on .*1 of 1"))


def test_users_are_listed_with_their_vhosts_and_lose_permissions_only_after_a_question(
    reader: Reader,
) -> None:
    page = reader.page
    reader.open("#/users", "/users")
    expect(page.locator("tr[data-row]").filter(has_text="guest")).to_contain_text("/")
    reader.open("#/users/guest", "/users/:name")
    page.get_by_role("button", name="Remove").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("can no longer use the vhost “/”")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Remove")).to_have_count(1)


def test_errors_are_plain_sentences(reader: Reader) -> None:
    page = reader.page
    dialog = page.get_by_role("dialog")
    reader.open("#/policies", "/policies")
    page.get_by_role("button", name="Add", exact=True).first.click()
    for definition, said in (
        ("nosuch: x", "“nosuch” is not a policy setting"),
        ("max-length: x", "“x” is not a valid maximum length"),
    ):
        for name, value in (("name", "p"), ("pattern", "a"), ("definition", definition)):
            dialog.locator(f"[name={name}]").fill(value)
        dialog.get_by_role("button", name="Add", exact=True).click()
        expect(dialog.get_by_role("alert")).to_contain_text(f"({said}).")
    reader.press("Escape")

    reader.open("#/users", "/users")
    page.get_by_label("Search users").fill("/(/")
    expect(page.get_by_text("/(/ is not a valid regular expression.")).to_be_visible()
    expect(page.get_by_role("link", name="guest")).to_be_visible()
    page.get_by_label("Search users").fill("/nobody/")
    expect(page.get_by_text("No matches.")).to_be_visible()
