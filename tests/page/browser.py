"""A browser for the page: Debian's Chromium without windows, driven by Playwright.

`Reader` is a user of the page. `press` and `tab_to` use the keyboard; `open` shows a view and waits
until it is loaded. Errors that the browser reports (failed scripts, violations of the content
policy) are kept in `complaints`; tests expect none.
"""

import json
import re
import shutil
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Route,
    expect,
    sync_playwright,
)
from playwright.sync_api import TimeoutError as BrowserTimeoutError

from leveret.testing.broker import RunningBroker
from tests.clients.node_packages import installed_package
from tests.clients.tools import require_program

# A busy machine is slow, and after a slow answer the page waits ten times as long before it asks
# again. Only a hang waits so long.
WITHIN_MS = 180_000
GO_MS = 20_000  # to show the view of a shortcut
GO_TRIES = 9
DESKTOP = (1280, 860)
PHONE = (390, 844)
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"  # of views with faults
TABS_MAX = 120  # key presses to reach any element of a view
HERE = Path(__file__).parent
CONTRAST = (HERE / "contrast.js").read_text()
CLIPPED = (HERE / "clipped.js").read_text()
# contrast.js checks the contrast: it also knows drawings, borders and placeholders.
RUN_AXE = """async () => {
  const options = { rules: { "color-contrast": { enabled: false } }, resultTypes: ["violations"] };
  const found = await axe.run(document.querySelector("dialog[open]") ?? document, options);
  return found.violations.flatMap(({ id, help, nodes }) =>
    nodes.map((node) => `axe ${id} (${help}): ${node.html.slice(0, 200)}`));
}"""

expect.set_options(timeout=WITHIN_MS)


@contextmanager
def chromium() -> Iterator[Browser]:
    program = browser_program()
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        yield browser
        browser.close()


def browser_program() -> str:
    """Return the path of Chromium, without windows if possible: that takes half of the CPU time."""
    shell = "chromium-headless-shell"
    return shutil.which(shell) or require_program("chromium", shell)


def asked(server: RunningBroker, path: str) -> Any:
    """Return the answer of the HTTP API, for comparison."""
    connection = HTTPConnection(server.host, server.http_port, timeout=60)
    login = b64encode(b"guest:guest").decode()
    connection.request("GET", path, headers={"Authorization": f"Basic {login}"})
    found = json.loads(connection.getresponse().read())
    connection.close()
    return found


def new_context(browser: Browser) -> BrowserContext:
    """Open a context with a desktop window and the light theme."""
    viewport: Any = {"width": DESKTOP[0], "height": DESKTOP[1]}
    context = browser.new_context(viewport=viewport, color_scheme="light", reduced_motion="reduce")
    context.set_default_timeout(WITHIN_MS)
    return context


class HeldCalls:
    """Calls of a page that are held back until the test lets them go.

    The browser reports a call later than the page has begun it. So calls that are reported after
    `let_go` get the same answer.
    """

    def __init__(self, page: Page, *calls: str) -> None:
        self._held: list[Route] = []
        self._answer: Callable[[Route], None] | None = None
        for each in calls:
            page.route(each, self._on_call)

    def _on_call(self, route: Route) -> None:
        if self._answer is None:
            self._held.append(route)
        else:
            self._answer(route)

    def hold(self) -> None:
        """Hold back the calls from now on."""
        self._answer = None

    def let_go(self, answer: Callable[[Route], None] = Route.continue_) -> None:
        """Answer the calls that are held, and those that follow; or pass them to the broker."""
        self._answer = answer
        while self._held:
            answer(self._held.pop())


