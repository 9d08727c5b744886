"""The address of a view keeps what the user has chosen; tabs share a login."""

from collections.abc import Iterator

import pika
import pytest
from playwright.sync_api import expect

from leveret.testing.broker import RunningBroker, broker
from tests.http.asking import ask
from tests.page.browser import HeldCalls, Reader

pytestmark = pytest.mark.compiled_only("the page's own behaviour, the same in both forms")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        assert ask(found, "PUT", "/api/vhosts/other")[0] == 201
        assert ask(found, "PUT", "/api/queues/other/elsewhere", {})[0] == 201
        with pika.BlockingConnection(pika.URLParameters(found.url)) as connection:
            channel = connection.channel()
            for number in range(60):
                channel.queue_declare(f"order-{number:02}")
            channel.basic_publish("", "order-07", b"x")
            channel.queue_declare("zebra")
        yield found


def test_back_and_reload_keep_search_order_filter_and_place(reader: Reader) -> None:
    page = reader.page
    rows = page.locator(".rows tr[data-row]")
    reader.open("#/queues", "/queues")
    page.get_by_label("Search queues").fill("order")
    expect(page.get_by_text("60 of 62")).to_be_visible()
    expect(page.get_by_text("60 of 62: 1 ready, 0 in flight")).to_be_visible()
    page.get_by_role("button", name="Ready").click()
    page.wait_for_url("**/#/queues?q=order&sort=-Ready")
    expect(rows.first).to_contain_text("order-07")
    page.locator(".rows").evaluate("host => { host.scrollTop = 40 * 20; }")
    page.wait_for_url("**&row=20")

    rows.filter(has_text="order-30").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("order-30")
    page.go_back()
    for _ in ("after Back", "after a reload"):
        expect(page.get_by_label("Search queues")).to_have_value("order")
        expect(page.get_by_text("60 of 62")).to_be_visible()
        expect(page.locator("th[aria-sort=descending]")).to_have_text("Ready↓")
        expect(rows.filter(has_text="order-30")).to_be_in_viewport()
        page.reload()
    page.get_by_role("button", name="With messages").click()
    expect(rows).to_have_count(1)
    page.reload()
    expect(rows).to_have_count(1)
    expect(page.get_by_role("button", name="With messages")).to_have_attribute(
        "aria-pressed", "true"
    )


SCROLL_AND_CLICK = """async () => {
  const host = document.querySelector(".rows");
  const scrolled = new Promise((done) => host.addEventListener("scroll", done, { once: true }));
  host.scrollTop = 40 * 20;
  await scrolled;
  host.querySelector('a[href="#/queues/%2F/order-30"]').click();
  await new Promise((done) => setTimeout(done, 500)); // the list notes its place before that
}"""


def test_a_row_clicked_just_after_scrolling_opens(reader: Reader) -> None:
    page = reader.page
    reader.open("#/queues?q=order", "/queues")
    expect(page.get_by_text("60 of 62")).to_be_visible()
    held = HeldCalls(page, "**/page/views/queue.js")
    page.evaluate(SCROLL_AND_CLICK)
    held.let_go()
    expect(page.get_by_role("heading", level=1)).to_have_text("order-30")
    page.wait_for_url("**/#/queues/%2F/order-30")


def test_a_row_keeps_the_focus_when_the_row_before_it_goes(
    reader: Reader, server: RunningBroker
) -> None:
    page = reader.page
    for name in ("a-first", "a-second"):
        assert ask(server, "PUT", f"/api/queues/%2F/{name}", {})[0] == 201
    reader.open("#/queues?q=a-", "/queues")
    page.get_by_role("link", name="a-second").focus()
    assert ask(server, "DELETE", "/api/queues/%2F/a-first")[0] == 204
    expect(page.get_by_role("link", name="a-first")).to_have_count(0)
    expect(page.get_by_role("link", name="a-second")).to_be_focused()
    assert ask(server, "DELETE", "/api/queues/%2F/a-second")[0] == 204


def test_the_vhost_is_in_the_address_and_back_returns_to_the_one_before(reader: Reader) -> None:
    page = reader.page
    chosen = page.get_by_label("Virtual host")
    reader.open("#/queues", "/queues")
    expect(page.get_by_text("62 in total")).to_be_visible()
    chosen.select_option("other")
    expect(page.get_by_text("1 in total")).to_be_visible()
    page.wait_for_url("**/#/queues?vhost=other")
    page.get_by_role("link", name="Exchanges").first.click()
    page.wait_for_url("**/#/exchanges?vhost=other")
    page.go_back()
    expect(page.get_by_text("1 in total")).to_be_visible()
    page.go_back()
    expect(page.get_by_text("62 in total")).to_be_visible()
    expect(chosen).to_have_value("")


def test_a_message_search_is_in_the_address(reader: Reader) -> None:
    page = reader.page
    reader.open("#/queues/%2F/order-07/messages", "/queues/:vhost/:name/:tab")
    page.get_by_label("Text in the payload").fill("nothing like this")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("0 messages found")).to_be_visible()
    page.reload()
    expect(page.get_by_text("0 messages found")).to_be_visible()


def test_a_second_tab_is_signed_in_and_signs_out_the_first(reader: Reader) -> None:
    first = reader.page
    second = reader.context.new_page()
    second.goto(f"{reader.base}#/queues?q=zebra")
    expect(second.get_by_text("1 of 62")).to_be_visible()
    assert second.evaluate("[Object.keys(localStorage), document.cookie]") == [[], ""]
    second.locator("#signout").click()
    expect(first.get_by_role("button", name="Sign in")).to_be_visible()
    reader.sign_in()
    expect(second.get_by_text("1 of 62")).to_be_visible()
