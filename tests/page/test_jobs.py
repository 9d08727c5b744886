"""Jobs in the page: topics, dead jobs, redrive, settings; by mouse and by keyboard.

Job ids are larger than a JavaScript Number can hold: they are compared with those of the service.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Route, expect

from leveret.clock import Clock
from leveret.jobs import Client, TopicSettings, UnknownJobError
from leveret.testing.broker import RunningBroker, broker
from tests.jobs.service import NAMESPACE, address, token
from tests.page.browser import Reader
from tests.page.test_looks import MARKUP, looked_at

pytestmark = pytest.mark.compiled_only("the calls behind the page are tested in both forms")
TOPIC = "refund"
ERROR = f"ValueError: no such order {MARKUP}\n  at line 1"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        yield found


@pytest.fixture
def client(server: RunningBroker) -> Iterator[Client]:
    with Client(address(server), token=token(server), namespace=NAMESPACE) as found:
        yield found
        for topic in found.stats(namespace=NAMESPACE):
            found.delete_dead(topic.topic)
            found.ack_many(found.dequeue(topic.topic, limit=1000))


def dead_jobs(client: Client, count: int, topic: str = TOPIC) -> list[int]:
    client.set_settings(topic, TopicSettings(retries_max=0))
    ids = [client.enqueue(topic, {"order": number}) for number in range(count)]
    for job in client.dequeue(topic, limit=count):
        client.nack(job, ERROR)
    return ids


def scheduled(client: Client) -> int:
    moment = datetime.fromtimestamp(Clock().now_ms() / 1000, UTC) + timedelta(hours=1)
    return client.enqueue(TOPIC, b"later", deliver_after=moment)


def state(client: Client, id: int) -> str:
    try:
        return client.find(TOPIC, id).state
    except UnknownJobError:
        return "gone"


def test_dead_jobs_are_read_redriven_and_deleted(reader: Reader, client: Client) -> None:
    first, second, third = dead_jobs(client, 3)
    assert min(first, second, third) > 2**53
    page = reader.page
    dialog = page.get_by_role("dialog")
    page.get_by_role("link", name="Jobs").click()
    page.get_by_role("link", name=TOPIC, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(TOPIC)
    expect(page.locator("[data-count=dead]")).to_have_text("3")
    rows = page.locator(".list tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text(str(second))
    expect(rows.nth(1)).to_contain_text(f"ValueError: no such order {MARKUP}")

    rows.nth(1).get_by_role("button", name="Show").click()
    expect(dialog).to_contain_text(f"Job {second}")
    expect(dialog.locator(".failures pre")).to_have_text(ERROR)
    expect(dialog.locator("pre.payload")).to_have_text('{"order":1}')
    assert page.locator("dialog img").count() == 0
    page.keyboard.press("Escape")

    rows.nth(1).get_by_role("button", name="Redrive").click()
    expect(rows).to_have_count(2)
    assert state(client, second) == "ready"
    rows.nth(0).get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(rows).to_have_count(1)
    assert (state(client, first), state(client, third)) == ("gone", "dead")
    page.get_by_role("button", name="Redrive all").click()
    dialog.get_by_role("button", name="Redrive all").click()
    expect(page.get_by_text("No dead jobs.")).to_be_visible()
    assert state(client, third) == "ready"


def test_counts_that_a_shard_does_not_tell_are_unknown(reader: Reader, client: Client) -> None:
    client.enqueue(TOPIC, b"x")
    reason = "shard 1 does not answer"
    unknown = {"ready": None, "scheduled": None, "leased": None, "dead": None, "missing": reason}

    def without_counts(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=[each | unknown for each in answer.json()])

    page = reader.page
    page.route("**/stats*", without_counts)
    reader.open(f"#/jobs/{NAMESPACE}/{TOPIC}", "/jobs/:namespace/:topic")
    expect(page.get_by_text(reason)).to_be_visible()
    for name in ("ready", "scheduled", "leased", "dead"):
        expect(page.locator(f"[data-count={name}]")).to_have_text("–")
    reader.open("#/jobs", "/jobs")
    expect(page.get_by_title(reason).first).to_have_text("–")
    page.unroute("**/stats*")


def test_a_job_is_found_and_cancelled_or_delivered_now(reader: Reader, client: Client) -> None:
    wanted, unwanted = scheduled(client), scheduled(client)
    page = reader.page
    dialog = page.get_by_role("dialog")
    reader.open(f"#/jobs/{NAMESPACE}/{TOPIC}", "/jobs/:namespace/:topic")
    for id, verb in ((wanted, "Deliver now"), (unwanted, "Cancel the job")):
        page.get_by_role("button", name="Find a job").click()
        dialog.get_by_label("Id").fill(str(id))
        dialog.get_by_role("button", name="Find").click()
        expect(dialog).to_contain_text("scheduled")
        dialog.get_by_role("button", name=verb).click()
        if verb == "Cancel the job":
            expect(dialog.last).to_contain_text(f"Cancel job {id}?")
            dialog.last.get_by_role("button", name=verb).click()
        expect(dialog).to_have_count(0)
    expect(page.get_by_text("The job is cancelled.")).to_be_visible()
    assert (state(client, wanted), state(client, unwanted)) == ("ready", "gone")


def test_jobs_are_listed_by_state_with_a_link_to_the_queue(reader: Reader, client: Client) -> None:
    later, ready = scheduled(client), client.enqueue(TOPIC, b"now", priority=3)
    leased = client.enqueue(TOPIC, b"held", priority=-1)
    (held,) = client.dequeue(TOPIC, limit=1, lease_s=3600.0)
    assert held.id == leased
    page = reader.page
    rows = page.locator(".list tbody tr")
    reader.open(f"#/jobs/{NAMESPACE}/{TOPIC}", "/jobs/:namespace/:topic")
    expect(page.locator("[data-count=leased]")).to_have_text("1")
    for state, id, text in (
        ("Ready", ready, "3"),
        ("Scheduled", later, "(in 5"),
        ("Leased", leased, "in "),
    ):
        page.get_by_role("button", name=state, exact=True).click()
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text(str(id))
        expect(rows.first).to_contain_text(text)
    page.wait_for_url("**show=leased")
    page.reload()
    expect(rows.first).to_contain_text(str(leased))
    rows.first.get_by_role("button", name="Show").click()
    expect(page.get_by_role("dialog").locator("pre.payload")).to_have_text("held")
    reader.press("Escape")
    page.get_by_role("link", name="Show as queue").click()
    page.wait_for_url(f"**/#/queues/{NAMESPACE}/{TOPIC}")
    client.ack(held)  # else it is dead when the lease ends, in the middle of another test


def test_a_schedule_is_added_paused_and_deleted(reader: Reader, client: Client) -> None:
    page = reader.page
    dialog = page.get_by_role("dialog")
    reader.open("#/jobs", "/jobs")
    page.get_by_role("button", name="Add a schedule").click()
    for label, value in (
        ("Name", "nightly"),
        ("Namespace", NAMESPACE),
        ("Topic", TOPIC),
        ("Cron", "0 3 * * 9"),
        ("Payload", "grüße"),
    ):
        dialog.get_by_label(label, exact=True).fill(value)
    dialog.get_by_role("button", name="Add").click()
    expect(dialog.get_by_role("alert")).to_contain_text("cron")
    dialog.get_by_label("Cron").fill("0 3 * * *")
    dialog.get_by_role("button", name="Add").click()
    row = page.locator(".list tbody tr").filter(has_text="nightly")
    expect(row).to_contain_text("0 3 * * * (UTC)")
    (found,) = client.schedules()
    assert (found.name, found.payload.decode()) == ("nightly", "grüße")
    row.get_by_role("link", name=TOPIC).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(TOPIC)
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("paused")
    (found,) = client.schedules()
    assert (found.is_paused, found.payload.decode()) == (True, "grüße")
    row.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No schedules.")).to_be_visible()
    assert client.schedules() == []


def test_a_paused_topic_says_so(reader: Reader, client: Client) -> None:
    client.set_settings("paused", TopicSettings(concurrency_max=0))
    client.enqueue("paused", b"x")
    reader.open(f"#/jobs/{NAMESPACE}/paused", "/jobs/:namespace/:topic")
    expect(reader.page.get_by_text("0: the topic is paused")).to_be_visible()
    client.set_settings("paused", TopicSettings())


def test_the_same_with_the_keyboard_alone(reader: Reader, client: Client) -> None:
    """From the overview to the jobs, to a topic, its settings, and a redriven job."""
    (id,) = dead_jobs(client, 1)
    page = reader.page
    reader.go_by_keys("j", "/jobs")
    reader.press("/")
    reader.type(TOPIC)
    expect(page.locator("tr[data-row]")).to_have_count(1)
    reader.tab_to("Topics")
    reader.press("ArrowDown", "Enter")
    page.locator('main[data-view="/jobs/:namespace/:topic"][aria-busy=false]').wait_for()

    reader.tab_to("Change")
    reader.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    reader.expect_focus("Retries")
    reader.press("Control+a")
    reader.type("7")
    reader.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_text("The settings are saved.")).to_be_visible()
    assert client.settings(TOPIC).retries_max == 7

    reader.tab_to("Redrive")
    reader.press("Enter")
    expect(page.get_by_text("The job is ready again.")).to_be_visible()
    assert state(client, id) == "ready"


def test_a_job_is_enqueued_for_a_new_topic(reader: Reader, client: Client) -> None:
    page = reader.page
    dialog = page.get_by_role("dialog")
    reader.open("#/jobs", "/jobs")
    page.get_by_role("button", name="Enqueue a job").click()
    dialog.get_by_label("Namespace").fill(NAMESPACE)
    dialog.get_by_label("Topic").fill("fresh")
    dialog.get_by_label("Payload").fill("grüße")
    dialog.get_by_label("Priority").fill("-3")
    dialog.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("fresh")
    (job,) = client.dequeue("fresh")
    assert (job.payload.decode(), job.priority) == ("grüße", -3)


def test_job_views_can_be_read_and_fit_the_window(reader: Reader, client: Client) -> None:
    """Hostile names and errors are shown as plain text."""
    dead_jobs(client, 2, "x" * 180)
    dead_jobs(client, 2, MARKUP)
    reader.open("#/jobs", "/jobs")
    faults = looked_at(reader, "jobs")
    reader.page.locator(".rows a").filter(has_text=MARKUP).click()
    view = reader.page.locator('main[data-view="/jobs/:namespace/:topic"][aria-busy=false]')
    view.wait_for()
    faults += looked_at(reader, "topic")
    reader.page.get_by_role("button", name="Show").first.click()
    faults += looked_at(reader, "job")
    assert not faults, "\n".join(faults)
