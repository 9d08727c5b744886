/**
 * The start, and the change from view to view.
 *
 * A view is a function that is given `{params, query, frame}` and returns
 * `{title, el, refresh?, leave?}`: an element that stays, and a function that asks the broker and
 * brings the element up to date. A failed refresh leaves what is shown and says so above it.
 */

import { connection, get } from "./api.js";
import { fill, h } from "./dom.js";
import { Frame } from "./frame.js";
import { listenForKeys } from "./keys.js";
import { Poller } from "./live.js";
import { notice } from "./parts/notice.js";
import { find } from "./router.js";
import { authorization, remember, session } from "./session.js";
import { loginView } from "./views/login.js";

const app = document.getElementById("app");
const banner = document.getElementById("banner");
let frame = null;
let framePoller = null;
let current = null;
let poller = null;
let hasBegun = false;

async function start() {
  connection.addEventListener("lost", () =>
    fill(banner, "The broker does not answer. What you see may be old; trying again …"),
  );
  connection.addEventListener("found", onFound);
  session.addEventListener("signedout", (event) => showLogin(event.detail));
  session.addEventListener("vhost", () => frame && showView());
  addEventListener("hashchange", () => frame && showView());
  document.getElementById("skip").onclick = (event) => {
    event.preventDefault();
    document.getElementById("main")?.focus();
  };
  listenForKeys();
  const login = authorization();
  if (!login) return showLogin("");
  try {
    remember(login, await get("/whoami"));
    showFrame();
  } catch (fault) {
    if (authorization()) showLogin(fault.message);
  }
}

function onFound() {
  fill(banner);
  notice("The broker answers again.");
}

function showLogin(reason) {
  leaveView();
  framePoller?.stop();
  frame?.leave();
  frame = null;
  hasBegun = true;
  document.title = "Sign in · Leveret";
  app.replaceChildren(loginView(reason, showFrame));
  app.querySelector("input")?.focus();
}

function showFrame() {
  frame = new Frame();
  app.replaceChildren(frame.el);
  framePoller = new Poller(
    (signal) => frame.refresh(signal),
    () => {},
  );
  showView();
}

function leaveView() {
  poller?.stop();
  current?.leave?.();
  poller = null;
  current = null;
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

async function showView() {
  const found = find(location.hash || "#/");
  leaveView();
  const wanted = location.hash;
  frame.section = found?.route.section ?? "";
  frame.main.setAttribute("aria-busy", "true");
  frame.drawNav();
  const view = found ? await make(found) : unknown();
  if (!frame || location.hash !== wanted) return; // the reader has gone on meanwhile
  leaveView();
  current = view;
  document.title = `${view.title} · Leveret`;
  const fault = h("div", { role: "alert" });
  frame.main.replaceChildren(h("div", { class: "view" }, fault, view.el));
  if (hasBegun) {
    scrollTo(0, 0);
    frame.main.querySelector("h1")?.focus({ preventScroll: true });
  }
  hasBegun = true; // a page that was just loaded begins at its top
  frame.main.dataset.view = found?.route.path ?? "";
  if (!view.refresh) return settle();
  poller = new Poller(
    (signal) => view.refresh(signal),
    (failure) => {
      settle();
      showFault(fault, failure);
    },
  );
}

/** What the reader asked for is there, or cannot be had. */
function settle() {
  frame?.main.setAttribute("aria-busy", "false");
}

async function make(found) {
  try {
    const module = await found.route.load();
    return module.view({
      params: found.params,
      query: found.query,
      frame,
      again: () => poller?.run(),
    });
  } catch (fault) {
    console.error(fault);
    return {
      title: "Not shown",
      el: h(
        "div",
        null,
        h("h1", { tabindex: "-1" }, "This view could not be loaded"),
        h("p", null, "Try again when the broker answers."),
      ),
    };
  }
}

function unknown() {
  return {
    title: "Not found",
    el: h(
      "div",
      { class: "empty" },
      h("h1", { tabindex: "-1" }, "There is no such view"),
      h("p", null, h("a", { href: "#/" }, "Go to the overview")),
    ),
  };
}

function showFault(host, fault) {
  if (fault && !("status" in fault)) console.error(fault);
  const isShown = fault && !connection.isLost; // the banner says it already
  fill(
    host,
    isShown &&
      h(
        "p",
        { class: "note bad" },
        "status" in fault ? fault.message : "The page failed to show this.",
      ),
  );
}

start();
