"""Every view in light and dark, on desktop and phone: it fits the window and can be read by all.

The names and bodies in this broker are hostile. They must be shown as plain text and never run.
"""

from collections.abc import Iterator
from urllib.parse import quote

import pika
import pytest
from playwright.sync_api import BrowserContext, expect

from leveret.testing.broker import RunningBroker, broker
from tests.page.browser import DESKTOP, PHONE, Reader, asked

pytestmark = pytest.mark.compiled_only("looks are the page's own, and the same in both forms")

MARKUP = "<img src=x onerror=alert(1)>"
ODD_NAMES = [MARKUP, "grüße/日本語 %2F?#&", "x" * 255, "'\"><svg onload=alert(2)>", "a\tb"]
BODY = b"<script>alert(3)</script>" + MARKUP.encode()


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        # Nothing answers heartbeats while a test looks at all views, for minutes on a busy machine.
        connection = pika.BlockingConnection(pika.URLParameters(f"{found.url}?heartbeat=0"))
        fill(connection.channel())
        yield found
        connection.close()


def fill(channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
    channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
    channel.exchange_declare(MARKUP, "topic")
    channel.exchange_declare("next", "headers")
    channel.exchange_bind("next", MARKUP, "#")
    properties = pika.BasicProperties(
        message_id=MARKUP, headers={MARKUP: MARKUP}, content_type="text/html"
    )
    for name in ODD_NAMES:
        channel.queue_declare(name, arguments={"x-dead-letter-exchange": MARKUP})
        channel.queue_bind(name, MARKUP, f"{MARKUP}.*")
        channel.queue_bind(name, "next", arguments={"x-match": "all", MARKUP: MARKUP})
        for _ in range(3):
            channel.basic_publish("", name, BODY, properties)
    for _ in range(20):
        channel.basic_publish("", "stream", BODY, properties)
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(MARKUP, lambda *_: None, consumer_tag=MARKUP)
    channel.connection.process_data_events(0)


def views(server: RunningBroker) -> dict[str, str]:
    """Return an address for each path of the router."""
    part = quote(MARKUP, safe="")
    connection = asked(server, "/api/connections")[0]["name"]
    channel = quote(asked(server, "/api/channels")[0]["name"], safe="")
    name = quote(connection, safe="")
    return {
        "/": "#/",
        "/node": "#/node",
        "/queues": "#/queues",
        "/queues/:vhost/:name": f"#/queues/%2F/{part}",
        "/queues/:vhost/:name/:tab": f"#/queues/%2F/{part}/messages",
        "/streams": "#/streams",
        "/streams/:vhost/:name": "#/streams/%2F/stream",
        "/jobs": "#/jobs",
        "/jobs/:namespace/:topic": f"#/jobs/%2F/{part}",
        "/exchanges": "#/exchanges",
        "/exchanges/:vhost/:name": f"#/exchanges/%2F/{part}",
        "/exchanges/:vhost/:name/:tab": f"#/exchanges/%2F/{part}/bindings",
        "/trace": f"#/trace?message_id={part}",
        "/connections": "#/connections",
        "/connections/:name": f"#/connections/{name}",
        "/channels": "#/channels",
        "/channels/:name": f"#/channels/{channel}",
        "/cluster": "#/cluster",
        "/tasks": "#/tasks",
        "/users": "#/users",
        "/users/:name": "#/users/guest",
        "/vhosts": "#/vhosts",
        "/policies": "#/policies",
        "/limits": "#/limits",
        "/definitions": "#/definitions",
        "/audit": "#/audit",
        "/manual/:first": "#/manual/README.md",
        "/manual/:first/:second": "#/manual/docs/jobs.md",
        "/manual/:first/:second/:third": "#/manual/docs/formats/log.md",
    }


OTHER_TABS = ["consumers", "bindings"]


def test_every_view_can_be_read_and_fits_the_window(
    context: BrowserContext, server: RunningBroker
) -> None:
    reader = Reader(context, server)
    reader.page.goto(reader.base)
    reader.page.get_by_label("Name").wait_for()
    faults = looked_at(reader, "login")
    reader.sign_in()
    known: list[str] = reader.page.evaluate(
        "async () => (await import('/page/routes.js')).ROUTES.map((route) => route.path)"
    )
    addresses = views(server)
    assert set(known) == set(addresses), "every view of the router is checked"
    for view, address in addresses.items():
        reader.open(address, view)
        faults += looked_at(reader, view)
    for tab in OTHER_TABS:
        address = f"#/queues/%2F/{quote(MARKUP, safe='')}/{tab}"
        reader.open(address, "/queues/:vhost/:name/:tab")
        faults += looked_at(reader, tab)
    faults += dialogs(reader)
    complaints = reader.complaints
    reader.close()
    assert not faults, "\n".join(faults)
    assert complaints == []


def looked_at(reader: Reader, where: str) -> list[str]:
    """Return the faults of a view on desktop and phone, in light and dark."""
    faults = []
    said = reader.page.locator("main [role=alert]").all_text_contents()
    faults += [f"{where}: {text}" for text in said if text]
    for size in (DESKTOP, PHONE):
        for theme in ("light", "dark"):
            reader.show_as(size, theme)
            found = reader.contrast_faults()
            if theme == "light":  # these do not depend on colours
                found += reader.axe_faults() + reader.clipped()
            if reader.overflow() > 0:
                found.append(f"{reader.overflow()} px too wide")
            if found:
                reader.keep_screenshot(where)
            faults += [f"{where}, {theme}, {size[0]} px: {fault}" for fault in found]
    reader.show_as(DESKTOP, "light")
    return faults


def dialogs(reader: Reader) -> list[str]:
    """Check the dialogs."""
    page = reader.page
    reader.open("#/queues", "/queues")
    page.get_by_role("button", name="Declare a queue").click()
    faults = looked_at(reader, "declare")
    page.keyboard.press("Escape")
    reader.open(f"#/queues/%2F/{quote(MARKUP, safe='')}/messages", "/queues/:vhost/:name/:tab")
    page.locator("tr[data-row] button.open").first.click()
    page.locator("dialog [data-explanation]").wait_for()
    faults += looked_at(reader, "message")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Delete", exact=True).last.click()
    page.get_by_role("button", name="Preview").click()
    page.locator("[data-plan]").wait_for()
    return faults + looked_at(reader, "plan")


@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
def test_odd_names_and_bodies_are_shown_as_they_are(reader: Reader, name: str) -> None:
    page = reader.page
    reader.open("#/queues", "/queues")
    # Use the link in the list, to test its encoding.
    page.locator(".rows a").filter(has_text=name.strip()[:40]).first.click()
    page.locator('main[data-view="/queues/:vhost/:name"][aria-busy=false]').wait_for()
    assert page.locator("h1").text_content() == name
    page.get_by_role("link", name="Messages", exact=True).click()
    row = page.locator("tr[data-row]").first
    expect(row).to_contain_text("<script>alert(3)</script>")
    row.locator("button.open").click()
    expect(page.locator("dialog pre")).to_have_text(BODY.decode())
    assert page.locator("main img, main script, dialog img, dialog script").count() == 0
