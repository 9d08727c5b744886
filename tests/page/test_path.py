"""An operator's path through the page, from signing in to a redriven dead letter.

Once with the mouse and once with the keyboard alone. The broker is real. Each result that the page
reports is checked with the broker too.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pika
import pytest
from playwright.sync_api import expect

from leveret.testing.broker import RunningBroker, broker
from tests.page.browser import Reader

pytestmark = pytest.mark.compiled_only("the calls behind the page are tested in both forms")

# The focus is in the dialog, or on the browser's own controls.
IS_INSIDE = """() => {
    const at = document.activeElement;
    return at === document.body || at.closest("dialog") !== null;
}"""


@pytest.fixture
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        yield found


def count(server: RunningBroker, queue: str) -> int:
    """Return the number of ready messages of a queue, from AMQP."""
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        declared = connection.channel().queue_declare(queue, passive=True)
        found: int = declared.method.message_count
        return found


def make_dead_letters(server: RunningBroker) -> None:
    """Declare the queues `work` and `dead`, with two dead letters of `work`."""
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("dead")
        channel.queue_declare(
            "work",
            arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
        )
        for number in range(2):
            properties = pika.BasicProperties(message_id=f"job-{number}")
            channel.basic_publish("", "work", b"job %d" % number, properties)
            got = channel.basic_get("work")[0]
            assert got is not None
            channel.basic_reject(got.delivery_tag, requeue=False)


def test_whole_path_with_the_mouse(reader: Reader, server: RunningBroker) -> None:
    make_dead_letters(server)
    watch_a_rate(reader, server)
    declare(reader)
    publish(reader, server)
    read_why_nothing_moves(reader)
    look_and_search(reader, server)
    move_what_was_found(reader, server)
    redrive(reader, server)


def watch_a_rate(reader: Reader, server: RunningBroker) -> None:
    page = reader.page
    rate = page.locator("[data-rate=publish]").first
    expect(rate).to_have_text("0/s")
    with publishing(server, "busy"):
        expect(rate).not_to_have_text("0/s")


@contextmanager
def publishing(server: RunningBroker, queue: str) -> Iterator[None]:
    """Publish all the time: on a busy machine the page may ask once in many seconds."""
    is_over = threading.Event()

    def publish() -> None:
        with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
            channel = connection.channel()
            channel.queue_declare(queue)
            while not is_over.wait(0.02):
                for _ in range(10):
                    channel.basic_publish("", queue, b"x")

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        yield
    finally:
        is_over.set()
        publisher.join()


def declare(reader: Reader) -> None:
    page = reader.page
    dialog = page.get_by_role("dialog")
    page.get_by_role("link", name="Queues").first.click()
    page.get_by_role("button", name="Declare a queue").click()
    dialog.get_by_label("Name", exact=True).fill("orders")
    dialog.get_by_role("button", name="Declare", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")


def publish(reader: Reader, server: RunningBroker) -> None:
    page = reader.page
    dialog = page.get_by_role("dialog")
    for text in ("first order", "second order", '{"order": {"id": 5}}'):
        page.get_by_role("button", name="Publish").click()
        dialog.get_by_label("Payload", exact=True).fill(text)
        dialog.get_by_role("button", name="Publish").click()
        expect(dialog).to_have_count(0)
    expect(page.get_by_text("routed to a queue").first).to_be_visible()
    expect(page.locator("[data-count=ready]")).to_have_text("3")
    assert count(server, "orders") == 3


def read_why_nothing_moves(reader: Reader) -> None:
    page = reader.page
    explanation = page.locator("[data-explanation]")
    expect(explanation).to_contain_text("No messages are moving.")
    expect(explanation.locator("[data-code=no_consumer]")).to_be_visible()


def look_and_search(reader: Reader, server: RunningBroker) -> None:
    page = reader.page
    dialog = page.get_by_role("dialog")
    rows = page.locator(".rows tr[data-row]")
    page.get_by_role("link", name="Messages", exact=True).click()
    expect(rows).to_have_count(3)
    page.get_by_label("Text in the payload").fill("second")
    page.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("second order")
    page.get_by_label("Text in the payload").fill("")
    page.get_by_text("More filters").click()
    page.get_by_label("JSON path").fill("$.order.id: 5")
    page.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text('"id": 5')
    rows.first.get_by_role("button").click()
    expect(dialog).to_contain_text('"id": 5')
    expect(dialog.locator("[data-code]").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert count(server, "orders") == 3, "looking changes nothing"


def move_what_was_found(reader: Reader, server: RunningBroker) -> None:
    page = reader.page
    dialog = page.get_by_role("dialog")
    rows = page.locator(".rows tr[data-row]")
    before = count(server, "busy")
    rows.first.get_by_role("checkbox").check()
    page.get_by_role("button", name="Move", exact=True).click()
    dialog.get_by_label("To queue").fill("busy")
    dialog.get_by_role("button", name="Preview").click()
    expect(page.locator("[data-plan]")).to_contain_text("1 message would be moved.")
    dialog.get_by_role("button", name="Move", exact=True).click()
    expect(page.get_by_text("1 message moved.")).to_be_visible()
    assert (count(server, "orders"), count(server, "busy")) == (2, before + 1)


def redrive(reader: Reader, server: RunningBroker) -> None:
    page = reader.page
    dialog = page.get_by_role("dialog")
    rows = page.locator(".rows tr[data-row]")
    reader.open("#/queues/%2F/dead/messages", "/queues/:vhost/:name/:tab")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Redrive").click()
    dialog.get_by_role("button", name="Preview").click()
    expect(page.locator("[data-plan]")).to_contain_text("queue work")
    dialog.get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("2 messages redriven.")).to_be_visible()
    assert (count(server, "dead"), count(server, "work")) == (0, 2)


def test_whole_path_with_the_keyboard(reader: Reader, server: RunningBroker) -> None:
    make_dead_letters(server)
    sign_in_by_keys(reader)
    skip_the_navigation(reader)
    declare_by_keys(reader)
    publish_by_keys(reader)
    leave_a_dialog(reader)
    find_a_queue_by_keys(reader)
    redrive_by_keys(reader)
    assert (count(server, "dead"), count(server, "work")) == (1, 1)


def sign_in_by_keys(reader: Reader) -> None:
    page = reader.page
    reader.tab_to("Sign out")
    reader.press("Enter")
    expect(page.get_by_label("Name")).to_be_focused()
    reader.type("guest")
    reader.press("Tab")
    reader.type("guest")
    reader.press("Enter")
    page.locator("main[aria-busy=false]").wait_for()

    expect(page.get_by_role("heading", level=1)).to_be_focused()


def skip_the_navigation(reader: Reader) -> None:
    """The first link of the page skips the navigation."""
    page = reader.page
    page.reload()
    page.locator("main[aria-busy=false]").wait_for()
    reader.press("Tab")
    reader.expect_focus("Skip to content")
    reader.press("Enter")
    expect(page.locator("main")).to_be_focused()


def declare_by_keys(reader: Reader) -> None:
    page = reader.page
    reader.go_by_keys("q", "/queues")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    reader.tab_to("Declare a queue")
    reader.press("Enter")
    reader.expect_focus("Name")
    reader.type("orders")
    reader.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")


def publish_by_keys(reader: Reader) -> None:
    """Tab keeps the focus in the dialog."""
    page = reader.page
    reader.tab_to("Publish")
    reader.press("Enter")
    reader.expect_focus("Payload")
    for _ in range(40):
        reader.press("Tab")
        assert page.evaluate(IS_INSIDE), reader.focused()
    page.locator("dialog textarea").first.focus()
    reader.type("by hand")
    reader.tab_to("Publish")
    reader.press("Enter")
    expect(page.locator("[data-count=ready]")).to_have_text("1")
    expect(page.locator("[data-code=no_consumer]")).to_be_visible()


def leave_a_dialog(reader: Reader) -> None:
    """Esc closes a dialog and restores the focus."""
    page = reader.page
    reader.tab_to("Purge")
    reader.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    reader.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    reader.expect_focus("Purge")


def find_a_queue_by_keys(reader: Reader) -> None:
    """Search, arrow down, Enter."""
    page = reader.page
    reader.go_by_keys("q", "/queues")
    reader.press("/")
    reader.expect_focus("Search queues")
    reader.type("dea")
    expect(page.locator(".rows tr[data-row]")).to_have_count(1)
    reader.tab_to("Queues")
    reader.press("ArrowDown", "Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("dead")


def redrive_by_keys(reader: Reader) -> None:
    """Open a message, select it, redrive it."""
    page = reader.page
    reader.tab_to("Messages")
    reader.press("Enter")
    rows = page.locator(".rows tr[data-row]")
    expect(rows).to_have_count(2)
    reader.tab_to("Messages in the queue")
    reader.press("ArrowDown", "Enter")
    expect(page.get_by_role("dialog")).to_contain_text("job 0")
    reader.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    reader.press("Space")
    expect(page.get_by_text("1 selected message:")).to_be_visible()
    page.locator("main h1").focus()
    reader.tab_to("Redrive")
    reader.press("Enter")
    reader.tab_to("Preview")
    reader.press("Enter")
    expect(page.locator("[data-plan]")).to_contain_text("queue work")
    reader.expect_focus("Redrive")
    reader.press("Enter")
    expect(page.get_by_text("1 message redriven.")).to_be_visible()
