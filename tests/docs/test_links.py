"""Links between documents lead somewhere, and every document can be reached from the README."""

import pytest

from tests.docs.pages import ROOT, Page, pages

pytestmark = pytest.mark.interpreted_only("documents are the same for both forms")


def test_links_lead_somewhere() -> None:
    links = [(page, link) for page in pages() for link in page.links]
    assert [f"{page.name}: {link}" for page, link in links if not leads_somewhere(page, link)] == []


def leads_somewhere(page: Page, link: str) -> bool:
    if link.startswith(("http://", "https://")):
        return True
    file, _, anchor = link.partition("#")
    path = (page.path.parent / file).resolve() if file else page.path
    return path.exists() and (not anchor or anchor in Page(path).anchors)


def test_every_document_can_be_reached_from_the_readme() -> None:
    reached = {ROOT / "README.md"}
    waiting = list(reached)
    while waiting:
        page = Page(waiting.pop())
        for link in page.links:
            found = (page.path.parent / link.partition("#")[0]).resolve()
            inside = [*found.glob("*.md")] if found.is_dir() else [found]
            waiting += [path for path in inside if path.suffix == ".md" and path not in reached]
            reached.update(path for path in inside if path.exists())
    assert [page.name for page in pages() if page.path not in reached] == []


def test_a_wrong_link_is_noticed() -> None:
    readme = Page(ROOT / "README.md")
    assert leads_somewhere(readme, "docs/bus.md#delayed-events")
    assert not leads_somewhere(readme, "docs/bus.md#too-late")
    assert not leads_somewhere(readme, "docs/buss.md")
