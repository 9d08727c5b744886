"""The documents in the page: for users who have the installed package and no repository."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, expect

from leveret.testing.broker import RunningBroker, broker
from tests.page.browser import Reader

pytestmark = pytest.mark.compiled_only("the page's own behaviour, the same in both forms")

# Draws every document, and returns the marks of Markdown that are shown as text.
LEFT_OVER = """async () => {
  const { markdown } = await import("/page/parts/markdown.js");
  const found = [];
  for (const name of await (await fetch("manual")).json()) {
    const text = await (await fetch(`manual/${name}`)).text();
    const drawn = document.createElement("div");
    drawn.append(...markdown(text, () => null));
    if (drawn.querySelectorAll("h1").length !== 1) found.push(`${name}: not one title`);
    for (const code of drawn.querySelectorAll("code")) code.remove();
    for (const part of drawn.querySelectorAll("h1, h2, h3, p, td, th"))
      if (/`|\\*\\*|\\]\\(|^\\||<!--|^#+ |^- /.test(part.textContent))
        found.push(`${name}: ${part.textContent}`);
  }
  return found;
}"""
SAMPLE = """# Title
A *word*, `a|b`, **bold `code`** and <img src=x onerror=alert(1)>.

- one
  more
- two

      deep

1. first

   inside

2. second

| a | b |
| --- | --- |
| `x\\|y` | [l](other.md#part) |

```
fence | * `
```
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningBroker]:
    with broker(http=True) as found:
        yield found


def test_documents_are_read_without_a_login_and_lead_to_each_other(
    context: BrowserContext, server: RunningBroker
) -> None:
    reader = Reader(context, server)
    page = reader.page
    page.goto(reader.base)
    page.get_by_role("link", name="Documents").click()
    page.get_by_role("link", name="Jobs on Redis and PostgreSQL").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Jobs")
    page.get_by_role("link", name="All documents").click()
    # The broker has no copy of this page, so it is not a link.
    expect(page.get_by_role("cell", name="Contributing")).to_be_visible()
    expect(page.get_by_role("link", name="Contributing")).to_have_count(0)
    page.get_by_role("link", name="Sign in").click()
    expect(page.get_by_label("Password")).to_be_visible()
    complaints = reader.complaints
    reader.close()
    assert complaints == []


def test_each_view_leads_to_the_document_about_it(reader: Reader) -> None:
    page = reader.page
    reader.open("#/streams", "/streams")
    page.get_by_role("link", name="About this view").click()
    page.locator('main[data-view="/manual/:first/:second"][aria-busy=false]').wait_for()
    expect(page.get_by_role("heading", level=1)).to_have_text("Streams")
    missing = page.evaluate(
        """async () => {
          const { ABOUT } = await import("/page/sections.js");
          const { ROUTES } = await import("/page/routes.js");
          const names = await (await fetch("manual")).json();
          const sections = new Set(ROUTES.map((route) => route.section));
          sections.delete("manual");
          return [...sections].filter((each) => !names.includes(`docs/${ABOUT[each]}`));
        }"""
    )
    assert missing == []


def test_a_link_to_a_part_of_a_document_scrolls_to_it(reader: Reader) -> None:
    reader.open("#/manual/docs/page.md?part=keys", "/manual/:first/:second")
    expect(reader.page.locator("#keys")).to_be_in_viewport()


def test_an_address_leads_to_no_other_path_of_the_broker(reader: Reader) -> None:
    """A link that somebody sends must not make calls with the login of the reader."""
    asked: list[str] = []
    reader.page.on("request", lambda request: asked.append(request.url))
    reader.open("#/manual/..%2Fdequeue%3Fnamespace=%2F&topic=t", "/manual/:first")
    expect(reader.page.get_by_text("There is no such document.")).to_be_visible()
    assert [url for url in asked if "/dequeue" in url] == []


def test_every_document_is_drawn_without_marks_of_markdown(reader: Reader) -> None:
    assert reader.page.evaluate(LEFT_OVER) == []


def test_markdown_becomes_elements_and_html_stays_text(reader: Reader) -> None:
    drawn: str = reader.page.evaluate(
        """async (text) => {
          const { markdown } = await import("/page/parts/markdown.js");
          const drawn = document.createElement("div");
          drawn.append(...markdown(text, (href) => `#${href}`));
          for (const part of drawn.querySelectorAll("*"))
            for (const name of ["tabindex", "role", "aria-label", "class", "scope"])
              part.removeAttribute(name);
          return drawn.innerHTML;
        }""",
        SAMPLE,
    )
    assert drawn == (
        "<h1>Title</h1>"
        "<p>A <em>word</em>, <code>a|b</code>, <strong>bold <code>code</code></strong> and "
        "&lt;img src=x onerror=alert(1)&gt;.</p>"
        "<ul><li><p>one\nmore</p></li><li><p>two</p><pre><code>deep</code></pre></li></ul>"
        "<ol><li><p>first</p><p>inside</p></li><li><p>second</p></li></ol>"
        "<div><table><thead><tr><th>a</th><th>b</th></tr></thead>"
        '<tbody><tr><td><code>x|y</code></td><td><a href="#other.md#part">l</a></td></tr></tbody>'
        "</table></div>"
        "<pre><code>fence | * `</code></pre>"
    )