class Reader:
    """A user with a desktop window in the light theme, which `show_as` changes."""

    def __init__(self, context: BrowserContext, server: RunningBroker) -> None:
        self.shown_as = (DESKTOP, "light")
        self.base = f"http://{server.host}:{server.http_port}/"
        self.context = context
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda fault: self.complaints.append(str(fault)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))

    def _on_console(self, message: ConsoleMessage) -> None:
        # The page shows a refused call as a sentence. The browser logs it too.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def sign_in(self, name: str = "guest", password: str = "guest") -> None:
        self.page.goto(self.base)
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.locator("main[aria-busy=false]").wait_for()

    def open(self, address: str, view: str) -> None:
        """Go to a view and wait until its data is shown."""
        self.page.evaluate("address => { location.hash = address; }", address)
        self.page.locator(f'main[data-view="{view}"][aria-busy=false]').wait_for()

    def focused(self) -> str:
        """Return the label or text of the focused element."""
        found: str = self.page.evaluate(
            """() => {
                const at = document.activeElement;
                const label = at.labels?.[0]?.textContent;
                return at.getAttribute("aria-label") ?? label ?? at.textContent.trim();
            }"""
        )
        return found

    def tab_to(self, name: str) -> None:
        """Press Tab until the element of this name has the focus, which must be visible."""
        seen = []
        for _ in range(TABS_MAX):
            self.page.keyboard.press("Tab")
            seen.append(self.focused())
            assert self.has_ring(), f"the focus on {seen[-1]!r} is not visible"
            if seen[-1].strip() == name:
                return
        raise AssertionError(f"no way to {name!r} by Tab, only to {seen}")

    def has_ring(self) -> bool:
        found: bool = self.page.evaluate(
            """() => {
                const at = document.activeElement;
                const style = getComputedStyle(at);
                if (at instanceof SVGElement || at === document.body) return true;
                return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
            }"""
        )
        return found

    def expect_focus(self, name: str) -> None:
        """Wait until the element of this label or text has the focus."""
        until_s = time.monotonic() + WITHIN_MS / 1000
        while (found := self.focused()) != name:
            assert time.monotonic() < until_s, f"the focus is on {found!r}, not on {name!r}"

    def go_by_keys(self, key: str, view: str) -> None:
        """Press g and a key, and wait for the view.

        The page ignores them if a busy machine lets 1.5 s pass between them.
        """
        shown = self.page.locator(f'main[data-view="{view}"][aria-busy=false]')
        for _ in range(GO_TRIES):
            self.press("g", key)
            with suppress(BrowserTimeoutError):
                shown.wait_for(timeout=GO_MS)
                return
        raise AssertionError(f"g and {key} did not show {view}")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def show_as(self, size: tuple[int, int], theme: Any) -> None:
        """Change the window and the theme, and wait until the view is drawn."""
        self.shown_as = (size, theme)
        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        self.page.evaluate(
            "() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
        )

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than its window."""
        found: int = self.page.evaluate(
            "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return found

    def clipped(self) -> list[str]:
        """Return the elements whose content does not fit and cannot be scrolled to."""
        found: list[str] = self.page.evaluate(CLIPPED)
        return found

    def axe_faults(self) -> list[str]:
        """Return what axe-core, a checker of accessibility, finds in the view or its dialog."""
        if not self.page.evaluate("typeof axe === 'object'"):
            package = installed_package(HERE / "package.json", "axe-core")
            self.page.evaluate((package / "axe.min.js").read_text())
        found: list[str] = self.page.evaluate(RUN_AXE)
        return found

    def contrast_faults(self) -> list[str]:
        found: list[str] = self.page.evaluate(CONTRAST)
        return found

    def keep_screenshot(self, where: str) -> None:
        """Keep a picture of the view, to see what a test complains about."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        size, theme = self.shown_as
        name = re.sub(r"[^a-z0-9]+", "-", f"{where} {theme} {size[0]}".lower()).strip("-")
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    def close(self) -> None:
        """Close all pages of the context, and forget everything that they stored."""
        if self.page.url.startswith(self.base):
            self.page.evaluate("() => localStorage.clear()")
        for page in self.context.pages:
            page.close()
        self.context.clear_cookies()
        self.context.clear_permissions()
