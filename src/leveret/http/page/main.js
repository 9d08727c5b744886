/**
 * Start the page: sign in, draw the frame, and show the view of the current address.
 *
 * A view is a function `view({params, query, frame, reload})` that returns
 * `{title, el, refresh?, leave?}`: an element, and a function that asks the broker and updates the
 * element. `view_state.js` shows whether the data is loading, loaded, failed or outdated.
 */

import { connection, get } from "./api.js";
import { fill, h } from "./dom.js";
import { Frame } from "./frame.js";
import { notice } from "./parts/notice.js";
import { Poller } from "./polling.js";
import { addRoutes, findRoute, goTo, noteQuery, withQuery } from "./router.js";
import { ROUTES } from "./routes.js";
import {
  askOtherTabs,
  authorization,
  hasChosenVhost,
  remember,
  session,
  setVhost,
  vhost,
} from "./session.js";
import { listenForShortcuts } from "./shortcuts.js";
import { ViewState } from "./view_state.js";
import { loginView } from "./views/login.js";

const app = document.getElementById("app");
const banner = document.getElementById("banner");
let frame = null;
let framePoller = null;
let current = null;
let poller = null;
let isLoaded = false; // false until the first view is shown
let lastAsked = 0; // number of the view that the user has asked for last

async function start() {
  addRoutes(ROUTES);
  connection.addEventListener("lost", () =>
    fill(banner, "The broker does not answer. Retrying …"),
  );
  connection.addEventListener("found", onFound);
  session.addEventListener("signedout", (event) => showLogin(event.detail));
  session.addEventListener("vhost", (event) => frame && showVhost(event.detail));
  session.addEventListener("offered", (event) => !frame && isLoaded && enter(event.detail));
  addEventListener("hashchange", () => (frame ? showView() : isLoaded && showLogin("")));
  document.getElementById("skip").onclick = (event) => {
    event.preventDefault();
    document.getElementById("main")?.focus();
  };
  listenForShortcuts();
  const login = authorization() ?? (await askOtherTabs());
  if (login) await enter(login);
  else showLogin("");
}

/** Enter with a login of this tab or of another one. */
async function enter(login) {
  try {
    remember(login, await get("/whoami", { login }));
    showFrame();
  } catch (fault) {
    showLogin(fault.message);
  }
}

function onFound() {
  fill(banner);
  notice("The broker is reachable again.");
}

function showLogin(reason) {
  leaveView();
  framePoller?.stop();
  frame?.leave();
  frame = null;
  isLoaded = true;
  const found = findRoute(location.hash);
  if (found?.route.section === "manual") return void showDocument(found);
  document.title = "Sign in · Leveret";
  app.replaceChildren(loginView(reason, showFrame));
  app.querySelector("input")?.focus();
}

/** Show a document to a user who is not signed in. */
async function showDocument(found) {
  const view = await loadView(found);
  if (frame || findRoute(location.hash)?.route.section !== "manual") return;
  leaveView();
  current = view;
  document.title = `${view.title} · Leveret`;
  const main = h("main", { class: "reading", id: "main", tabindex: "-1" }, view.el);
  app.replaceChildren(h("p", { class: "reading" }, h("a", { href: "#/" }, "Sign in")), main);
  scrollTo(0, 0);
  const state = new ViewState(main, view.el, () => poller?.run());
  poller = new Poller(view.refresh, (fault) => state.onResult(fault), () => state.onSlow());
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

/** Show another vhost. A list keeps its search and order; Back returns to the vhost before. */
function showVhost(name) {
  const before = vhost();
  setVhost(name);
  if (!isList(findRoute(location.hash || "#/"))) return showView();
  noteQuery({ vhost: before });
  goTo(withQuery({ vhost: name, row: null }));
}

/** Return whether a route shows objects of the selected vhost, or of all. */
function isList(found) {
  return found !== null && !found.route.path.includes(":");
}

/** Select the vhost of the address, or note the selected one there. */
function matchVhost(found) {
  const given = found.query.get("vhost");
  if (given !== null) setVhost(given);
  else if (hasChosenVhost()) noteQuery({ vhost: vhost() });
}

async function showView() {
  const found = findRoute(location.hash || "#/");
  if (isList(found)) matchVhost(found);
  frame.drawVhosts();
  leaveView();
  lastAsked += 1;
  const mine = lastAsked;
  frame.section = found?.route.section ?? "";
  frame.main.setAttribute("aria-busy", "true");
  frame.drawNav();
  const view = found ? await loadView(found) : notFoundView();
  if (!frame || mine !== lastAsked) return; // the user has gone on meanwhile
  leaveView();
  current = view;
  document.title = `${view.title} · Leveret`;
  frame.main.replaceChildren(h("div", { class: "view" }, view.el));
  if (isLoaded) {
    scrollTo(0, 0);
    frame.main.querySelector("h1")?.focus({ preventScroll: true });
  }
  isLoaded = true;
  frame.main.dataset.view = found?.route.path ?? "";
  if (!view.refresh) return markReady();
  const state = new ViewState(frame.main, view.el, () => poller?.run());
  poller = new Poller(view.refresh, (fault) => state.onResult(fault), () => state.onSlow());
}

/** Mark a view that loads nothing as complete. */
function markReady() {
  frame.main.dataset.state = "ready";
  frame.main.setAttribute("aria-busy", "false");
}

async function loadView(found) {
  try {
    const module = await found.route.load();
    return module.view({
      params: found.params,
      query: found.query,
      frame,
      reload: () => poller?.restart(),
    });
  } catch (fault) {
    console.warn(fault);
    return unloadedView(found);
  }
}

/** Make a view in place of one whose file could not be loaded. It tries again by itself. */
function unloadedView({ route }) {
  return {
    title: "Not loaded",
    el: h("div", { class: "view" }, h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Not loaded"))),
    refresh: async () => {
      await get("/whoami"); // tells whether the broker answers again
      await route.load();
      showView();
    },
  };
}

function notFoundView() {
  return {
    title: "Not found",
    el: h(
      "div",
      { class: "empty" },
      h("h1", { tabindex: "-1" }, "Page not found"),
      h("p", null, h("a", { href: "#/" }, "Go to the overview")),
    ),
  };
}

start();
