"""The cluster view: a single node, three real nodes, and the states of loading and failing."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from playwright.sync_api import BrowserContext, Locator, Route, expect

from leveret.testing import cluster
from leveret.testing.broker import RunningBroker, broker
from tests.page.browser import Reader

pytestmark = pytest.mark.compiled_only("the page's own behaviour, the same in both forms")
TRIES = 5


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        yield found


def member(name: str, role: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "role": role,
        "address": f"{name}:25672",
        "unreached_s": None,
        "match": 1000,
        "lag_blocks": 0,
        "lag_bytes": 0,
        "is_drained": False,
        "progress": "",
        **fields,
    }


FACTS: dict[str, Any] = {
    "name": "a",
    "cluster": "c0ffee",
    "raft": {"leader": "a", "leader_s": 3725.0},
    "voters": 3,
    "voters_reached": 2,
    "voters_needed": 2,
    "voters_spare": 0,
    "members": [
        member("a", "leader"),
        member("b", "follower", lag_blocks=3, lag_bytes=2048, is_drained=True),
        member("c", "follower", unreached_s=300.0, lag_blocks=1200, lag_bytes=None),
    ],
    "faults": [
        {
            "severity": "degraded",
            "node": "c",
            "fault": "node c is not reached",
            "advice": "start it",
        }
    ],
}


def test_a_node_alone_explains_itself(reader: Reader) -> None:
    reader.open("#/cluster", "/cluster")
    expect(reader.page.locator("main")).to_contain_text("is alone: it belongs to no cluster.")
    expect(reader.page.get_by_role("button", name="Remove")).to_have_count(0)


def test_faults_lag_and_silence_are_shown(reader: Reader) -> None:
    reader.page.route("**/api/cluster", lambda route: route.fulfill(json=FACTS))
    reader.open("#/cluster", "/cluster")
    main = reader.page.locator("main")
    expect(main).to_contain_text("Node c is not reached. Start it.")
    expect(main).to_contain_text("1 h 2 min")
    rows = main.locator("tbody tr")
    expect(rows.nth(1)).to_contain_text("3 blocks, 2.0 KiB")
    expect(rows.nth(1)).to_contain_text("drained")
    expect(rows.nth(2)).to_contain_text("for 5 min 0 s")
    expect(rows.nth(2)).to_contain_text("1,200 blocks")
    expect(main.get_by_role("button", name="Let it lead")).to_have_count(0)
    expect(main.get_by_role("button", name="Remove")).to_have_count(3)
    assert reader.contrast_faults() == []


def test_failed_and_outdated_are_told_apart(reader: Reader) -> None:
    page = reader.page
    refused: list[bool] = [True]

    def answer(route: Route) -> None:
        if refused:
            route.fulfill(status=503, json={"error": "x", "reason": "no node leads"})
        else:
            route.fulfill(json=FACTS)

    page.route("**/api/cluster", answer)
    reader.open("#/cluster", "/cluster")
    main = page.locator("main")
    expect(main).to_contain_text("This view could not be loaded.")
    refused.clear()
    expect(main).to_contain_text("Node c is not reached.")
    refused.append(True)
    expect(main).to_contain_text("Outdated: this is the data of 20")
    expect(main).to_contain_text("Node c is not reached.")
    refused.clear()
    expect(main.get_by_text("Outdated: ")).to_have_count(0)


def test_an_operator_lets_another_node_lead_and_removes_one(context: BrowserContext) -> None:
    with cluster(3) as trio:
        asked, target = trio.followers
        node = SimpleNamespace(host="127.0.0.1", http_port=trio[asked].http_port)
        reader = Reader(context, cast(RunningBroker, node))
        reader.sign_in()
        reader.open("#/cluster", "/cluster")
        row = reader.page.locator("tbody tr").filter(has_text=f"127.0.0.1:{port_of(trio, target)}")
        expect(row).to_contain_text("nothing")
        leads = row.locator(".badge").filter(has_text="leader")
        change(reader, row, "Let it lead", f"Let node {target} lead?", "Let it lead", leads)
        assert trio.leader == target
        gone = next(name for name in trio.nodes if name not in (asked, target))
        row = reader.page.locator("tbody tr").filter(has_text=f"127.0.0.1:{port_of(trio, gone)}")
        two_rows = reader.page.locator("tbody:not(:has(tr:nth-child(3)))")
        change(reader, row, "Remove", f"Remove node {gone}?", "Remove the node", two_rows)
        assert reader.complaints == []
        reader.close()


def change(reader: Reader, row: Locator, verb: str, asks: str, sure: str, done: Locator) -> None:
    """Press a button of a node until it has worked: a busy cluster may refuse a change at first."""
    refused = reader.page.locator(".notice.bad")
    for _ in range(TRIES):
        row.get_by_role("button", name=verb).click()
        dialog = reader.page.get_by_role("dialog")
        expect(dialog).to_contain_text(asks)
        dialog.get_by_role("button", name=sure).click()
        expect(done.or_(refused).first).to_be_visible()
        for close in refused.get_by_role("button").all():
            close.click()
        if done.is_visible():
            return
    raise AssertionError(f"{verb} was refused {TRIES} times")


def port_of(trio: Any, name: str) -> str:
    """Return the cluster port of a node."""
    flags = trio[name].flags
    return str(flags[flags.index("--cluster-listen") + 1].rpartition(":")[2])
